/** schema — tables are made once, by whoever comes first, and never by a stranger's tables. */

import { expect, test } from 'vitest';
import { postgres, postgresBodies, postgresSchema } from 'respool/stores/postgres';
import { sampleEntry } from 'respool/testkit';
import { migrateSchema } from '../../../src/stores/postgres/schema.ts';
import { checkStoreOptions, namesOf } from '../../../src/stores/postgres/options.ts';
import { Server } from '../../../src/stores/postgres/connection.ts';
import { withService } from '../../services/index.ts';
import { atEnd, openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { systemClock } from '../../time.ts';

withService('postgres', () => {
  test('openers that race make the tables once', async () => {
    const [url, schema] = [await serverUrl(), ownSchema()];
    const stores = Array.from({ length: 6 }, (_, n) =>
      n % 2 === 0 ? postgres({ url, schema }) : postgresBodies({ url, schema }),
    );
    await Promise.all(stores.map((store) => store.open()));
    await Promise.all(stores.map((store) => store.close()));
    const store = await openStore({ schema });
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('the printed SQL makes what a store needs that may not make it itself', async () => {
    const client = await openClient();
    const schema = ownSchema();
    const url = await serverUrl();
    const careful = { url, schema, tables: 'x_', migrate: false };
    await expect(postgres(careful).open()).rejects.toMatchObject({ code: 'store.version' });
    await client.query(postgresSchema({ schema, tables: 'x_' }));
    const store = postgres(careful);
    await store.open();
    atEnd(() => store.close());
    expect(await store.insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('the SQL has defaults: schema "respool", plain names', () => {
    const sql = postgresSchema();
    expect(sql).toContain('CREATE SCHEMA IF NOT EXISTS "respool"');
    expect(sql).toContain('CREATE TABLE "respool"."entries"');
    expect(sql).toContain("SET LOCAL lock_timeout = '5s'");
    expect(sql).toContain("SET LOCAL idle_in_transaction_session_timeout = '60s'");
    expect(sql).toContain('pg_advisory_xact_lock');
    expect(postgresSchema({ schema: 's', tables: 't_' })).toContain('"s"."t_entries"');
  });

  test('tables of a newer Respool are refused', async () => {
    const schema = ownSchema();
    await (await openStore({ schema })).close();
    const client = await openClient();
    await client.query(`UPDATE "${schema}".meta SET value = 99 WHERE key = 'version'`);
    await expect(openStore({ schema })).rejects.toMatchObject({ code: 'store.version' });
  });

  test('tables of something else under our names are refused, and left as they are', async () => {
    const schema = ownSchema();
    const client = await openClient();
    await client.query(`CREATE SCHEMA "${schema}"; CREATE TABLE "${schema}".entries (mine int)`);
    await expect(openStore({ schema })).rejects.toMatchObject({ code: 'config.invalid' });
    expect((await client.query(`SELECT mine FROM "${schema}".entries`)).rows).toEqual([]);
  });

  test('a migration waits for a lock of somebody else only so long, and then starts again', async () => {
    const schema = ownSchema();
    const names = namesOf(schema, '');
    const client = await openClient();
    await client.query('BEGIN');
    await client.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [names.lockKey]);
    const server = new Server(
      checkStoreOptions('the store', { url: await serverUrl() }),
      systemClock,
    );
    await server.open();
    atEnd(() => server.close());
    const failures: unknown[] = [];
    const migrating = server.run('open the store', async (ask) => {
      // Freed when it has given up waiting twice: the third try gets through.
      if (failures.length === 2) await client.query('COMMIT');
      try {
        await migrateSchema(ask, names, true, { lockWait: '50ms' });
      } catch (error) {
        failures.push(Reflect.get(error as Error, 'code'));
        throw error;
      }
    });
    await migrating;
    expect(failures).toEqual(['55P03', '55P03']);
    expect(await (await openStore({ schema })).insert([sampleEntry('a')])).toEqual(['stored']);
  });

  test('a store that opens waits five seconds for a lock, no longer', async () => {
    const asked: string[] = [];
    const values: unknown[] = [];
    const ask = async (text: string, given: readonly unknown[] = []) => {
      asked.push(text);
      if (text.includes('lock_timeout')) values.push(...given);
      return text.includes('to_regclass') ? [[false, false]] : [];
    };
    await migrateSchema(ask, namesOf('s', ''), true);
    const at = (word: string) => asked.findIndex((text) => text.includes(word));
    expect(values).toEqual(['5s']);
    expect(at('lock_timeout')).toBeLessThan(at('pg_advisory_xact_lock'));
    expect(at('pg_advisory_xact_lock')).toBeLessThan(at('CREATE'));
  });

  test.each(['entries', 'contents', 'receipts', 'bodies', 'chunks'])(
    'the busy table %s is cleaned up early and without long pauses',
    async (table) => {
      const schema = ownSchema();
      await openStore({ schema });
      const client = await openClient();
      const sql = 'SELECT reloptions FROM pg_class WHERE oid = $1::regclass';
      const options = (await client.query(sql, [`"${schema}".${table}`])).rows[0].reloptions;
      expect(options).toEqual(
        expect.arrayContaining([
          'autovacuum_vacuum_scale_factor=0.01',
          'autovacuum_vacuum_threshold=1000',
          'autovacuum_vacuum_cost_delay=1',
        ]),
      );
      // What is updated in place needs room on its page.
      const isUpdated = table === 'entries' || table === 'bodies';
      expect(options.includes('fillfactor=80')).toBe(isUpdated);
    },
  );

  test('what was inserted stays when a store is opened again', async () => {
    const schema = ownSchema();
    const first = await openStore({ schema });
    await first.insert([sampleEntry('a')]);
    await first.close();
    await first.open();
    expect((await first.get('a'))?.envelope.id).toBe('a');
  });
});
