/** transaction — begin, do, commit; and relays that are told afterwards. */

import pg from 'pg';
import { expect, expectTypeOf, test } from 'vitest';
import type { Handler } from 'respool';
import { createOutbox, transaction, type TxPool } from 'respool/outbox';
import { namesOf } from '../../src/stores/postgres/options.ts';
import { withService } from '../services/index.ts';
import { atEnd, openOutbox, openPool, ordersIn, serverUrl } from './core-setup.ts';
import { systemClock } from '../time.ts';

/** Hears what is told on the channel of an outbox. */
async function hear(schema: string): Promise<string[]> {
  const client = new pg.Client({ connectionString: await serverUrl() });
  await client.connect();
  atEnd(() => client.end());
  const heard: string[] = [];
  client.on('notification', ({ payload }) => heard.push(payload ?? ''));
  await client.query(`LISTEN "${namesOf(schema, '').channel}"`);
  return heard;
}

withService('postgres', () => {
  test('what was done is committed, and its value given back', async () => {
    const { pool, schema } = await openOutbox();
    const value = await transaction(pool, async (tx) => {
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
      return 'done';
    });
    expect(value).toBe('done');
    expect(await ordersIn(pool, schema)).toEqual([1]);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  test('what throws is rolled back, and its connection used again', async () => {
    const { pool, schema } = await openOutbox();
    const before = pool.totalCount;
    for (let n = 0; n < 3; n += 1) {
      const failing = transaction(pool, async (tx) => {
        await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
        throw new Error('no stock');
      });
      await expect(failing).rejects.toThrow('no stock');
    }
    expect(await ordersIn(pool, schema)).toEqual([]);
    expect(pool.totalCount).toBe(before);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  test('a failed statement whose error was caught does not pass for a commit', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const working = transaction(pool, async (tx) => {
      await outbox.emit(tx, 'a');
      await tx.query(`INSERT INTO "${schema}".nowhere VALUES (1)`).catch(() => undefined);
    });
    await expect(working).rejects.toThrow('was rolled back at its commit');
    expect(await entries()).toEqual([]);
  });

  test('a transaction that is ended inside its function does not pass for a commit', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    // As versions of pg do that do not tell of transactions.
    const silent = {
      async connect() {
        const client = await pool.connect();
        return new Proxy(client, {
          get(target, name) {
            const value: unknown = Reflect.get(target, name);
            if (name === 'getTransactionStatus') return undefined;
            return typeof value === 'function' ? value.bind(target) : value;
          },
        });
      },
    };
    for (const from of [pool, silent]) {
      for (const end of ['ROLLBACK', ' rollback work;', '/* done */ COMMIT', 'SELECT 1; END']) {
        const working = transaction(from, async (tx) => {
          await tx.query(end);
          return 'fine';
        });
        await expect(working).rejects.toThrow('ended inside its function');
      }
      // Neither of these ends it.
      await transaction(from, async (tx) => {
        await tx.query('SAVEPOINT a');
        await tx.query('ROLLBACK TO SAVEPOINT a');
        await tx.query('ROLLBACK WORK TO a');
        await tx.query('SELECT CASE WHEN true THEN 1\nEND');
        await outbox.emit(tx, 'kept');
      });
    }
    const working = outbox.transaction(async (tx) => {
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
      await tx.query('COMMIT');
      await outbox.emit(tx, 'lost');
    });
    await expect(working).rejects.toThrow('no transaction is open');
    expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['kept', 'kept']);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  test('what is not waited for and ends it is noticed as well', async () => {
    const { pool } = await openOutbox();
    const working = transaction(pool, async (tx) => {
      void tx.query('ROLLBACK');
    });
    await expect(working).rejects.toThrow('ended inside its function');
  });

  test('a transaction does with its connection all that one can', async () => {
    const { pool, schema } = await openOutbox();
    const rows = await transaction(pool, async (tx) => {
      const notices: string[] = [];
      tx.on('notice', ({ message }) => notices.push(message ?? ''));
      await tx.query("DO $$ BEGIN RAISE NOTICE 'heard'; END $$");
      tx.removeAllListeners('notice');
      expect(notices).toEqual(['heard']);
      expect(tx.escapeIdentifier('a"b')).toBe('"a""b"');
      expect(tx).toBeInstanceOf(pg.Client);
      expect(tx.constructor.name).toBe('Client');
      await new Promise<void>((resolve, reject) => {
        const text = `INSERT INTO "${schema}".orders VALUES ($1)`;
        tx.query(text, [1], (error) => (error === null ? resolve() : reject(error)));
      });
      return (await tx.query({ text: 'SELECT $1::int AS n', values: [2], rowMode: 'array' })).rows;
    });
    expect(rows).toEqual([[2]]);
    expect(await ordersIn(pool, schema)).toEqual([1]);
  });

  test('a connection that is lost in the middle is an error and no crash', async () => {
    const { pool, schema } = await openOutbox();
    const working = transaction(pool, async (tx) => {
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
      const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      const lost = new Promise((resolve) => tx.once('error', resolve));
      await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
      await lost;
      await tx.query('SELECT 1');
    });
    await expect(working).rejects.toThrow(/terminat|connection/i);
    expect(await ordersIn(pool, schema)).toEqual([]);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  test('a client instead of a pool is refused', async () => {
    const pool = await openPool();
    const client = await pool.connect();
    atEnd(async () => client.release());
    const working = transaction(client as unknown as TxPool, () => 1);
    await expect(working).rejects.toThrow('the first argument is no pool');
  });

  test('the transaction of an outbox commits first and tells relays then', async () => {
    const { pool, schema, outbox, entries } = await openOutbox();
    const heard = await hear(schema);
    const { id } = await outbox.transaction(async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>();
      await tx.query(`INSERT INTO "${schema}".orders VALUES (1)`);
      return outbox.emit(tx, 'a');
    });
    await expect.poll(() => heard).toEqual(['outbox']);
    expect((await entries()).map(({ envelope }) => envelope.id)).toEqual([id]);
    expect(await ordersIn(pool, schema)).toEqual([1]);
  });

  test('a transaction that fails tells nobody, and an emit neither', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const heard = await hear(schema);
    const failing = outbox.transaction(async (tx) => {
      await outbox.emit(tx, 'a');
      throw new Error('no stock');
    });
    await expect(failing).rejects.toThrow('no stock');
    await transaction(pool, (tx) => outbox.emit(tx, 'a'));
    // What is told last is heard last: nothing came before it.
    await pool.query('SELECT pg_notify($1, $2)', [namesOf(schema, '').channel, 'the end']);
    await expect.poll(() => heard).toEqual(['the end']);
  });

  test('a relay with listenUrl hears of a commit in another process without looking', async () => {
    const { pool, schema, outbox: emitter } = await openOutbox();
    // Without timers nobody looks: only what is told is heard.
    const clock = { ...systemClock, after: () => () => undefined };
    const outbox = createOutbox({ pool, schema, clock, listenUrl: await serverUrl() });
    const { promise, resolve } = Promise.withResolvers<string>();
    const deliver: Handler = async (delivery) => resolve(await delivery.text());
    const relay = outbox.relay({ to: { deliver } });
    atEnd(async () => {
      await relay.stop();
      await outbox.close();
    });
    await relay.start();
    await emitter.transaction((tx) => emitter.emit(tx, 'a', 'told'));
    expect(await promise).toBe('told');
  });

  test('a relay with partitions keeps what it sent in the table for that', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const cleanUp = { partition: '1d', keep: '7d' };
    const relay = outbox.relay({ to: { deliver: () => undefined }, cleanUp });
    atEnd(() => relay.stop());
    await relay.start();
    const { id } = await outbox.transaction((tx) => outbox.emit(tx, 'order.new', 1));
    await expect
      .poll(async () => (await pool.query(`SELECT id, topic FROM "${schema}".sent`)).rows)
      .toEqual([{ id, topic: 'order.new' }]);
    expect(await outbox.spool.get(id)).toBeUndefined();
  });

  test('wake() tells relays of this outbox and of no other', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const other = createOutbox({ pool, schema, tables: 'b_' });
    atEnd(() => other.close());
    const heard = await hear(schema);
    await other.wake();
    await outbox.wake();
    await expect.poll(() => heard).toEqual(['outbox']);
  });

  test('many wakes at once are told as one or two', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const heard = await hear(schema);
    await Promise.all(Array.from({ length: 100 }, () => outbox.wake()));
    await Promise.all(Array.from({ length: 100 }, () => outbox.wake()));
    await pool.query('SELECT pg_notify($1, $2)', [namesOf(schema, '').channel, 'the end']);
    await expect.poll(() => heard.at(-1)).toBe('the end');
    expect(heard).toEqual(['outbox', 'outbox', 'the end']);
  });

  test('a wake that cannot be told fails nothing, and is logged', async () => {
    const warned: unknown[] = [];
    const silent = () => undefined;
    const logger = {
      debug: silent,
      info: silent,
      error: silent,
      warn: (fields: object, text: string) => warned.push([fields, text]),
    };
    const dead = new pg.Pool({ host: '127.0.0.1', port: 1, connectionTimeoutMillis: 500 });
    atEnd(() => dead.end());
    const outbox = createOutbox({ pool: dead, logger });
    await outbox.wake();
    expect(warned).toEqual([
      [
        { error: expect.stringContaining('ECONNREFUSED') },
        'relays could not be woken after an emit',
      ],
    ]);
    await outbox.close();
  });

  test('close() waits for what is being told, and leaves a pool of the user open', async () => {
    const { pool, schema, outbox } = await openOutbox();
    const heard = await hear(schema);
    await outbox.transaction((tx) => outbox.emit(tx, 'a'));
    await outbox.close();
    await expect.poll(() => heard).toEqual(['outbox']);
    expect((await pool.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
  });
});
