/** rolled-back — nothing of a transaction that was rolled back is ever sent, however it was left. */

import type pg from 'pg';
import { expect, test } from 'vitest';
import { type AnyTx, createOutbox, type Outbox, transaction } from 'respool/outbox';
import { withService } from '../services/index.ts';
import { atEnd, openOutbox, openPool, ordersIn } from './core-setup.ts';
import { KINDS, turns } from './libraries-setup.ts';

/** More than fits into one statement. */
const MANY = Array.from({ length: 2_200 }, (_, at) => ({ routingKey: 'many', body: at }));

/** The ways to emit, as far as they differ in what is asked of the server. */
const EMITS: Record<string, (outbox: Outbox, tx: AnyTx) => Promise<unknown>> = {
  one: (outbox, tx) => outbox.emit(tx, 'one', 1),
  twins: (outbox, tx) =>
    outbox.emitMany(tx, [
      { routingKey: 'twins', id: 'twin' },
      { routingKey: 'twins', id: 'twin', dedupeKey: 'k' },
    ]),
  large: (outbox, tx) => outbox.emit(tx, 'large', 'x'.repeat(100_000), { key: 'k' }),
  many: (outbox, tx) => outbox.emitMany(tx, MANY),
};

/** What an emit says that comes too late, by us or by the library. */
const REFUSED =
  /no transaction|has ended|is over|already|rolled back|complete|current transaction is aborted/i;

withService('postgres', () => {
  for (const [name, use] of Object.entries(KINDS)) {
    test(`an emit beside something that fails stays with nobody, with ${name}`, async () => {
      const { pool, schema, entries } = await openOutbox();
      const run = await use();
      const late: Promise<unknown>[] = [];
      for (const emit of Object.values(EMITS)) {
        for (const failsAfter of [0, 1, 3, 12]) {
          // A new one knows nothing of the server, so it has to ask first.
          const outbox = createOutbox({ pool, schema });
          for (const isFirst of [true, false]) {
            const working = run(async (tx) => {
              const emitting = emit(outbox, tx);
              late.push(emitting.catch(() => undefined));
              const failing = turns(isFirst ? failsAfter : 0).then(() => {
                throw new Error('no stock');
              });
              await Promise.all([emitting, failing]);
            });
            await expect(working).rejects.toThrow('no stock');
          }
        }
      }
      await Promise.all(late);
      expect(await entries()).toEqual([]);
    });

    test(`an emit that comes while it is rolled back, or later, is refused, with ${name}`, async () => {
      const { pool, schema, outbox, entries } = await openOutbox();
      const run = await use();
      await transaction(pool, (tx) => outbox.emit(tx, 'warm'));
      await pool.query(`DELETE FROM "${schema}".entries`);
      const late: Promise<unknown>[] = [];
      for (const emit of Object.values(EMITS)) {
        for (const at of [1, 2, 3, 4, 5, 7, 10]) {
          const working = run(async (tx) => {
            late.push(
              turns(at)
                .then(() => emit(outbox, tx))
                .catch((error: Error) => error.message),
            );
            await turns(2);
            throw new Error('no stock');
          });
          await expect(working).rejects.toThrow('no stock');
          await late.at(-1);
        }
      }
      const refused = (await Promise.all(late)).filter((text) => typeof text === 'string');
      expect(refused.length).toBeGreaterThan(0);
      for (const text of refused) expect(text).toMatch(REFUSED);
      expect(await entries()).toEqual([]);
    });

    test(`emits that nobody waits for are not sent when it is rolled back, with ${name}`, async () => {
      const { outbox, entries } = await openOutbox();
      const run = await use();
      const late: Promise<unknown>[] = [];
      const working = run(async (tx) => {
        for (const emit of Object.values(EMITS)) {
          late.push(emit(outbox, tx).catch(() => undefined));
          late.push(emit(outbox, tx).catch(() => undefined));
        }
        throw new Error('no stock');
      });
      await expect(working).rejects.toThrow('no stock');
      await Promise.all(late);
      expect(await entries()).toEqual([]);
    });

    test(`an emit does not get into the transaction of another, with ${name}`, async () => {
      const { pool, schema, entries } = await openOutbox();
      // The next one gets the same connection.
      const run = await use(1);
      const late: Promise<unknown>[] = [];
      for (const emit of Object.values(EMITS)) {
        const outbox = createOutbox({ pool, schema });
        const first = run(async (tx) => {
          const emitting = emit(outbox, tx);
          late.push(emitting.catch(() => undefined));
          await Promise.all([emitting, Promise.reject(new Error('no stock'))]);
        });
        const second = run(async (tx) => {
          await outbox.emit(tx, 'other', 1);
          await turns(20);
        });
        await expect(first).rejects.toThrow('no stock');
        await second;
      }
      await Promise.all(late);
      const topics = (await entries()).map(({ envelope }) => envelope.topic);
      expect(topics).toEqual(Object.keys(EMITS).map(() => 'other'));
    });

    test(`emits of one transaction keep the order of their calls, with ${name}`, async () => {
      const { pool, schema, entries } = await openOutbox();
      const run = await use();
      const outbox = createOutbox({ pool, schema });
      for (let n = 0; n < 2; n += 1) {
        await run(async (tx) => {
          await Promise.all(
            ['a', 'b', 'c'].map((id, at) =>
              outbox.emit(tx, 'x', at === 0 ? 'x'.repeat(100_000) : 1, { id: `${id}${n}` }),
            ),
          );
        });
      }
      const { rows } = await pool.query(`SELECT id FROM "${schema}".entries ORDER BY seq`);
      expect(rows.map(({ id }) => id as string)).toEqual(['a0', 'b0', 'c0', 'a1', 'b1', 'c1']);
      expect(await entries()).toHaveLength(6);
    });
  }

  test('a client of pg that is in no transaction is refused, and what came of it says so', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const client = await pool.connect();
    atEnd(async () => client.release());
    for (const emit of Object.values(EMITS)) {
      await expect(emit(outbox, client)).rejects.toMatchObject({
        code: 'config.invalid',
        message: expect.stringMatching(/cannot emit .*: no transaction is open/),
      });
    }
    await client.query('BEGIN');
    await outbox.emit(client, 'a');
    await client.query('COMMIT');
    await expect(outbox.emit(client, 'a')).rejects.toThrow('no transaction is open');
    // n.b. Not waited for, and in time all the same.
    const begun = client.query('BEGIN');
    await outbox.emit(client, 'b');
    await begun;
    await client.query('COMMIT');
    expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a', 'b']);
  });

  test('a client that went back to its pool is refused', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const client = await pool.connect();
    client.release();
    await expect(outbox.emit(client, 'a')).rejects.toThrow('no transaction is open');
    expect(await entries()).toEqual([]);
  });

  test('the tx of a transaction that is over refuses, whoever has its connection', async () => {
    const { schema, entries } = await openOutbox();
    const pool = await openPool({ max: 1 });
    const outbox = createOutbox({ pool, schema });
    const left: pg.PoolClient[] = [];
    await outbox.transaction((tx) => left.push(tx));
    const [tx] = left as [pg.PoolClient];
    await outbox.transaction(async (other) => {
      await outbox.emit(other, 'other');
      await expect(outbox.emit(tx, 'a')).rejects.toThrow(
        'cannot emit "a": its transaction has ended',
      );
      await expect(outbox.emitMany(tx, [])).rejects.toThrow('its transaction has ended');
      await expect(tx.query('SELECT 1')).rejects.toThrow('its transaction has ended');
      await expect(tx.query({ text: 'SELECT 1' })).rejects.toThrow('its transaction has ended');
      expect(() => tx.query('SELECT 1', () => undefined)).toThrow('its transaction has ended');
    });
    expect(await entries()).toHaveLength(1);
  });

  test('emits that nobody waited for are committed with their transaction()', async () => {
    const { pool, schema, entries } = await openOutbox();
    const outbox = createOutbox({ pool, schema });
    const emitting: Promise<unknown>[] = [];
    await outbox.transaction((tx) => {
      emitting.push(outbox.emit(tx, 'a'), outbox.emitMany(tx, MANY));
    });
    await Promise.all(emitting);
    expect(await entries()).toHaveLength(1 + MANY.length);
    expect(await ordersIn(pool, schema)).toEqual([]);
  });

  test('a message of many that cannot be is found before any is written', async () => {
    const { pool, outbox, entries } = await openOutbox();
    await transaction(pool, async (tx) => {
      const wrong = outbox.emitMany(tx, [...MANY, { routingKey: 'a', dedupeKey: 'a\0' }]);
      await expect(wrong).rejects.toMatchObject({ code: 'message.invalid' });
    });
    expect(await entries()).toEqual([]);
  });
});
