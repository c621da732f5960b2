/** An outbox in a file that several processes write to, some of which die. */

import { fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { OutgoingMessage, Sink } from 'respool';
import { createOutbox, type RelayOptions } from 'respool/outbox';
import { atEnd, openSqliteOutbox } from './core-setup.ts';

const KEYS = 5;
/** Each writer is killed after so many orders. */
const TRIES = 40;
const WRITERS = 2;

/** A sink that keeps the number of each order, and calls back after each send. */
class Tin implements Sink {
  readonly name = 'tin';
  readonly orders: number[] = [];
  onSend: () => void = () => undefined;

  async send(parcels: readonly OutgoingMessage[]): Promise<readonly 'confirmed'[]> {
    for (const { body } of parcels) {
      this.orders.push((JSON.parse(Buffer.from(body).toString()) as { id: number }).id);
    }
    this.onSend();
    return parcels.map(() => 'confirmed');
  }

  async close(): Promise<void> {}

  until(isDone: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.onSend = () => {
        if (isDone()) resolve();
      };
      this.onSend();
    });
  }
}

/** Starts a process that places orders, and kills it in the middle of its work. */
async function writeAndDie(file: string): Promise<void> {
  const child = fork(path.join(import.meta.dirname, 'sqlite-writer-child.ts'), [file]);
  atEnd(async () => child.kill('SIGKILL'));
  for (let tries = 0; tries < TRIES; ) [tries] = (await once(child, 'message')) as [number];
  child.kill('SIGKILL');
  await once(child, 'exit');
}

test('what other processes committed before they died is sent once and in order, nothing else', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const tin = new Tin();
  const options: RelayOptions = { to: tin, batch: 10 };
  const relay = outbox.relay(options);
  await relay.start();
  atEnd(() => relay.stop());
  await Promise.all(Array.from({ length: WRITERS }, () => writeAndDie(database.name)));
  const orders = database.prepare('SELECT id FROM orders ORDER BY id').pluck().all() as number[];
  expect(orders.length).toBeGreaterThan(WRITERS * TRIES * 0.7);
  await tin.until(() => tin.orders.length >= orders.length);
  expect([...tin.orders].sort((a, b) => a - b)).toEqual(orders);
  for (let key = 0; key < KEYS; key += 1) {
    const sent = tin.orders.filter((id) => id % KEYS === key);
    expect(sent).toEqual([...sent].sort((a, b) => a - b));
  }
  await relay.stop();
  expect(await entries()).toEqual([]);
});

test('two outboxes in one file do not see each other', async () => {
  const { database, outbox } = await openSqliteOutbox();
  const other = createOutbox({ database, tables: 'letters_' });
  atEnd(() => other.close());
  other.migrate();
  const tin = new Tin();
  const relay = other.relay({ to: tin });
  await relay.start();
  atEnd(() => relay.stop());
  database.transaction(() => {
    outbox.emit(database, 'a', { id: 1 });
    other.emit(database, 'a', { id: 2 });
  })();
  await tin.until(() => tin.orders.length > 0);
  await relay.stop();
  expect(tin.orders).toEqual([2]);
  expect(await outbox.spool.operator({ by: 'ops' }).tally('state')).toMatchObject([
    { key: 'incoming', count: 1 },
  ]);
});
