/** libraries — emit and once in transactions of Kysely, Drizzle, Knex and Prisma. */

import type { drizzle } from 'drizzle-orm/node-postgres';
import type { Transaction as KyselyTransaction } from 'kysely';
import type { Knex } from 'knex';
import pg from 'pg';
import { expect, test } from 'vitest';
import { type AnyTx, once, type Outbox, transaction } from 'respool/outbox';
import { withService } from '../services/index.ts';
import { atEnd, bodyOf, openOutbox, ordersIn, serverUrl } from './core-setup.ts';
import { LIBRARIES } from './libraries-setup.ts';

withService('postgres', () => {
  for (const [name, use] of Object.entries(LIBRARIES)) {
    test(`a message goes with a transaction of ${name}, as it is and through its function`, async () => {
      const { pool, schema, outbox, entries } = await openOutbox();
      const { transaction, run } = await use();
      await transaction(async (tx, wrapped) => {
        await run(tx, `INSERT INTO "${schema}".orders VALUES (1)`);
        await outbox.emit(tx, 'plain', Buffer.from([0, 255, 1]), { dedupeKey: "it's $1 ?" });
        expect(await outbox.emit(tx, 'again', 1, { dedupeKey: "it's $1 ?" })).toMatchObject({
          duplicate: true,
        });
        await outbox.emitMany(wrapped, [
          { routingKey: 'wrapped', body: 'ä', headers: { 'x-name': 'Zoë ? :a $2' } },
          { routingKey: 'later', eta: '1h', key: 'customer' },
        ]);
      });
      const [plain, wrapped, later] = await entries();
      expect(await bodyOf(outbox, plain?.envelope.id ?? '')).toEqual(Buffer.from([0, 255, 1]));
      expect(plain?.envelope).toMatchObject({ topic: 'plain', dedupeKey: "it's $1 ?" });
      expect(wrapped?.envelope.headers['x-name']).toBe('Zoë ? :a $2');
      expect((await bodyOf(outbox, wrapped?.envelope.id ?? '')).toString()).toBe('ä');
      expect(later?.status.state).toBe('deferred');
      expect(later?.envelope.orderKey).toBe('customer');
      expect(await ordersIn(pool, schema)).toEqual([1]);
    });

    test(`nothing stays when a transaction of ${name} is rolled back`, async () => {
      const { pool, schema, outbox, entries } = await openOutbox();
      const { transaction, run } = await use();
      const failing = transaction(async (tx, wrapped) => {
        await run(tx, `INSERT INTO "${schema}".orders VALUES (1)`);
        await outbox.emit(tx, 'a', 1);
        await outbox.emit(wrapped, 'a', 1);
        throw new Error('no stock');
      });
      await expect(failing).rejects.toThrow('no stock');
      expect(await entries()).toEqual([]);
      expect(await ordersIn(pool, schema)).toEqual([]);
    });

    test(`once works in a transaction of ${name}`, async () => {
      const { pool, schema } = await openOutbox();
      const { transaction, run } = await use();
      const results: unknown[] = [];
      for (let n = 0; n < 2; n += 1) {
        await transaction(async (tx) => {
          const write = async (own: AnyTx) => {
            await run(own, `INSERT INTO "${schema}".orders VALUES (1)`);
            return 'written';
          };
          results.push(await once(tx, 'k', write, { schema }));
        });
      }
      expect(results).toEqual([{ done: true, value: 'written' }, { done: false }]);
      expect(await ordersIn(pool, schema)).toEqual([1]);
    });

    test(`${name} itself is refused: it is in no transaction`, async () => {
      const { outbox, entries } = await openOutbox();
      const { root, refusal } = await use();
      const emitting = outbox.emit(root as AnyTx, 'a', 1);
      await expect(emitting).rejects.toMatchObject({ code: 'config.invalid' });
      await expect(emitting).rejects.toThrow(refusal);
      await expect(once(root as AnyTx, 'k', () => 1)).rejects.toThrow(refusal);
      expect(await entries()).toEqual([]);
    });
  }

  test('tables that are missing are told through every library', async () => {
    const { pool, schema, outbox } = await openOutbox({}, { spoils: true });
    await pool.query(`DROP TABLE "${schema}".entries CASCADE`);
    for (const use of Object.values(LIBRARIES)) {
      const { transaction } = await use();
      const emitting = transaction(async (tx) => void (await outbox.emit(tx, 'a')));
      await expect(emitting).rejects.toMatchObject({ code: 'store.version' });
    }
  });

  test('a client of pg on which a transaction was begun is one, out of a pool or alone', async () => {
    const { outbox, entries } = await openOutbox();
    const client = new pg.Client({ connectionString: await serverUrl() });
    await client.connect();
    atEnd(() => client.end());
    await client.query('BEGIN');
    await outbox.emit(client, 'a');
    await client.query('COMMIT');
    expect(await entries()).toHaveLength(1);
  });

  test('a library of the user needs one method, and may answer with rows alone', async () => {
    const { pool, outbox, entries } = await openOutbox();
    await transaction(pool, async (client) => {
      const query = async (text: string, values: unknown[]) =>
        (await client.query<Record<string, unknown>>(text, values)).rows;
      const tx = { query } as unknown as AnyTx;
      await outbox.emit(tx, 'a', 1, { dedupeKey: 'k' });
      expect((await outbox.emit(tx, 'a', 1, { dedupeKey: 'k' })).duplicate).toBe(true);
    });
    expect(await entries()).toHaveLength(1);
  });

  test('a pool is refused: its query would be outside the transaction', async () => {
    const { pool, outbox, entries } = await openOutbox();
    await expect(outbox.emit(pool, 'a')).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(/cannot emit "a": this is a pool.*transaction\(pool/),
    });
    await expect(outbox.emitMany(pool, [{ routingKey: 'a' }])).rejects.toThrow('this is a pool');
    expect(await entries()).toEqual([]);
  });

  test('what is no transaction at all is refused with what would be one', async () => {
    const { outbox } = await openOutbox();
    const others: readonly unknown[] = [undefined, null, 'tx', {}, { query: 1 }];
    for (const given of others) {
      await expect(outbox.emit(given as AnyTx, 'a')).rejects.toThrow('this is no transaction');
    }
    const silent = { query: () => Promise.resolve(undefined) } as unknown as AnyTx;
    await expect(outbox.emit(silent, 'a')).rejects.toThrow(
      'it answered a statement with undefined',
    );
    const database = { prepare() {}, exec() {}, pragma() {} };
    const emitting = outbox.emit(database as unknown as AnyTx, 'a');
    await expect(emitting).rejects.toThrow('make the outbox with { database }');
  });
});

test('transactions of all libraries fit the type of emit', () => {
  type Emit = Outbox['emit'];
  const accepts = (tx: Parameters<Emit>[0] | undefined): boolean => tx !== null;
  type DrizzleTransaction = Parameters<Parameters<ReturnType<typeof drizzle>['transaction']>[0]>[0];
  const none = undefined as unknown;
  expect(accepts(none as pg.PoolClient)).toBe(true);
  expect(accepts(none as pg.Client)).toBe(true);
  expect(accepts(none as KyselyTransaction<{ a: { b: string } }>)).toBe(true);
  expect(accepts(none as Knex.Transaction)).toBe(true);
  expect(accepts(none as DrizzleTransaction)).toBe(true);
  // @ts-expect-error -- A number is none.
  expect(accepts(1)).toBe(true);
});
