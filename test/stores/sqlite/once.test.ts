import Sqlite from 'better-sqlite3';
import { describe, expect, test, vi } from 'vitest';
import { once } from 'respool/stores/sqlite';
import { atEnd } from './setup.ts';
import { DAY_MS } from '../../time.ts';

async function setup() {
  const database = new Sqlite(':memory:');
  atEnd(async () => database.close());
  database.exec('CREATE TABLE payments (id TEXT PRIMARY KEY)');
  const pay = vi.fn((db: typeof database) => {
    db.prepare('INSERT INTO payments VALUES (?)').run(`p${pay.mock.calls.length}`);
    return { paid: pay.mock.calls.length };
  });
  const count = () => Number(database.prepare('SELECT count(*) FROM payments').pluck().get());
  return { database, pay, count };
}

describe('once', () => {
  test('the work of a key runs once, and later calls get its result', async () => {
    const { database, pay, count } = await setup();
    expect(once(database, 'm1', pay)).toEqual({ paid: 1 });
    expect(once(database, 'm1', pay)).toEqual({ paid: 1 });
    expect(once(database, 'm2', pay)).toEqual({ paid: 2 });
    expect(count()).toBe(2);
  });

  test('work that returns nothing is remembered too', async () => {
    const { database } = await setup();
    const work = vi.fn();
    once(database, 'm1', work);
    once(database, 'm1', work);
    expect(work).toHaveBeenCalledTimes(1);
  });

  test('keys of different scopes do not see each other', async () => {
    const { database, pay } = await setup();
    once(database, 'm1', pay, { scope: 'a' });
    once(database, 'm1', pay, { scope: 'b' });
    once(database, 'm1', pay);
    expect(pay).toHaveBeenCalledTimes(3);
  });

  test('work that throws leaves neither its writes nor its key', async () => {
    const { database, pay, count } = await setup();
    const fail = () =>
      once(database, 'm1', (db) => {
        pay(db);
        throw new Error('no money');
      });
    expect(fail).toThrow('no money');
    expect(count()).toBe(0);
    expect(database.inTransaction).toBe(false);
    once(database, 'm1', pay);
    expect(count()).toBe(1);
  });

  test('a key is remembered for 14 days, or as long as it is told', async () => {
    const { database, pay } = await setup();
    let now = 1_000;
    const options = { now: () => now };
    once(database, 'm1', pay, options);
    once(database, 'm2', pay, { ...options, ttl: '1m' });
    now += 60_000;
    once(database, 'm1', pay, options);
    expect(pay).toHaveBeenCalledTimes(2);
    once(database, 'm2', pay, { ...options, ttl: '1m' });
    expect(pay).toHaveBeenCalledTimes(3);
    now = 1_000 + 14 * DAY_MS;
    once(database, 'm1', pay, options);
    expect(pay).toHaveBeenCalledTimes(4);
  });

  test('keys that are over are forgotten by later calls', async () => {
    const { database, pay } = await setup();
    let now = 1_000;
    const options = { now: () => now, ttl: '1s' } as const;
    for (let n = 0; n < 150; n += 1) once(database, `k${n}`, pay, options);
    now += 1_000;
    for (let n = 0; n < 2; n += 1) once(database, `new${n}`, pay, options);
    expect(database.prepare('SELECT count(*) FROM respool_once').pluck().get()).toBe(2);
  });

  test('inside an open transaction it is part of it', async () => {
    const { database, pay, count } = await setup();
    database.exec('BEGIN');
    once(database, 'm1', pay);
    database.exec('ROLLBACK');
    expect(count()).toBe(0);
    database.exec('BEGIN');
    once(database, 'm1', pay);
    expect(() =>
      once(database, 'm2', () => {
        throw new Error('only this one');
      }),
    ).toThrow('only this one');
    expect(database.inTransaction).toBe(true);
    database.exec('COMMIT');
    expect(count()).toBe(1);
    once(database, 'm1', pay);
    expect(count()).toBe(1);
  });

  test('asynchronous work is refused, and undone', async () => {
    const { database, count } = await setup();
    const work = async () => {
      database.prepare("INSERT INTO payments VALUES ('x')").run();
    };
    expect(() => once(database, 'm1', work)).toThrow(/SQLite is synchronous/);
    expect(count()).toBe(0);
  });

  test('an empty key and a ttl of nothing are refused', async () => {
    const { database, pay } = await setup();
    expect(() => once(database, '', pay)).toThrow(/once key/);
    expect(() => once(database, 'k', pay, { ttl: 0 })).toThrow(/ttl/);
    expect(pay).not.toHaveBeenCalled();
  });
});
