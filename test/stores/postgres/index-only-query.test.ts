/** looks — a server that misjudges its tables does not make looks for work slow. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { textArray } from '../../../src/stores/postgres/row.ts';
import { Claims } from '../../../src/stores/postgres/claim.ts';
import { sqlLiteral, indexOnlyQuery } from '../../../src/stores/postgres/claim-sql.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type { QueryRequest } from '../../../src/stores/postgres/connection.ts';
import { withService } from '../../services/index.ts';
import { asking, misjudge, openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest, later } from '../requests.ts';

/** Asks over a plain connection, and what was asked. */
async function openAsk(): Promise<{ readonly ask: QueryRequest; readonly asked: string[] }> {
  const asked: string[] = [];
  const plain = asking(await openClient());
  const ask: QueryRequest = (text, values) => {
    asked.push(text);
    return plain(text, values);
  };
  return { ask, asked };
}

const text = fc.string({ unit: 'binary' }).filter((one) => !one.includes('\0'));
const awkward = fc.stringMatching(/^['"\\$;{}, \-\n]*$/);

test('a text with a zero character is refused before it is sent', () => {
  expect(() => sqlLiteral('a\0b', 'text')).toThrow(
    'cannot look for a text with a zero character: none can be stored',
  );
});

withService('postgres', () => {
  for (const conforming of ['on', 'off']) {
    test(`any value arrives as it is, standard_conforming_strings ${conforming}`, async () => {
      const { ask } = await openAsk();
      await ask(`SET standard_conforming_strings = ${conforming}`);
      await ask('SET escape_string_warning = off');
      const check = async (one: string, many: string[], number: number): Promise<void> => {
        const list = sqlLiteral(textArray(many), 'text[]');
        const [row] = await indexOnlyQuery(
          ask,
          `SELECT ${sqlLiteral(one, 'text')}, array_to_json(${list})::text, ${sqlLiteral(number, 'int8')}`,
        );
        expect(row?.[0]).toBe(one);
        expect(JSON.parse(row?.[1] as string)).toEqual(many);
        expect(row?.[2]).toBe(number);
      };
      const any = fc.oneof(text, awkward);
      await fc.assert(fc.asyncProperty(any, fc.array(any), fc.maxSafeInteger(), check));
    });
  }

  test('its settings end with it, also where it fails', async () => {
    const { ask } = await openAsk();
    const settings = async () => [
      await ask('SHOW enable_seqscan'),
      await ask('SHOW enable_bitmapscan'),
      await ask('SHOW jit'),
    ];
    const before = await settings();
    expect(before).toContainEqual([['on']]);
    const inside = "SELECT current_setting('enable_seqscan'), current_setting('jit')";
    expect(await indexOnlyQuery(ask, inside)).toEqual([['off', 'off']]);
    expect(await settings()).toEqual(before);
    await expect(indexOnlyQuery(ask, 'SELECT 1 / 0')).rejects.toThrow('division by zero');
    expect(await settings()).toEqual(before);
  });

  // Regression: a claim in three rounds stayed locked where its process was cut off between them.
  test('a claim is one message: nothing stays locked between two', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const { ask, asked } = await openAsk();
    const claims = new Claims(namesOf(schema, ''), systemClock);
    await store.insert(sampleEntries(3, 'a'));
    const rows = await claims.claim(ask, claimRequest(store, { max: 2 }), false);
    expect(rows).toHaveLength(2);
    expect(asked).toHaveLength(1);
  });

  test('a crowd that came after a backlog was drained and cleaned up is not read as a whole', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const { ask, asked } = await openAsk();
    // The last time that the server looked, nothing was due.
    const waiting = { topic: 'wanted', state: 'deferred' as const, dueAt: later(1e9) };
    await store.insert(sampleEntries(3_000, 'waiting', waiting));
    await ask(`ANALYZE "${schema}".entries`);
    await ask(`TRUNCATE "${schema}".entries, "${schema}".contents`);
    const crowd = { topic: 'crowd', priority: 0, dueAt: later(-1_000) };
    for (let part = 0; part < 10; part += 1) {
      await store.insert(sampleEntries(2_000, `crowd${part}`, crowd));
    }
    await misjudge(await openClient(), schema);
    const topics = [
      { pattern: 'crowd', take: false },
      { pattern: '#', take: true },
    ];
    await store.insert([sampleEntry('one', { topic: 'wanted' })]);
    const claims = new Claims(namesOf(schema, ''), systemClock);
    const request = claimRequest(store, { topics, max: 1 });
    asked.length = 0;
    await ask('BEGIN');
    expect(await claims.claim(ask, request, false)).toHaveLength(1);
    await ask('ROLLBACK');
    const looks = asked.filter((one) => one.includes('WITH RECURSIVE'));
    expect(looks.length).toBeGreaterThan(0);
    const planOf = async (one: string): Promise<string> =>
      (await ask(one.replace('WITH RECURSIVE', 'EXPLAIN WITH RECURSIVE'))).join('\n');
    const reads = /(?:Seq|Bitmap Heap) Scan on entries/;
    const unguarded: string[] = [];
    for (const one of looks) {
      expect(await planOf(one)).not.toMatch(reads);
      unguarded.push(await planOf(one.slice(one.indexOf('WITH RECURSIVE'))));
    }
    // So there was something to forbid.
    expect(unguarded.join('\n')).toMatch(reads);
  });
});
