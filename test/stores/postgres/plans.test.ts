/** plans — a server that misjudges its tables does not make looks for work slow. */

import assert from 'node:assert/strict';
import { expect, test } from 'vitest';
import { Claims } from '../../../src/stores/postgres/claims.ts';
import { namesOf } from '../../../src/stores/postgres/names.ts';
import { Plans } from '../../../src/stores/postgres/plans.ts';
import type { Ask } from '../../../src/stores/postgres/server.ts';
import { systemClock } from '../../../src/system/clock.ts';
import { changeOf, claimRequest, later } from '../../../src/testkit/entry-cases/shared.ts';
import { sampleEntries, sampleEntry } from '../../../src/testkit/samples.ts';
import { withService } from '../../services/index.ts';
import { openClient, openStore, ownSchema } from './setup.ts';

/** Looks at a server that takes so long, and which of them were guarded; it may be far away. */
async function looksThatTake(spans: readonly number[], max: number, wayMs = 0): Promise<boolean[]> {
  let now = 0;
  const plans = new Plans({ ...systemClock, monotonic: () => now });
  const guarded: boolean[] = [];
  for (const span of spans) {
    const asked: string[] = [];
    const ask = (text: string): Promise<unknown[][]> => {
      asked.push(text);
      now += wayMs + (text === 'look' ? span : 0);
      return Promise.resolve([[text]]);
    };
    expect(await plans.look(ask, { way: 'any', max }, 'look', [])).toEqual([['look']]);
    guarded.push(asked.length === 3 && /seqscan = off/.test(asked[0] ?? ''));
  }
  return guarded;
}

test('after two looks that took long, 64 are guarded, and then the server is trusted again', async () => {
  const guarded = await looksThatTake([1, 5, 5, ...Array.from({ length: 66 }, () => 1)], 1);
  expect(guarded.flatMap((isGuarded, at) => (isGuarded ? [at] : []))).toEqual(
    Array.from({ length: 64 }, (_, at) => at + 3),
  );
});

test('one that took long between others tells nothing', async () => {
  expect(await looksThatTake([5, 1, 5, 1, 5, 1], 1)).not.toContain(true);
});

test('a look for many may take longer', async () => {
  expect(await looksThatTake([30, 30, 1], 500)).toEqual([false, false, false]);
  expect(await looksThatTake([40, 40, 1], 500)).toEqual([false, false, true]);
});

test('where it does not help, four are guarded and 64 are not', async () => {
  const guarded = await looksThatTake(
    Array.from({ length: 140 }, () => 5),
    1,
  );
  const at = guarded.flatMap((isGuarded, index) => (isGuarded ? [index] : []));
  expect(at).toEqual([2, 3, 4, 5, 71, 72, 73, 74]);
});

test('where it did not help, looks that become far worse are guarded all the same', async () => {
  const spans = [5, 5, 5, 5, 5, 5, 21, 21, 21];
  const guarded = await looksThatTake(spans, 1);
  expect(guarded.flatMap((isGuarded, at) => (isGuarded ? [at] : []))).toEqual([2, 3, 4, 5, 8]);
});

test('guarded looks that fail are 64, too', async () => {
  let now = 0;
  const plans = new Plans({ ...systemClock, monotonic: () => now });
  const slow: Ask = () => {
    now += 1_000;
    return Promise.resolve([]);
  };
  for (let look = 0; look < 2; look += 1)
    await plans.look(slow, { way: 'any', max: 1 }, 'look', []);
  let begins = 0;
  const failing: Ask = async (text) => {
    if (!text.startsWith('BEGIN')) throw new Error('no');
    begins += 1;
    return [];
  };
  for (let look = 0; look < 100; look += 1) {
    await plans.look(failing, { way: 'any', max: 1 }, 'look', []).catch(() => undefined);
  }
  expect(begins).toBe(64);
});

test('one of the first four that is quick shows that it helps', async () => {
  const rest = Array.from({ length: 60 }, () => 5);
  const guarded = await looksThatTake([5, 5, 5, 5, 5, 2, ...rest, 1], 1);
  expect(guarded).toEqual([false, false, ...Array.from({ length: 64 }, () => true), false]);
});

test('a server that is far away is tried, and then known to be', async () => {
  const ones = Array.from({ length: 80 }, () => 1);
  const guarded = await looksThatTake([...ones, 6, 6, 1], 1, 30);
  expect(guarded.filter((isGuarded) => isGuarded)).toHaveLength(5);
  // One that takes long over there is still seen.
  expect(guarded.at(-1)).toBe(true);
});

withService('postgres', () => {
  // Regression: what a cut-off process had taken in a guarded look was locked for a minute.
  test('what a guarded claim took whose process was cut off is there for others within 10 s', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const client = await openClient();
    let now = 0;
    const slow = { ...systemClock, monotonic: () => (now += 1_000) };
    const claims = new Claims(namesOf(schema, ''), slow);
    const cutOff = Promise.withResolvers<void>();
    const ask: Ask = async (text, values = []) => {
      if (text === 'COMMIT') {
        cutOff.resolve();
        return new Promise(() => undefined);
      }
      const query = { text, values: [...values], rowMode: 'array' as const };
      return (await client.query<unknown[]>(query)).rows;
    };
    // Nothing is there, and it took long, twice: the next look is guarded.
    for (let look = 0; look < 2; look += 1) {
      expect(await claims.claim(ask, claimRequest(store, { max: 1 }), false)).toEqual([]);
    }
    await store.insert([sampleEntry('a')]);
    void claims.claim(ask, claimRequest(store, { max: 1 }), false);
    await cutOff.promise;
    const cutOffAt = systemClock.monotonic();
    const take = async () => (await store.claim(claimRequest(store, { max: 1 })))[0]?.envelope.id;
    expect(await take()).toBeUndefined();
    await expect.poll(take).toBe('a');
    expect(systemClock.monotonic() - cutOffAt).toBeLessThan(10_000);
  });

  test('a crowd that came after a backlog was drained and cleaned up does not slow claims', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const client = await openClient();
    const tables = `'"${schema}".entries'::regclass`;
    // The last time that the server looked, nothing was due.
    const waiting = { topic: 'wanted', state: 'deferred' as const, dueAt: later(1e9) };
    await store.insert(sampleEntries(3_000, 'waiting', waiting));
    await client.query(`ANALYZE "${schema}".entries`);
    await client.query(`TRUNCATE "${schema}".entries, "${schema}".contents`);
    const crowd = { topic: 'crowd', priority: 0, dueAt: later(-1_000) };
    for (let part = 0; part < 10; part += 1) {
      await store.insert(sampleEntries(2_000, `crowd${part}`, crowd));
    }
    // What is left of the numbers of a table that was large, and empty when it was cleaned up.
    await client.query(
      `UPDATE pg_class SET relpages = 1000, reltuples = 10 WHERE oid = ${tables}
         OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = ${tables})`,
    );
    const topics = [
      { pattern: 'crowd', take: false },
      { pattern: '#', take: true },
    ];
    const spans: number[] = [];
    for (let round = 0; round < 20; round += 1) {
      await store.insert([sampleEntry(`one-${round}`, { topic: 'wanted' })]);
      const startedAt = systemClock.monotonic();
      const [taken] = await store.claim(claimRequest(store, { topics, max: 1 }));
      spans.push(systemClock.monotonic() - startedAt);
      expect(taken?.envelope.id).toBe(`one-${round}`);
      assert.ok(taken !== undefined);
      await store.commit([changeOf(taken, 'remove')]);
    }
    const [first = 0, ...rest] = spans;
    expect(Math.min(...rest)).toBeLessThan(first / 2);
  });
});
