/** rights — what a role needs to emit, what a role needs to relay, and that it is no more. */

import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { postgres } from 'respool/stores/postgres';
import type { Entry } from 'respool';
import { keyedEntry } from '../../../src/testkit/entry-cases/order.ts';
import { withService } from '../../services/index.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { claim, DELIVERY, entryChange, later, steppedStatus } from '../requests.ts';

/** All that an emit needs, a right a line. */
const EMIT = [
  'USAGE ON SCHEMA @',
  'INSERT ON @.entries',
  'SELECT (id, seq, dedupe_key) ON @.entries',
  'INSERT ON @.contents',
  'USAGE ON SEQUENCE @.entries_seq',
  'USAGE ON SEQUENCE @.turns',
];

const RELAY = [
  'USAGE ON SCHEMA @',
  'SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA @',
  'SELECT, USAGE ON ALL SEQUENCES IN SCHEMA @',
];

/** Tables that somebody else made, and a role with these rights on them. */
async function setup(rights: readonly string[]) {
  const schema = ownSchema();
  const owner = await openStore({ schema });
  const admin = await openClient();
  const role = `r_${schema.slice(2, 20)}`;
  await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD 'only-here'`);
  atEnd(() => admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  for (const right of rights) {
    await admin.query(`GRANT ${right.replaceAll('@', `"${schema}"`)} TO ${role}`);
  }
  const url = new URL(await serverUrl());
  url.username = role;
  url.password = 'only-here';
  return { schema, owner, admin, role, url: url.href };
}

/** Emits as this role, in a transaction of its own. */
async function emitAs(rights: readonly string[], entries: readonly Entry[]) {
  const { schema, owner, admin, role } = await setup(rights);
  const emitting = postgres({ url: await serverUrl(), schema });
  await admin.query(`BEGIN; SET LOCAL ROLE ${role}`);
  try {
    const results = await emitting.insertWithin(admin, entries);
    await admin.query('COMMIT');
    return { results, owner };
  } catch (error) {
    await admin.query('ROLLBACK');
    throw error;
  }
}

const ENTRIES = [sampleEntry('a', { dedupeKey: 'k' }), sampleEntry('b', { dedupeKey: 'k' })];

withService('postgres', () => {
  test('a role with few rights emits, with and without keys', async () => {
    const { results, owner } = await emitAs(EMIT, [...ENTRIES, keyedEntry('c')]);
    expect(results).toEqual(['stored', { duplicateOf: 'a' }, 'stored']);
    expect(await claim(owner)).toHaveLength(2);
  });

  test.each(EMIT)('without %s it cannot', async (right) => {
    const fewer = EMIT.filter((one) => one !== right);
    const emitted = emitAs(fewer, [...ENTRIES, keyedEntry('c')]);
    await expect(emitted).rejects.toMatchObject({ code: '42501' });
  });

  test('without order keys the sequence of turns is not needed', async () => {
    const { results } = await emitAs(
      EMIT.filter((right) => !right.includes('turns')),
      ENTRIES,
    );
    expect(results).toEqual(['stored', { duplicateOf: 'a' }]);
  });

  test('a role that may read and write all tables relays, and keeps what was sent', async () => {
    const { schema, owner, url } = await setup(RELAY);
    await owner.insert([keyedEntry('a'), keyedEntry('b'), sampleEntry('c')]);
    const warnings: unknown[] = [];
    const logger = {
      debug: () => undefined,
      info: () => undefined,
      warn: (fields: object) => void warnings.push(fields),
      error: () => undefined,
    };
    const sent = { partition: '1h', keep: '1d' };
    const store = await openStore({ url, schema, migrate: false, sent, logger });
    // It does not own the table of sent messages, so it makes no parts; the default one is there.
    expect(warnings).toEqual([expect.objectContaining({ store: 'postgres' })]);
    const delivered = (entry: Entry) =>
      entryChange(
        entry,
        steppedStatus(entry, { state: 'archived', ending: 'delivered', dueAt: later(9e9) }),
      );
    const first = await claim(store);
    expect(await store.commit(first.map(delivered))).toEqual(['done', 'done']);
    expect(await store.commit((await claim(store)).map(delivered))).toEqual(['done']);
    const { messages } = await store.sentPage({ limit: 9 });
    expect(messages.map(({ envelope }) => envelope.id)).toEqual(['a', 'b', 'c']);
    expect(await store.nextDueAt(DELIVERY)).toBe(null);
    await store.flush();
  });
});
