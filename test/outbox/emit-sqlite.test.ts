/** emit — the same in a file of better-sqlite3, synchronous from end to end. */

import Sqlite from 'better-sqlite3';
import { drizzle } from 'drizzle-orm/better-sqlite3';
import { expect, expectTypeOf, test } from 'vitest';
import { custom, delivered, fixed } from 'respool';
import { createOutbox, type EmitResult } from 'respool/outbox';
import { atEnd, bodyOf, openDatabase, openSqliteOutbox } from './core-setup.ts';
import { systemClock } from '../time.ts';

const orders = (database: Sqlite.Database): unknown[] =>
  database.prepare('SELECT id FROM orders').pluck().all();

test('an emit gives its answer at once, not a promise', async () => {
  const { database, outbox } = await openSqliteOutbox();
  const emitted = outbox.transaction((tx) => {
    expectTypeOf(tx).toEqualTypeOf<Sqlite.Database>();
    expect(tx).toBe(database);
    return outbox.emit(tx, 'order.process', { orderId: 1 });
  });
  expectTypeOf<ReturnType<typeof outbox.emit>>().toEqualTypeOf<EmitResult>();
  expectTypeOf<ReturnType<typeof outbox.emitMany>>().toEqualTypeOf<readonly EmitResult[]>();
  expectTypeOf(emitted).toEqualTypeOf<EmitResult>();
  expect(emitted).toEqual({ id: expect.any(String), duplicate: false });
  expect((await bodyOf(outbox, emitted.id)).toString()).toBe('{"orderId":1}');
});

test('messages come and go with the transaction of the database', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const place = database.transaction((id: number, isGood: boolean) => {
    database.prepare('INSERT INTO orders VALUES (?)').run(id);
    outbox.emit(database, 'a', id);
    outbox.emitMany(database, [{ routingKey: 'b' }, { routingKey: 'c', eta: '1h' }]);
    if (!isGood) throw new Error('no stock');
  });
  expect(() => place(1, false)).toThrow('no stock');
  expect(await entries()).toEqual([]);
  place(2, true);
  expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a', 'b', 'c']);
  expect(orders(database)).toEqual([2]);
});

test('in a transaction of Drizzle an emit is given the database, and shares its end', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const db = drizzle({ client: database });
  const place = (id: number, isGood: boolean): void =>
    db.transaction((tx) => {
      tx.run(`INSERT INTO orders VALUES (${id})`);
      outbox.emit(database, 'a', id);
      if (!isGood) tx.rollback();
    });
  expect(() => place(1, false)).toThrow('Rollback');
  expect(await entries()).toEqual([]);
  place(2, true);
  expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a']);
  expect(orders(database)).toEqual([2]);
});

test('the transaction of an outbox is rolled back when its function throws', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const failing = (): unknown =>
    outbox.transaction(() => {
      outbox.emit(database, 'a');
      throw new Error('no stock');
    });
  expect(failing).toThrow('no stock');
  expect(database.inTransaction).toBe(false);
  expect(await entries()).toEqual([]);
});

test('in a transaction of the user, that of an outbox is a part of it', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  database.transaction(() => {
    outbox.emit(database, 'a');
    const inner = (): unknown =>
      outbox.transaction(() => {
        outbox.emit(database, 'b');
        throw new Error('only this');
      });
    expect(inner).toThrow('only this');
    outbox.transaction(() => outbox.emit(database, 'c'));
  })();
  expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a', 'c']);
});

test('a function that returns a promise is refused, and rolled back', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const working = (): unknown =>
    outbox.transaction(() => Promise.resolve(outbox.emit(database, 'a')));
  expect(working).toThrow('its function returned a promise, and better-sqlite3 is synchronous');
  // Nor does one that fails later end the process.
  const failing = (): unknown => outbox.transaction(() => Promise.reject(new Error('later')));
  expect(failing).toThrow('its function returned a promise');
  expect(await entries()).toEqual([]);
});

test('outside a transaction, and with what is no database, an emit is refused', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  expect(() => outbox.emit(database, 'a')).toThrow(/in no transaction/);
  expect(() => outbox.emit({} as never, 'a')).toThrow(/is no better-sqlite3 database/);
  const wrong = (): unknown => createOutbox({ database: 'postgres://ann:hunter2@shop' as never });
  expect(wrong).toThrow(/^(?!.*hunter2)/);
  expect(await entries()).toEqual([]);
});

test('everything is checked before anything is written', async () => {
  const { database, outbox, entries } = await openSqliteOutbox({ maxBytes: 5 });
  outbox.transaction(() => {
    const many = (): unknown =>
      outbox.emitMany(database, [{ routingKey: 'a' }, { routingKey: 'not a key' }]);
    expect(many).toThrow('cannot use "not a key" as routing key');
    expect(() => outbox.emit(database, 'a', 'too large')).toThrow('allowed are 5');
    expect(() => outbox.emit(database, 'a', 1, { policy: 'x' })).toThrow('known are default');
    expect(() => outbox.emitMany(database, {} as never)).toThrow('for one alone use emit()');
  });
  expect(await entries()).toEqual([]);
});

test('all options of an emit are those of the entry, by the clock of this machine', async () => {
  const clock = { ...systemClock, now: () => 1_800_000_000_000 };
  const policies = { slow: fixed('1m') };
  const { database, outbox } = await openSqliteOutbox({ clock, policies, expires: '2h' });
  const options = { key: 'k', policy: 'slow', dedupeKey: 'd', id: 'mine', eta: '1h' };
  const headers = { 'x-a': 'b' };
  outbox.transaction(() => outbox.emit(database, 'a', 'text', { ...options, headers }));
  const entry = await outbox.spool.get('mine');
  expect(entry?.envelope).toMatchObject({
    orderKey: 'k',
    dedupeKey: 'd',
    ownId: true,
    enqueuedAt: clock.now(),
    expiresAt: clock.now() + 7_200_000,
    headers: { 'x-a': 'b', 'content-type': 'text/plain; charset=utf-8' },
  });
  expect(entry?.status).toMatchObject({
    policy: 'slow',
    state: 'deferred',
    dueAt: clock.now() + 3_600_000,
  });
});

test('a duplicate is told and the transaction goes on', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  outbox.transaction(() => {
    const first = outbox.emit(database, 'a', 1, { dedupeKey: 'k' });
    expect(outbox.emit(database, 'a', 2, { dedupeKey: 'k' })).toEqual({
      id: first.id,
      duplicate: true,
    });
    database.prepare('INSERT INTO orders VALUES (1)').run();
  });
  expect(await entries()).toHaveLength(1);
  expect(orders(database)).toEqual([1]);
});

test('without its tables it says what to run, and makes none by itself', async () => {
  const database = await openDatabase();
  database.pragma('journal_mode = WAL');
  const outbox = createOutbox({ database });
  const emitting = (): unknown => outbox.transaction(() => outbox.emit(database, 'a'));
  expect(emitting).toThrow(/cannot emit "a": .*run outbox\.migrate\(\)/);
  await expect(outbox.spool.count()).rejects.toThrow(/run outbox\.migrate\(\)/);
  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'");
  expect(tables.pluck().all()).toEqual(['orders']);
});

test('two outboxes in one file do not see each other', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const other = createOutbox({ database, tables: 'mail_' });
  other.migrate();
  atEnd(() => other.close());
  outbox.transaction(() => {
    outbox.emit(database, 'a', 1, { dedupeKey: 'k' });
    expect(other.emit(database, 'b', 1, { dedupeKey: 'k' }).duplicate).toBe(false);
  });
  expect((await entries()).map(({ envelope }) => envelope.topic)).toEqual(['a']);
  expect(await other.spool.count()).toMatchObject({ incoming: 1 });
});

test('a relay of this process hears of a commit at once', async () => {
  const { database, outbox } = await openSqliteOutbox();
  const { promise, resolve } = Promise.withResolvers<unknown>();
  const relay = outbox.relay({
    to: {
      deliver: async (delivery) => {
        resolve(await delivery.json());
        return delivered();
      },
    },
    poll: '1h',
  });
  atEnd(() => relay.stop());
  await relay.start();
  outbox.transaction(() => outbox.emit(database, 'order.process', { orderId: 1 }));
  expect(await promise).toEqual({ orderId: 1 });
});

test('a delay function of the outbox decides when a relay tries again', async () => {
  const policies = { default: custom('patient', ['1h', '90m']) };
  const backoffs = { patient: () => '90m' };
  const { database, outbox } = await openSqliteOutbox({ policies, backoffs });
  const relay = outbox.relay({ to: { deliver: () => Promise.reject(new Error('not now')) } });
  atEnd(() => relay.stop());
  const deferring = new Promise<void>((resolve) => {
    relay.on('deferred', () => resolve());
  });
  await relay.start();
  const { id } = outbox.transaction(() => outbox.emit(database, 'a'));
  await deferring;
  const { status } = (await outbox.spool.get(id)) ?? {};
  const [attempt] = status?.history ?? [];
  expect(status).toMatchObject({ state: 'deferred', attempts: 1 });
  expect((status?.dueAt ?? 0) - (attempt?.at ?? 0)).toBeGreaterThanOrEqual(90 * 60_000);
});

test('ids come from the clock and the dice of the outbox', async () => {
  const clock = { ...systemClock, now: () => 1_800_000_000_000 };
  const dice = { random: () => 0.5 };
  const ids = new Set<string>();
  for (let n = 0; n < 2; n += 1) {
    const { database, outbox } = await openSqliteOutbox({ clock, dice });
    ids.add(outbox.transaction(() => outbox.emit(database, 'a')).id);
  }
  expect(ids.size).toBe(1);
});

test('a database in memory takes emits, but has no file for a relay', () => {
  const database = new Sqlite(':memory:');
  const outbox = createOutbox({ database });
  outbox.migrate();
  expect(outbox.transaction(() => outbox.emit(database, 'a')).duplicate).toBe(false);
  const relay = (): unknown => outbox.relay({ to: { deliver: () => delivered() } });
  expect(relay).toThrow(/":memory:".*give a database in a file/);
  database.close();
});

test('partitions of sent messages are refused: SQLite has none', async () => {
  const { outbox } = await openSqliteOutbox();
  const cleanUp = { partition: '1d', keep: '7d' };
  const relay = (): unknown => outbox.relay({ to: { deliver: () => delivered() }, cleanUp });
  expect(relay).toThrow('only PostgreSQL has them');
});

test('options that do not exist, or names that could be no table, are refused', async () => {
  const database = await openDatabase();
  const refused: readonly (readonly [object, RegExp])[] = [
    [{ schema: 'x' }, /there is no option "schema"/],
    [{ tables: 'No' }, /"No" as "tables"/],
    // A table of the user's may be called entries as well.
    [{ tables: '' }, /"" as "tables".*would be called like yours.*"outbox_"/],
    [{ maxBytes: 0 }, /"maxBytes"/],
  ];
  for (const [options, text] of refused) {
    expect(() => createOutbox({ database, ...options })).toThrow(text);
  }
});
