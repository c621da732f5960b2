/** durability — which commits wait for the disk, what a crash of the server does, and who says so. */

import { expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { privateServer, withService } from '../../services/index.ts';
import { faultyPool } from './faulty-pool.ts';
import { atEnd, connect, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { claimRequest, entryChange, steppedStatus } from '../requests.ts';

/** Writes down at each commit that touched entries whether it waits for the disk. */
async function spy(schema: string) {
  const client = await openClient();
  await client.query(`
    CREATE TABLE "${schema}".commits (n serial, setting text);
    CREATE FUNCTION "${schema}".note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO "${schema}".commits (setting) VALUES (current_setting('synchronous_commit'));
      RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON "${schema}".entries
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "${schema}".note()`);
  return async (): Promise<unknown[]> => {
    const sql = `WITH gone AS (DELETE FROM "${schema}".commits RETURNING *)
      SELECT setting FROM gone ORDER BY n`;
    return (await client.query(sql)).rows.map(({ setting }) => setting);
  };
}

withService('postgres', () => {
  test('inserts and durable changes wait for the disk, claims and lazy changes do not', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const commits = await spy(schema);
    await store.insert(sampleEntries(2, 'm'));
    expect(await commits()).toEqual(['on', 'on']);
    const taken = await store.claim(claimRequest(store));
    expect(await commits()).toEqual(['off', 'off']);
    const [a, b] = taken as [(typeof taken)[0], (typeof taken)[0]];
    await store.commit([entryChange(a, steppedStatus(a, { state: 'hold' }))]);
    expect(await commits()).toEqual(['on']);
    await store.commit([entryChange(b, 'remove')], { durable: false });
    expect(await commits()).toEqual(['off']);
  });

  test('where the role commits without waiting, inserts and durable changes wait all the same', async () => {
    const schema = ownSchema();
    const url = `${await serverUrl()}?options=-c%20synchronous_commit%3Doff`;
    const store = await openStore({ url, schema });
    const commits = await spy(schema);
    const entry = sampleEntry('a');
    await store.insert([entry]);
    await store.commit([entryChange(entry, 'remove')]);
    expect(await commits()).toEqual(['on', 'on']);
    expect(store.traits.durability).toBe('power-loss');
  });

  test.each([
    ['fsync', ['on', 'off', 'on', '', 'UTF8']],
    ['full_page_writes', ['on', 'on', 'off', '', 'UTF8']],
  ])('a logger is warned by both stores when %s is off', async (setting, row) => {
    const warnings: string[] = [];
    const nothing = () => undefined;
    const warn = (fields: object, text: string) =>
      void warnings.push(`${JSON.stringify(fields)} ${text}`);
    const logger = { debug: nothing, info: nothing, warn, error: nothing };
    const schema = ownSchema();
    await openStore({ schema, logger });
    expect(warnings).toEqual([]);
    const pool = await faultyPool();
    pool.plan = (text) => (text.includes("current_setting('fsync')") ? { rows: [row] } : 'none');
    const store = await openStore({ pool, schema, logger });
    expect(store.traits.durability).toBe('server');
    const bodies = postgresBodies({ pool, schema, logger });
    await bodies.open();
    await bodies.close();
    expect(warnings).toHaveLength(2);
    for (const line of warnings) {
      expect(line).toContain(setting);
      expect(line).toContain(`"schema":"${schema}"`);
    }
  });

  test('the time of a store is its server’s', async () => {
    const store = await openStore();
    const client = await openClient();
    const sql = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now';
    const before = Number((await client.query(sql)).rows[0].now);
    const now = await store.now?.();
    const after = Number((await client.query(sql)).rows[0].now);
    expect(now).toBeGreaterThanOrEqual(before);
    expect(now).toBeLessThanOrEqual(after);
  });

  test('a lazy change is flushed by itself', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const entry = sampleEntry('a');
    await store.insert([entry]);
    await store.commit([entryChange(entry, 'remove')], { durable: false });
    const client = await openClient();
    const flushed = async () => {
      const sql = `SELECT 1 FROM pg_stat_activity
        WHERE application_name = 'respool' AND query LIKE '%emit_message%' AND query LIKE $1`;
      return (await client.query(sql, [`%"${schema}"%`])).rows.length;
    };
    await expect.poll(flushed).toBeGreaterThan(0);
  });

  test('a server says what it promises, and a flush after its crash does not', async () => {
    const server = await privateServer('postgres');
    atEnd(() => server.stop());
    const store = postgres({ url: server.url, retryFor: '30s' });
    expect(store.traits.durability).toBe('power-loss');
    await store.open();
    atEnd(() => store.close());
    const entries = sampleEntries(20, 'm');
    await store.insert(entries);
    await store.commit([entryChange(entries[0] as never, 'remove')], { durable: false });
    await store.flush();
    await store.commit([entryChange(entries[1] as never, 'remove')], { durable: false });
    await server.kill();
    await server.restart();
    await expect(store.flush()).rejects.toMatchObject({ code: 'store.unavailable' });
    // Said once; what is written from now on is of the server that is there now.
    await store.commit([entryChange(entries[2] as never, 'remove')], { durable: false });
    await store.flush();
    expect(await store.get('m-00000')).toBeUndefined();
    expect((await store.get('m-00019'))?.envelope.id).toBe('m-00019');
    await store.commit([entryChange(entries[3] as never, 'remove')], { durable: false });
    await server.kill();
    await server.restart();
    // Nobody asks whether that is on the disk: what was forgotten comes again.
    await store.close();
    const client = await connect(server.url);
    await client.query('ALTER SYSTEM SET full_page_writes = off');
    await client.query('SELECT pg_reload_conf()');
    await expect
      .poll(async () => (await client.query('SHOW full_page_writes')).rows[0].full_page_writes)
      .toBe('off');
    await client.end();
    await store.open();
    expect(store.traits.durability).toBe('server');
  });

  test('a server that comes back is used again at once, and nothing that was acknowledged is lost', async () => {
    const server = await privateServer('postgres');
    atEnd(() => server.stop());
    const store = postgres({ url: server.url, retryFor: '4m', statementTimeout: '20s' });
    await store.open();
    atEnd(() => store.close());
    const stored: string[] = [];
    const work = { isOver: false };
    const produce = async (by: number) => {
      for (let n = 0; !work.isOver; n += 1) {
        const id = `p${by}-${n}`;
        expect(await store.insert([sampleEntry(id)])).toEqual(['stored']);
        stored.push(id);
      }
    };
    const producing = [produce(1), produce(2), produce(3)];
    await expect.poll(() => stored.length).toBeGreaterThan(10);
    await server.kill();
    await server.restart();
    const before = stored.length;
    await expect.poll(() => stored.length).toBeGreaterThan(before + 10);
    work.isOver = true;
    await Promise.all(producing);
    const found = await store.tally('state', {});
    expect(found).toMatchObject([{ key: 'incoming', count: stored.length }]);
  });

  test('a server that stands still is given up, and used again when it moves', async () => {
    const server = await privateServer('postgres');
    atEnd(() => server.stop());
    const store = postgres({
      url: server.url,
      statementTimeout: '500ms',
      connectTimeout: '500ms',
      retryFor: '1s',
    });
    // n.b. On a busy machine a server that is well may take longer than its short limits.
    const opened = () => store.open().then(() => 'open', String);
    await expect.poll(opened).toBe('open');
    atEnd(() => store.close());
    await server.freeze();
    await expect(store.insert([sampleEntry('a')])).rejects.toMatchObject({
      code: 'store.unavailable',
    });
    await server.thaw();
    await expect
      .poll(() =>
        store.get('b').then(
          () => 'answered',
          () => 'not yet',
        ),
      )
      .toBe('answered');
    const insert = async () => {
      const [result] = await store.insert([sampleEntry('a')]).catch(() => ['not yet']);
      return result === 'stored' || typeof result === 'object';
    };
    await expect.poll(insert).toBe(true);
    const idOf = async () => (await store.get('a').catch(() => undefined))?.envelope.id;
    await expect.poll(idOf).toBe('a');
  });
});
