/** once — the same in a database of better-sqlite3, synchronous from end to end. */

import Sqlite from 'better-sqlite3';
import { expect, expectTypeOf, test } from 'vitest';
import { migrateInbox, type Once, once } from 'respool/outbox';
import { atEnd, openDatabase, openSqliteOutbox } from './core-setup.ts';
import { systemClock } from '../time.ts';

const DAY_MS = 86_400_000;

interface Bundle {
  readonly database: Sqlite.Database;
  readonly clock: typeof systemClock & { at: number };
  readonly order: (number: number) => () => number;
  readonly orders: () => unknown[];
}

async function setup(): Promise<Bundle> {
  const database = await openDatabase();
  migrateInbox(database);
  const clock = { ...systemClock, at: 1_800_000_000_000, now: () => clock.at };
  return {
    database,
    clock,
    order: (number) => () => {
      database.prepare('INSERT INTO orders VALUES (?)').run(number);
      return number;
    },
    orders: () => database.prepare('SELECT id FROM orders ORDER BY id').pluck().all(),
  };
}

test('a key is done once, and its answer is no promise', async () => {
  const { database, order, orders } = await setup();
  const first = once(database, 'k', order(1));
  expectTypeOf(first).toEqualTypeOf<Once<number>>();
  expect(first).toEqual({ done: true, value: 1 });
  expect(once(database, 'k', order(2))).toEqual({ done: false });
  expect(once(database, 'k', order(3), { scope: 'mail' })).toEqual({ done: true, value: 3 });
  expect(orders()).toEqual([1, 3]);
});

test('a function that throws leaves nothing, and the key can be done again', async () => {
  const { database, order, orders } = await setup();
  const failing = (): unknown =>
    once(database, 'k', () => {
      order(1)();
      throw new Error('no stock');
    });
  expect(failing).toThrow('no stock');
  expect(database.inTransaction).toBe(false);
  expect(orders()).toEqual([]);
  expect(once(database, 'k', order(2)).done).toBe(true);
});

test('in a transaction of the caller it is a part of that', async () => {
  const { database, order, orders } = await setup();
  const undone = database.transaction(() => {
    once(database, 'k', order(1));
    throw new Error('something else');
  });
  expect(undone).toThrow('something else');
  database.transaction(() => {
    const failing = (): unknown =>
      once(database, 'k', () => {
        order(2)();
        throw new Error('caught');
      });
    expect(failing).toThrow('caught');
    expect(once(database, 'k', order(3)).done).toBe(true);
  })();
  expect(orders()).toEqual([3]);
});

test('a promise is refused, and nothing has happened', async () => {
  const { database, order, orders } = await setup();
  const working = (): unknown => once(database, 'k', () => Promise.resolve(order(1)()));
  expect(working).toThrow('its function returned a promise');
  expect(orders()).toEqual([]);
  expect(once(database, 'k', order(2)).done).toBe(true);
});

test('a key is kept for its ttl, 7 days unless said otherwise, and forgotten later', async () => {
  const { database, clock, order } = await setup();
  expect(once(database, 'week', order(1), { clock }).done).toBe(true);
  expect(once(database, 'day', order(2), { clock, ttl: '1d' }).done).toBe(true);
  clock.at += DAY_MS;
  expect(once(database, 'day', order(3), { clock }).done).toBe(true);
  clock.at += 6 * DAY_MS - 1;
  expect(once(database, 'week', order(4), { clock }).done).toBe(false);
  clock.at += 1;
  expect(once(database, 'week', order(4), { clock }).done).toBe(true);
  clock.at += 30 * DAY_MS;
  once(database, 'fresh', order(5), { clock });
  const keys = database.prepare('SELECT key FROM outbox_inbox').pluck().all();
  expect(keys).toEqual(['fresh']);
});

test('keys may be in another table', async () => {
  const { database, order } = await setup();
  migrateInbox(database, { table: 'mail_inbox' });
  expect(once(database, 'k', order(1), { table: 'mail_inbox' }).done).toBe(true);
  expect(once(database, 'k', order(2)).done).toBe(true);
  expect(() => once(database, 'k', order(3), { schema: 'x' })).toThrow('it has none');
  expect(() => migrateInbox(database, { table: 'a-b' })).toThrow('"a-b" as "table"');
});

test('an empty key is refused, and without the table it says what to run', async () => {
  const { database, order, orders } = await setup();
  expect(() => once(database, '', order(1))).toThrow('the key is empty');
  expect(() => once(database, 'k', order(1), { table: 'none' })).toThrow(/migrateInbox\(\)/);
  expect(database.inTransaction).toBe(false);
  expect(orders()).toEqual([]);
});

test('a relay forgets keys that are over', async () => {
  const { database, outbox } = await openSqliteOutbox();
  const clock = { ...systemClock, now: () => 1_700_000_000_000 };
  once(database, 'old', () => 1, { clock });
  once(database, 'new', () => 1, { clock, ttl: '36500d' });
  const keys = database.prepare('SELECT key FROM outbox_inbox ORDER BY key').pluck();
  const begin = async (): Promise<void> => {
    const relay = outbox.relay({ to: { deliver: () => undefined } });
    atEnd(() => relay.stop());
    await relay.start();
  };
  await begin();
  await expect.poll(() => keys.all()).toEqual(['new']);
});

test('of two handles on one file, one does it', async () => {
  const { database, order, orders } = await setup();
  const other = new Sqlite(database.name);
  expect(once(other, 'k', () => 'other').done).toBe(true);
  expect(once(database, 'k', order(1)).done).toBe(false);
  expect(orders()).toEqual([]);
  other.close();
});
