/** migrate — tables are made when it is said, under a lock, or by hand from the SQL. */

import type Sqlite from 'better-sqlite3';
import type pg from 'pg';
import { expect, test } from 'vitest';
import { createOutbox, once, transaction } from 'respool/outbox';
import { namesOf } from '../../src/stores/postgres/options.ts';
import { migrationSql, STEPS } from '../../src/stores/postgres/schema.ts';
import { withService } from '../services/index.ts';
import { atEnd, openDatabase, openPool, ownSchema } from './core-setup.ts';

async function tablesIn(pool: pg.Pool, schema: string): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT table_name AS name FROM information_schema.tables
    WHERE table_schema = $1 ORDER BY table_name COLLATE "C"`,
    [schema],
  );
  return rows.map(({ name }) => name);
}

withService('postgres', () => {
  test('nothing makes tables but migrate()', async () => {
    const schema = ownSchema();
    const pool = await openPool();
    const outbox = createOutbox({ pool, schema });
    await transaction(pool, (tx) => outbox.emit(tx, 'a')).catch(() => undefined);
    await outbox.spool.count().catch(() => undefined);
    const relay = outbox.relay({ to: { deliver: () => undefined } });
    await expect(relay.start()).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringMatching(/cannot open the outbox in schema .*run outbox\.migrate\(\)/),
    });
    await relay.stop();
    await outbox.close();
    expect(await tablesIn(pool, schema)).toEqual([]);
  });

  test('many processes may migrate at once, and again later', async () => {
    const schema = ownSchema();
    const pool = await openPool();
    const outboxes = Array.from({ length: 4 }, () => createOutbox({ pool, schema }));
    await Promise.all(outboxes.map((outbox) => outbox.migrate()));
    await outboxes[0]?.migrate();
    expect(await tablesIn(pool, schema)).toEqual(expect.arrayContaining(['entries', 'inbox']));
  });

  test('the SQL makes by hand what migrate() makes', async () => {
    const pool = await openPool();
    const byHand = ownSchema();
    const made = ownSchema();
    await pool.query(createOutbox({ pool, schema: byHand, tables: 'x_' }).sql());
    const outbox = createOutbox({ pool, schema: made, tables: 'x_' });
    await outbox.migrate();
    const tables = await tablesIn(pool, made);
    expect(tables).toEqual(expect.arrayContaining(['x_entries', 'x_inbox']));
    expect(await tablesIn(pool, byHand)).toEqual(tables);
    const other = createOutbox({ pool, schema: byHand, tables: 'x_' });
    atEnd(() => other.close());
    const { id } = await transaction(pool, (tx) => other.emit(tx, 'a'));
    expect((await other.spool.get(id))?.envelope.topic).toBe('a');
    const place = { schema: byHand, table: 'x_inbox' };
    expect((await once(pool, 'k', () => 1, place)).done).toBe(true);
  });

  test('the SQL from a version brings tables of that version up to date by hand', async () => {
    const pool = await openPool();
    const schema = ownSchema();
    const names = namesOf(schema, '');
    await pool.query(`CREATE SCHEMA "${schema}"; ${migrationSql(names, 0, STEPS.slice(0, 1))}`);
    const outbox = createOutbox({ pool, schema });
    atEnd(() => outbox.close());
    const early = transaction(pool, (tx) => outbox.emit(tx, 'a', 1, { key: 'k' }));
    await expect(early).rejects.toMatchObject({ code: 'store.version' });
    const sql = outbox.sql({ from: 1 });
    // Whoever runs it may have no right to make a schema.
    expect(sql).not.toContain('CREATE SCHEMA');
    await pool.query(sql);
    const { id } = await transaction(pool, (tx) => outbox.emit(tx, 'a'));
    expect((await outbox.spool.get(id))?.envelope.topic).toBe('a');
    expect((await once(pool, 'k', () => 1, { schema })).done).toBe(true);
    // On others it changes nothing.
    const client = await pool.connect();
    await expect(client.query(outbox.sql({ from: 1 }))).rejects.toThrow('already exists');
    await client.query('ROLLBACK');
    client.release();
    expect((await outbox.spool.get(id))?.envelope.topic).toBe('a');
  });

  test('the outbox is in a schema of its own, unless said otherwise', async () => {
    const sql = createOutbox({ url: 'postgres://localhost/shop' }).sql();
    expect(sql).toContain('CREATE SCHEMA IF NOT EXISTS "outbox"');
    expect(sql).toContain('"outbox"."entries"');
    expect(sql).toContain('"outbox"."inbox"');
    expect(sql.match(/pg_advisory_xact_lock/g)).toHaveLength(2);
  });

  test('once everything is there, migrate() needs no right to create', async () => {
    const schema = ownSchema();
    const pool = await openPool();
    await createOutbox({ pool, schema }).migrate();
    await pool.query(`CREATE ROLE "${schema}" LOGIN PASSWORD 'only-here'`);
    atEnd(() => pool.query(`DROP OWNED BY "${schema}"; DROP ROLE "${schema}"`));
    await pool.query(`GRANT USAGE ON SCHEMA "${schema}" TO "${schema}";
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "${schema}" TO "${schema}";
      GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA "${schema}" TO "${schema}"`);
    const restricted = await openPool({ user: schema, password: 'only-here' });
    const outbox = createOutbox({ pool: restricted, schema });
    await outbox.migrate();
    const { id } = await outbox.transaction((tx) => outbox.emit(tx, 'a'));
    expect((await outbox.spool.get(id))?.envelope.topic).toBe('a');
    await outbox.close();
  });
});

test('in SQLite, too, the SQL makes what migrate() makes', async () => {
  const tablesOf = (database: Sqlite.Database): unknown[] =>
    database
      .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
      .pluck()
      .all();
  const made = await openDatabase();
  const outbox = createOutbox({ database: made });
  outbox.migrate();
  outbox.migrate();
  expect(made.pragma('journal_mode', { simple: true })).toBe('wal');
  const byHand = await openDatabase();
  byHand.exec(createOutbox({ database: byHand }).sql());
  expect(tablesOf(byHand)).toEqual(tablesOf(made));
  expect(tablesOf(made)).toEqual(
    expect.arrayContaining(['orders', 'outbox_entries', 'outbox_inbox']),
  );
  expect(once(byHand, 'k', () => 1).done).toBe(true);
});

test('in SQLite, too, the SQL from a version brings tables of that version up to date', async () => {
  const database = await openDatabase();
  const outbox = createOutbox({ database });
  outbox.migrate();
  // What a program of the first version would have left.
  database.exec(`DROP TABLE outbox_inbox;
    DROP INDEX outbox_entries_by_key;
    ALTER TABLE outbox_entries DROP COLUMN order_key;
    ALTER TABLE outbox_entries DROP COLUMN behind;
    UPDATE outbox_meta SET value = 1 WHERE key = 'version'`);
  expect(() => outbox.transaction(() => outbox.emit(database, 'a'))).toThrow(/outbox\.migrate/);
  database.exec(outbox.sql({ from: 1 }));
  const { id } = outbox.transaction(() => outbox.emit(database, 'a', 1, { key: 'k' }));
  expect((await outbox.spool.get(id))?.envelope.orderKey).toBe('k');
  expect(once(database, 'k', () => 1).done).toBe(true);
  await outbox.close();
});

test('SQL is there from versions that were there', async () => {
  const outboxes = [
    createOutbox({ database: await openDatabase() }),
    createOutbox({ url: 'postgres://localhost/shop' }),
  ];
  for (const outbox of outboxes) {
    expect(outbox.sql({})).toBe(outbox.sql({ from: 0 }));
    for (const from of [-1, 2, 1.5, '1' as never]) {
      expect(() => outbox.sql({ from })).toThrow('as "from": allowed is a whole number 0 to 1');
    }
    expect(() => outbox.sql({ version: 1 } as never)).toThrow('no option "version" of outbox.sql');
  }
});

test('in SQLite a migration within a transaction of the user comes and goes with it', async () => {
  const database = await openDatabase();
  const outbox = createOutbox({ database });
  const undone = database.transaction(() => {
    outbox.migrate();
    outbox.emit(database, 'a');
    throw new Error('undone');
  });
  expect(undone).toThrow('undone');
  expect(() => outbox.transaction(() => outbox.emit(database, 'a'))).toThrow(/outbox\.migrate/);
});
