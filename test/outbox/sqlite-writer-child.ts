/**
 * Run as a program by sqlite-processes.test.ts: another process on the same file. It places orders,
 * each with a message in the same transaction, a fifth of them rolled back, until it is killed.
 */

import Sqlite from 'better-sqlite3';
import { createOutbox } from 'respool/outbox';

/** Orders are spread over so many keys. */
const KEYS = 5;
/** So many at once; then the parent is told, and others have their turn. */
const AT_ONCE = 4;

const [file = ''] = process.argv.slice(2);
const database = new Sqlite(file, { timeout: 10_000 });
const outbox = createOutbox({ database });
const insert = database.prepare('INSERT INTO orders DEFAULT VALUES');

const place = database.transaction((isGood: boolean) => {
  const id = Number(insert.run().lastInsertRowid);
  outbox.emit(database, 'order.placed', { id }, { key: `k${id % KEYS}` });
  if (!isGood) throw new Error('no stock');
});

let tries = 0;
function placeSome(): void {
  for (let at = 0; at < AT_ONCE; at += 1) {
    tries += 1;
    try {
      place.immediate(tries % 5 !== 0);
    } catch (error) {
      if ((error as Error).message !== 'no stock') throw error;
    }
  }
  process.send?.(tries);
  setImmediate(placeSome);
}
placeSome();
