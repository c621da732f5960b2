/** lazy writes — a crash of the server is told to everybody whose writes it may have forgotten. */

import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';
import { LazyWrites } from '../../../src/stores/postgres/durability.ts';
import { namesOf } from '../../../src/stores/postgres/options.ts';
import type {
  QueryRequest,
  Server,
  TransactionWork,
} from '../../../src/stores/postgres/connection.ts';

/** Lazy writes over a server that has a mark, until it crashes; `answer` lets it answer. */
async function setup() {
  let mark: string | null = null;
  let made = 0;
  let gate = Promise.withResolvers<void>();
  gate.resolve();
  const ask: QueryRequest = async (text, values = []) => {
    await gate.promise;
    if (text.startsWith('INSERT')) mark ??= String(values[0]);
    return [[mark]];
  };
  const server = { run: <T>(_: string, work: TransactionWork<T>) => work(ask, false) };
  const lazy = new LazyWrites(server as Server, namesOf('s', ''), {
    clock: new SimClock(),
    newMark: () => `mark ${(made += 1)}`,
    isForced: false,
  });
  await lazy.begin(ask);
  return {
    lazy,
    /** The server answers no more, and has forgotten its mark when it does again. */
    crash: () => {
      mark = null;
      gate = Promise.withResolvers<void>();
    },
    answer: () => gate.resolve(),
  };
}

const LOST = { code: 'store.unavailable' };

test('a flush after a crash rejects once, and then tells of what came after it', async () => {
  const { lazy, crash, answer } = await setup();
  lazy.note();
  await lazy.flush();
  lazy.note();
  crash();
  answer();
  await expect(lazy.flush()).rejects.toMatchObject(LOST);
  await lazy.flush();
  lazy.note();
  await lazy.flush();
});

// Regression: the body of the second one was removed, and its entry came back.
test('a write that came through while a flush was on its way is told of by the next one', async () => {
  const { lazy, crash, answer } = await setup();
  lazy.note();
  crash();
  const first = lazy.flush();
  lazy.note();
  answer();
  await expect(first).rejects.toMatchObject(LOST);
  // Of the server that is there now; but the flush speaks for the one before as well.
  lazy.note();
  await expect(lazy.flush()).rejects.toMatchObject(LOST);
  lazy.note();
  await lazy.flush();
});
