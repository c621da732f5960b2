/** together — an entry and its body in the same database go in the same transaction. */

import { type BodyStore, createSpool, type SpoolOptions } from 'respool';
import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { withService } from '../../services/index.ts';
import { faultyPool, loseAnswers } from './faulty-pool.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { entryChange, steppedStatus } from '../requests.ts';

const LARGE_BYTES = 600_000;

async function openBodies(schema: string): Promise<BodyStore> {
  const bodies = postgresBodies({ url: await serverUrl(), schema });
  await bodies.open();
  atEnd(() => bodies.close());
  return bodies;
}

async function* large(): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(LARGE_BYTES).fill(7);
}

/** Entries and bodies in one schema, and how many rows each table has. */
async function setup(ids: readonly string[]) {
  const pool = await faultyPool();
  const schema = ownSchema();
  const store = await openStore({ pool, schema });
  const bodies = await openBodies(schema);
  const client = await openClient();
  for (const id of ids) await bodies.put(id, large());
  const entries = ids.map((id) => sampleEntry(id, { isStored: true }));
  await store.insert(entries);
  const rows = (table: string) => countRows(client, schema, table);
  return { pool, store, bodies, client, schema, entries, rows };
}

async function countRows(
  client: Awaited<ReturnType<typeof openClient>>,
  schema: string,
  table: string,
): Promise<number> {
  const { rows } = await client.query(`SELECT count(*)::int AS n FROM "${schema}".${table}`);
  return Number(rows[0].n);
}

/** A spool whose bodies are never removed by themselves. */
async function spoolWithoutReaper(options: Partial<SpoolOptions> = {}) {
  const [url, schema] = [await serverUrl(), ownSchema()];
  const bodies = postgresBodies({ url, schema });
  const keeping = Object.assign(Object.create(bodies) as BodyStore, { remove: async () => {} });
  const spool = createSpool({ entries: postgres({ url, schema }), bodies: keeping, ...options });
  atEnd(() => spool.stop());
  const client = await openClient();
  return { spool, rows: (table: string) => countRows(client, schema, table) };
}

withService('postgres', () => {
  test.each([true, false])(
    'a removal (durable: %s) takes the body along in its own transaction',
    async (durable) => {
      const { store, client, schema, entries, rows } = await setup(['a', 'b']);
      await client.query(`
        CREATE TABLE "${schema}".seen (what text, tx bigint);
        CREATE FUNCTION "${schema}".note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO "${schema}".seen VALUES (TG_TABLE_NAME, txid_current()); RETURN NULL; END $$`);
      for (const table of ['entries', 'bodies', 'chunks']) {
        await client.query(`CREATE TRIGGER note AFTER DELETE ON "${schema}".${table}
          FOR EACH ROW EXECUTE FUNCTION "${schema}".note()`);
      }
      const [a] = entries as [(typeof entries)[0]];
      const removal = entryChange(a, 'remove', { bodyRef: 'a' });
      expect(await store.commit([removal], { durable })).toEqual(['done']);
      const { rows: seen } = await client.query(
        `SELECT array_agg(DISTINCT what ORDER BY what) AS what, count(DISTINCT tx)::int AS n
         FROM "${schema}".seen`,
      );
      expect(seen).toEqual([{ what: ['bodies', 'chunks', 'entries'], n: 1 }]);
      expect([await rows('bodies'), await rows('chunks')]).toEqual([1, 3]);
    },
  );

  test('a removal that is stale leaves the body', async () => {
    const { store, entries, rows } = await setup(['a', 'b']);
    const [a, b] = entries as [(typeof entries)[0], (typeof entries)[0]];
    const changes = [
      entryChange(a, 'remove', { bodyRef: 'a', revision: 9 }),
      entryChange(b, 'remove', { bodyRef: 'b' }),
    ];
    expect(await store.commit(changes)).toEqual(['stale', 'done']);
    expect([await rows('bodies'), await rows('chunks')]).toEqual([1, 3]);
  });

  test('a change whose envelope names its body no more takes it along', async () => {
    const { store, entries, rows } = await setup(['a', 'b']);
    for (const [at, entry] of entries.entries()) {
      const envelope = {
        ...entry.envelope,
        body: { ...entry.envelope.body, place: 'none' as const },
      };
      const parts = { envelope, bodyRef: entry.envelope.id, revision: at === 0 ? 1 : 9 };
      const change = entryChange(entry, steppedStatus(entry, { state: 'archived' }), parts);
      expect(await store.commit([change])).toEqual([at === 0 ? 'done' : 'stale']);
    }
    expect([await rows('entries'), await rows('bodies'), await rows('chunks')]).toEqual([2, 1, 3]);
  });

  test('what has no body elsewhere looks for none, and what has one looks once', async () => {
    const { pool, store, entries } = await setup(['a']);
    const plain = ['p', 'q'].map((id) => sampleEntry(id));
    await store.insert(plain);
    const texts: string[] = [];
    pool.plan = (text) => {
      texts.push(text);
      return 'none';
    };
    await store.commit(plain.map((entry) => entryChange(entry, 'remove')));
    expect(texts.join('')).not.toMatch(/"bodies"|"chunks"/);
    const [a] = entries as [(typeof entries)[0]];
    await store.commit([entryChange(a, 'remove', { bodyRef: 'elsewhere' })]);
    expect(texts.join('').match(/"bodies"|"chunks"/g)).toHaveLength(2);
  });

  test('a removal whose answer was lost has taken the body, and removing that again harms nobody', async () => {
    const { pool, store, bodies, entries, rows } = await setup(['a']);
    pool.plan = loseAnswers(/unwanted AS/, 1);
    const [a] = entries as [(typeof entries)[0]];
    expect(await store.commit([entryChange(a, 'remove', { bodyRef: 'a' })])).toEqual(['done']);
    expect([await rows('bodies'), await rows('chunks')]).toEqual([0, 0]);
    await bodies.remove(['a', 'a']);
    await expect(bodies.get('a')[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: 'body.missing',
    });
  });

  test('a ref that no text can hold is refused before it meets others', async () => {
    const { store, entries } = await setup(['a', 'b']);
    const [a, b] = entries as [(typeof entries)[0], (typeof entries)[0]];
    const wrong = store.commit([entryChange(a, 'remove', { bodyRef: 'a\0' })]);
    const right = store.commit([entryChange(b, 'remove', { bodyRef: 'b' })]);
    await expect(wrong).rejects.toMatchObject({ code: 'message.invalid' });
    expect(await right).toEqual(['done']);
  });

  test('a spool removes bodies with what it delivered, archived or was told to remove', async () => {
    const { spool, rows } = await spoolWithoutReaper();
    const body = Buffer.alloc(LARGE_BYTES, 'x');
    const { id } = await spool.enqueue({ topic: 'other', body });
    await spool.operator({ by: 'ops' }).remove([id], { hard: true });
    expect(await rows('bodies')).toBe(0);
    let delivered = 0;
    spool.handle('mail', async () => {
      delivered += 1;
    });
    await spool.start();
    await spool.enqueue({ topic: 'mail', body });
    // One whose id was chosen is remembered, without its body.
    await spool.enqueue({ topic: 'mail', body, id: 'own' });
    await expect.poll(() => delivered).toBe(2);
    await expect.poll(() => rows('chunks')).toBe(0);
    expect(await rows('bodies')).toBe(0);
    expect(await rows('entries')).toBe(1);
  });

  test('a caretaker that forgets an archived message removes its body with it', async () => {
    const { spool, rows } = await spoolWithoutReaper({
      retention: { delivered: { archive: '1ms' } },
    });
    let delivered = 0;
    spool.handle('#', async () => {
      delivered += 1;
    });
    await spool.start();
    await spool.enqueue({ topic: 'mail', body: Buffer.alloc(LARGE_BYTES, 'x') });
    await expect.poll(() => delivered).toBe(1);
    const forgotten = async () => {
      await spool.operator({ by: 'ops' }).cleanUp();
      return [await rows('entries'), await rows('bodies'), await rows('chunks')];
    };
    await expect.poll(forgotten).toEqual([0, 0, 0]);
  });
});
