/** once — an effect that happens once for each key, in PostgreSQL. */

import type pg from 'pg';
import { expect, expectTypeOf, test } from 'vitest';
import { migrateInbox, type Once, once, transaction } from 'respool/outbox';
import { deleteExpiredKeys, postgresTable } from '../../src/outbox/inbox.ts';
import { withService } from '../services/index.ts';
import { atEnd, openOutbox, openPool, ordersIn, ownSchema } from './core-setup.ts';

interface Bundle {
  readonly pool: pg.Pool;
  readonly schema: string;
  /** Writes an order; a second one with the same number fails. */
  readonly order: (number: number) => (tx: pg.PoolClient) => Promise<number>;
  readonly orders: () => Promise<number[]>;
  /** Lets keys be so much older than they are. */
  readonly age: (by: string) => Promise<unknown>;
  readonly keys: () => Promise<string[]>;
}

async function setup(): Promise<Bundle> {
  const schema = ownSchema();
  const pool = await openPool();
  await migrateInbox(pool, { schema });
  await pool.query(`CREATE TABLE "${schema}".orders (id int)`);
  return {
    pool,
    schema,
    order: (number) => async (tx) => {
      await tx.query(`INSERT INTO "${schema}".orders VALUES ($1)`, [number]);
      return number;
    },
    orders: () => ordersIn(pool, schema),
    age: (by) =>
      pool.query(`UPDATE "${schema}".inbox SET expires_at = expires_at - $1::interval`, [by]),
    keys: async () => {
      const { rows } = await pool.query<{ key: string }>(
        `SELECT key FROM "${schema}".inbox ORDER BY key`,
      );
      return rows.map(({ key }) => key);
    },
  };
}

withService('postgres', () => {
  test('a key is done once, with what its function returns', async () => {
    const { pool, schema, order, orders } = await setup();
    expect(await once(pool, 'k', order(1), { schema })).toEqual({ done: true, value: 1 });
    expect(await once(pool, 'k', order(2), { schema })).toEqual({ done: false });
    expect(await once(pool, 'other', order(3), { schema })).toEqual({ done: true, value: 3 });
    expect(await orders()).toEqual([1, 3]);
  });

  test('of many at once with one key, exactly one has its effect', async () => {
    const { pool, schema, order, orders } = await setup();
    const results = await Promise.all(
      Array.from({ length: 12 }, (_, at) => once(pool, 'k', order(at), { schema })),
    );
    expect(results.filter(({ done }) => done)).toHaveLength(1);
    expect(await orders()).toHaveLength(1);
  });

  test('a function that throws leaves nothing, and the key can be done again', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    const failing = once(
      pool,
      'k',
      async (tx) => {
        await order(1)(tx);
        throw new Error('no stock');
      },
      { schema },
    );
    await expect(failing).rejects.toThrow('no stock');
    expect([await orders(), await keys()]).toEqual([[], []]);
    expect(await once(pool, 'k', order(2), { schema })).toEqual({ done: true, value: 2 });
    expect(await orders()).toEqual([2]);
  });

  test('who waits for a key that is rolled back does it after all', async () => {
    const { pool, schema, order, orders } = await setup();
    const first = await pool.connect();
    await first.query('BEGIN');
    expect(await once(first, 'k', order(1), { schema })).toMatchObject({ done: true });
    const second = once(pool, 'k', order(2), { schema });
    await first.query('ROLLBACK');
    first.release();
    expect(await second).toEqual({ done: true, value: 2 });
    expect(await orders()).toEqual([2]);
  });

  test('in a transaction of the caller the effect comes and goes with it', async () => {
    const { pool, schema, order, orders } = await setup();
    const undone = transaction(pool, async (tx) => {
      await once(tx, 'k', order(1), { schema });
      throw new Error('something else');
    });
    await expect(undone).rejects.toThrow('something else');
    await transaction(pool, async (tx) => {
      expect(await once(tx, 'k', order(2), { schema })).toEqual({ done: true, value: 2 });
      expect(await once(tx, 'k', order(3), { schema })).toEqual({ done: false });
    });
    expect(await orders()).toEqual([2]);
  });

  test('an error that the caller catches leaves neither key nor half of the work', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    await transaction(pool, async (tx) => {
      await order(1)(tx);
      const failing = once(
        tx,
        'k',
        async () => {
          await order(2)(tx);
          // A statement that fails would end the whole transaction, but for the savepoint.
          await tx.query('SELECT 1 / 0');
        },
        { schema },
      );
      await expect(failing).rejects.toThrow('division by zero');
      await order(3)(tx);
    });
    expect(await orders()).toEqual([1, 3]);
    expect(await keys()).toEqual([]);
  });

  test('scopes do not see each other', async () => {
    const { pool, schema, order, orders } = await setup();
    for (const [at, scope] of ['', 'billing', 'mail'].entries()) {
      expect((await once(pool, 'k', order(at), { schema, scope })).done).toBe(true);
    }
    expect((await once(pool, 'k', order(9), { schema, scope: 'mail' })).done).toBe(false);
    expect(await orders()).toEqual([0, 1, 2]);
  });

  test('a key is kept for its ttl, 7 days unless said otherwise, and is new after that', async () => {
    const { pool, schema, order, age, orders } = await setup();
    await once(pool, 'week', order(1), { schema });
    await once(pool, 'hour', order(2), { schema, ttl: '1h' });
    await age('59 minutes');
    expect((await once(pool, 'hour', order(0), { schema, ttl: '1h' })).done).toBe(false);
    await age('2 minutes');
    expect((await once(pool, 'hour', order(3), { schema, ttl: '1h' })).done).toBe(true);
    await age('6 days 22 hours');
    expect((await once(pool, 'week', order(0), { schema })).done).toBe(false);
    await age('1 hour');
    expect((await once(pool, 'week', order(4), { schema })).done).toBe(true);
    expect(await orders()).toEqual([1, 2, 3, 4]);
  });

  test('of many at once with a key that is over, exactly one has its effect', async () => {
    const { pool, schema, order, age } = await setup();
    await once(pool, 'k', order(0), { schema, ttl: '1s' });
    await age('1 minute');
    const results = await Promise.all(
      Array.from({ length: 8 }, (_, at) => once(pool, 'k', order(at), { schema })),
    );
    expect(results.filter(({ done }) => done)).toHaveLength(1);
  });

  test('keys long over are forgotten by others, a few at a time, and by a caretaker', async () => {
    const { pool, schema, order, age, keys } = await setup();
    for (const key of ['a', 'b', 'c', 'd', 'e']) await once(pool, key, order(1), { schema });
    await age('7 days 2 hours');
    await once(pool, 'fresh', order(1), { schema });
    expect(await keys()).toHaveLength(4);
    const client = await pool.connect();
    atEnd(async () => client.release());
    expect(await deleteExpiredKeys(client, postgresTable({ schema }))).toBe(3);
    expect(await keys()).toEqual(['fresh']);
    expect(await deleteExpiredKeys(client, postgresTable({ schema }))).toBe(0);
  });

  test('a key that is over is not forgotten under one who just takes it', async () => {
    const { pool, schema, order, age, keys } = await setup();
    await once(pool, 'a', order(1), { schema });
    await age('8 days');
    expect((await once(pool, 'a', order(2), { schema })).done).toBe(true);
    expect((await once(pool, 'a', order(3), { schema })).done).toBe(false);
    expect(await keys()).toEqual(['a']);
  });

  test('a relay forgets keys that are long over, and goes on where there is no inbox', async () => {
    const { pool, schema, outbox } = await openOutbox({}, { spoils: true });
    await once(pool, 'old', () => 1, { schema });
    await once(pool, 'new', () => 1, { schema });
    const inbox = `"${schema}".inbox`;
    await pool.query(`UPDATE ${inbox} SET expires_at = now() - interval '1 day' WHERE key = 'old'`);
    const troubles: unknown[] = [];
    const begin = async (): Promise<void> => {
      const relay = outbox.relay({ to: { deliver: () => undefined } });
      relay.on('trouble', (trouble) => troubles.push(trouble));
      atEnd(() => relay.stop());
      await relay.start();
    };
    await begin();
    await expect
      .poll(async () => (await pool.query(`SELECT key FROM ${inbox}`)).rows)
      .toEqual([{ key: 'new' }]);
    await pool.query(`DROP TABLE ${inbox}`);
    await begin();
    const { id } = await outbox.transaction((tx) => outbox.emit(tx, 'a'));
    await expect.poll(() => outbox.spool.get(id)).toBeUndefined();
    expect(troubles).toEqual([]);
  });

  test('an empty key is refused, and says that foreign messages need one of their own', async () => {
    const { pool, schema, order, orders } = await setup();
    for (const key of ['', undefined, null]) {
      await expect(once(pool, key as string, order(1), { schema })).rejects.toMatchObject({
        code: 'message.invalid',
        message: expect.stringMatching(/the key is empty; a message of another system/),
      });
    }
    const refused: readonly (readonly [string, object, RegExp])[] = [
      ['x'.repeat(256), {}, /as key of once/],
      ['k', { scope: 'x'.repeat(256) }, /as scope of once/],
      ['k', { ttl: 'soon' }, /as "ttl"/],
      ['k', { ttl: 0 }, /as "ttl"/],
      ['k', { table: 'No Table' }, /"No Table" as "table"/],
      ['k', { schema: 'No Schema' }, /"No Schema" as "schema"/],
      ['k', { tll: '1d' }, /there is no option "tll" of once/],
    ];
    for (const [key, options, text] of refused) {
      await expect(once(pool, key, order(1), { schema, ...options })).rejects.toThrow(text);
    }
    expect(await orders()).toEqual([]);
  });

  test('keys may be in a table of another name', async () => {
    const { pool, schema, order, keys } = await setup();
    const place = { schema, table: 'mail_inbox' };
    await migrateInbox(pool, place);
    await migrateInbox(pool, place);
    expect((await once(pool, 'k', order(1), place)).done).toBe(true);
    expect((await once(pool, 'k', order(1), place)).done).toBe(false);
    expect(await keys()).toEqual([]);
  });

  test('without the table it says what to run', async () => {
    const { pool, order } = await setup();
    const place = { schema: ownSchema() };
    await expect(once(pool, 'k', order(1), place)).rejects.toMatchObject({
      code: 'store.version',
      message: expect.stringMatching(/cannot do "k" once: .*migrateInbox\(\)/),
    });
  });

  test('many may make the table at once, and the schema with it', async () => {
    const pool = await openPool();
    const schema = ownSchema();
    await Promise.all(Array.from({ length: 5 }, () => migrateInbox(pool, { schema })));
    expect((await once(pool, 'k', () => 'done', { schema })).done).toBe(true);
    const misspelt = { shema: 'x' } as object;
    await expect(migrateInbox(pool, misspelt)).rejects.toThrow('there is no option "shema"');
  });

  test('the function gets the client of the pool, with its own type', async () => {
    const { pool, schema } = await setup();
    const result = await once(
      pool,
      'k',
      async (tx) => {
        expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>();
        return (await tx.query<{ n: number }>('SELECT 1 AS n')).rows[0]?.n;
      },
      { schema },
    );
    expectTypeOf(result).toEqualTypeOf<Once<number | undefined>>();
    expect(result).toEqual({ done: true, value: 1 });
  });
});
