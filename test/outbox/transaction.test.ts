/** transaction — begin, do, commit; and relays that are told afterwards. */

import pg from 'pg';
import { expect, expectTypeOf, test } from 'vitest';
import { createOutbox, transaction, type TxPool } from '../../src/outbox/index.ts';
import type { Handler } from '../../src/ports/handler.ts';
import { namesOf } from '../../src/stores/postgres/names.ts';
import { systemClock } from '../../src/system/clock.ts';
import { withService } from '../services/index.ts';
import { atEnd, openOutbox, openPool, ordersIn, serverUrl } from './core-setup.ts';

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
      [{ error: expect.stringContaining('ECONNREFUSED') }, 'relays could not be told of an emit'],
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
