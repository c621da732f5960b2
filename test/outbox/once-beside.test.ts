/** once-beside — a key and its work stay together, whatever runs or fails beside them. */

import pg from 'pg';
import { expect, test } from 'vitest';
import { type AnyTx, migrateInbox, once, transaction } from 'respool/outbox';
import { withService } from '../services/index.ts';
import { atEnd, openOutbox, openPool, ordersIn, ownSchema, serverUrl } from './core-setup.ts';
import { KINDS, turns } from './libraries-setup.ts';

interface Bundle {
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly order: (tx: pg.PoolClient, number: number) => Promise<number>;
  readonly orders: () => Promise<number[]>;
  readonly keys: () => Promise<string[]>;
}

async function setup(): Promise<Bundle> {
  const { pool, schema } = await openOutbox();
  return {
    pool,
    schema,
    async order(tx, number) {
      await tx.query(`INSERT INTO "${schema}".orders VALUES ($1)`, [number]);
      return number;
    },
    orders: () => ordersIn(pool, schema),
    keys: async () => {
      const text = `SELECT key FROM "${schema}".inbox ORDER BY key`;
      return (await pool.query<{ key: string }>(text)).rows.map(({ key }) => key);
    },
  };
}

const DONE = { done: true, value: expect.anything() };

withService('postgres', () => {
  test('of several at once in one transaction, one that fails takes nothing of others', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    const results = await transaction(pool, (tx) =>
      Promise.allSettled(
        [1, 2, 3].map((number) =>
          once(
            tx,
            `k${number}`,
            async () => {
              await order(tx, number);
              await turns(2);
              if (number === 2) throw new Error('no stock');
              return number;
            },
            { schema },
          ),
        ),
      ),
    );
    expect(results).toEqual([
      { status: 'fulfilled', value: { done: true, value: 1 } },
      { status: 'rejected', reason: new Error('no stock') },
      { status: 'fulfilled', value: { done: true, value: 3 } },
    ]);
    expect(await orders()).toEqual([1, 3]);
    expect(await keys()).toEqual(['k1', 'k3']);
  });

  test('one inside another is a part of it, also beside others and not waited for', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    await transaction(pool, async (tx) => {
      const inner = (number: number) =>
        once(
          tx,
          `inner${number}`,
          async () => {
            await order(tx, number);
            if (number === 2) throw new Error('no stock');
            return number;
          },
          { schema },
        );
      const outer = async () => {
        expect(await inner(1)).toEqual(DONE);
        await expect(inner(2)).rejects.toThrow('no stock');
        void inner(3);
        return order(tx, 9);
      };
      const failing = async () => {
        await inner(4);
        throw new Error('all of it');
      };
      const [first, second] = await Promise.allSettled([
        once(tx, 'outer', outer, { schema }),
        once(tx, 'failing', failing, { schema }),
      ]);
      expect(first).toMatchObject({ status: 'fulfilled' });
      expect(second).toMatchObject({ status: 'rejected' });
    });
    expect(await orders()).toEqual([1, 3, 9]);
    expect(await keys()).toEqual(['inner1', 'inner3', 'outer']);
  });

  test('a key and its work that nobody waited for are committed as a whole', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    await transaction(pool, (tx) => {
      const work = async () => {
        await order(tx, 1);
        await turns(5);
        return order(tx, 2);
      };
      void once(tx, 'k', work, { schema });
    });
    expect(await orders()).toEqual([1, 2]);
    expect(await keys()).toEqual(['k']);
  });

  test('beside something that fails, neither key nor work of transaction() stays', async () => {
    const { pool, schema, order, orders, keys } = await setup();
    for (const failsAfter of [0, 1, 2, 4, 8]) {
      const late: Promise<unknown>[] = [];
      const rolledBack = Promise.withResolvers<void>();
      const working = transaction(pool, async (tx) => {
        const work = async () => {
          await order(tx, 1);
          await rolledBack.promise;
          return order(tx, 2);
        };
        const doing = once(tx, 'k', work, { schema });
        late.push(doing.catch((error: Error) => error.message));
        const failing = turns(failsAfter).then(() => {
          throw new Error('no stock');
        });
        await Promise.all([doing, failing]);
      });
      await expect(working).rejects.toThrow('no stock');
      rolledBack.resolve();
      expect(await Promise.all(late)).toEqual([expect.stringContaining('transaction has ended')]);
      expect([await orders(), await keys()]).toEqual([[], []]);
    }
    expect(await once(pool, 'k', (tx) => order(tx, 1), { schema })).toEqual(DONE);
  });

  for (const [name, use] of Object.entries(KINDS)) {
    test(`no key is left behind by a transaction that was rolled back, with ${name}`, async () => {
      const { pool, schema, keys } = await setup();
      const run = await use();
      const late: Promise<unknown>[] = [];
      for (let at = 0; at < 9; at += 1) {
        const working = run(async (tx: AnyTx) => {
          late.push(
            turns(at)
              .then(() => once(tx, `k${at}`, () => turns(1), { schema }))
              .catch(() => undefined),
          );
          await turns(2);
          throw new Error('no stock');
        });
        await expect(working).rejects.toThrow('no stock');
      }
      await Promise.all(late);
      expect(await keys()).toEqual([]);
      const results = await Promise.all(
        [0, 4, 8].map((at) => once(pool, `k${at}`, () => 'done', { schema })),
      );
      expect(results).toEqual([DONE, DONE, DONE]);
    });
  }

  test('without a transaction it is refused, and the key stays free', async () => {
    const { pool, schema, keys } = await setup();
    const client = await pool.connect();
    atEnd(async () => client.release());
    let hasWorked = false;
    const work = () => {
      hasWorked = true;
    };
    await expect(once(client, 'k', work, { schema })).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(/cannot do "k" once: no transaction is open/),
    });
    const left: pg.PoolClient[] = [];
    await transaction(pool, (tx) => left.push(tx));
    const [over] = left as [pg.PoolClient];
    await expect(once(over, 'k', work, { schema })).rejects.toThrow('its transaction has ended');
    expect(hasWorked).toBe(false);
    expect(await keys()).toEqual([]);
  });

  for (const level of ['repeatable read', 'serializable']) {
    test(`of many at once one has its effect where transactions are ${level}`, async () => {
      const schema = ownSchema();
      await migrateInbox(await openPool(), { schema });
      const options = `-c default_transaction_isolation=${level.replace(' ', '\\ ')}`;
      const pool = new pg.Pool({ connectionString: await serverUrl(), max: 8, options });
      atEnd(() => pool.end());
      const levels: unknown[] = [];
      const work = async (tx: pg.PoolClient) => {
        levels.push((await tx.query('SHOW transaction_isolation')).rows[0]);
        await turns(20);
        if (levels.length === 1) throw new Error('no stock');
        return 'done';
      };
      const results = await Promise.allSettled(
        Array.from({ length: 8 }, () => once(pool, 'k', work, { schema })),
      );
      const told = results.map((result) =>
        result.status === 'fulfilled' ? result.value : 'failed',
      );
      expect(told.filter((one) => one === 'failed')).toHaveLength(1);
      expect(told.filter((one) => one !== 'failed' && one.done)).toHaveLength(1);
      // The work has the isolation that the user wants it to have.
      expect(levels).toEqual([level, level].map((name) => ({ transaction_isolation: name })));
    });
  }
});
