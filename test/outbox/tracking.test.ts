/** tracking — the chain of ids that goes with what is emitted. */

import { expect, test } from 'vitest';
import { memory, memoryBodies } from 'respool/stores/memory';
import { createSpool } from 'respool';
import {
  spoolSink,
  withTracking,
  tracking,
  trackingIds,
  trackingOf,
  transaction,
} from 'respool/outbox';
import { TRACKING_HEADER } from '../../src/core/reserved-headers.ts';
import { withService } from '../services/index.ts';
import { openOutbox, openSqliteOutbox } from './core-setup.ts';

test('a scope has an id, and one inside it has both', async () => {
  expect(trackingIds()).toEqual([]);
  await tracking(async () => {
    const outer = trackingIds();
    expect(outer).toHaveLength(1);
    await Promise.resolve();
    tracking(() => {
      expect(trackingIds()).toHaveLength(2);
      expect(trackingIds()[0]).toBe(outer[0]);
    });
    expect(trackingIds()).toEqual(outer);
  });
  expect(trackingIds()).toEqual([]);
});

test('a scope gives back what its function returns, and ends when that throws', () => {
  expect(tracking(() => 7)).toBe(7);
  expect(tracking(['a'], () => trackingIds())).toEqual(['a']);
  expect(() =>
    tracking(() => {
      throw new Error('oops');
    }),
  ).toThrow('oops');
  expect(trackingIds()).toEqual([]);
});

test('scopes at the same time do not see each other', async () => {
  const seen = await Promise.all(
    ['a', 'b', 'c'].map((id) =>
      tracking([id], async () => {
        await Promise.resolve();
        return trackingIds();
      }),
    ),
  );
  expect(seen).toEqual([['a'], ['b'], ['c']]);
});

test('a chain keeps its last 50 ids', () => {
  const ids = Array.from({ length: 60 }, (_, at) => `id-${at}`);
  tracking(ids, () => {
    expect(trackingIds()).toEqual(ids.slice(10));
    tracking(() => {
      expect(trackingIds()).toHaveLength(50);
      expect(trackingIds().slice(0, -1)).toEqual(ids.slice(11));
    });
  });
});

test('ids that are none are refused', () => {
  expect(() => tracking('a' as never, () => 1)).toThrow('cannot begin tracking with "a"');
  expect(() => tracking(['a', ''], () => 1)).toThrow('cannot begin tracking with ""');
  expect(() => tracking(['x'.repeat(129)], () => 1)).toThrow('1 to 128 characters');
  expect(() => tracking(['a'], undefined as never)).toThrow('a list of ids and a function');
});

test('a chain is read from headers, and nothing from what is none', () => {
  const read = (value: string) => trackingOf({ [TRACKING_HEADER]: value });
  expect(read('["a","b"]')).toEqual(['a', 'b']);
  expect(read(JSON.stringify(Array.from({ length: 60 }, (_, at) => `${at}`)))).toHaveLength(50);
  expect(read('["a",1,null,""]')).toEqual(['a']);
  expect(read('{"a":1}')).toEqual([]);
  expect(read('no json')).toEqual([]);
  expect(read(JSON.stringify(['x'.repeat(20_000)]))).toEqual([]);
  expect(trackingOf({})).toEqual([]);
});

test('of a chain that another wrote, however long, the last 50 ids are read', () => {
  const ids = Array.from({ length: 1_000 }, (_, at) => `${'x'.repeat(100)}-${at}`);
  const text = JSON.stringify(ids);
  expect(text.length).toBeGreaterThan(100_000);
  expect(trackingOf({ [TRACKING_HEADER]: text })).toEqual(ids.slice(-50));
  // Nothing that is no list breaks the reading of it, nested as it may be.
  expect(trackingOf({ [TRACKING_HEADER]: '['.repeat(100_000) })).toEqual([]);
});

test('a spool behind a relay hands the chain on to its handlers', async () => {
  const { database, outbox } = await openSqliteOutbox();
  const seen: (readonly string[])[] = [];
  const spool = createSpool({
    entries: memory(),
    bodies: memoryBodies(),
    middleware: [withTracking],
  });
  const handled = new Promise<void>((resolve) => {
    spool.handle('order.#', async () => {
      await Promise.resolve();
      seen.push(trackingIds());
      resolve();
    });
  });
  await spool.start();
  const { id } = tracking(['request'], () =>
    outbox.transaction(() => outbox.emit(database, 'order.new', 1)),
  );
  const relay = outbox.relay({ to: spoolSink(spool) });
  await relay.start();
  await handled;
  await relay.stop();
  await spool.stop();
  expect(seen).toEqual([['request', id]]);
});

test('an emit on SQLite carries the chain of its scope and its own id', async () => {
  const { database, outbox, entries } = await openSqliteOutbox();
  const { id } = tracking(['a', 'b'], () =>
    outbox.transaction(() => outbox.emit(database, 'order.new', 1)),
  );
  const [entry] = await entries();
  expect(trackingOf(entry?.envelope.headers ?? {})).toEqual(['a', 'b', id]);
});

withService('postgres', () => {
  test('every emit carries the chain of its scope and its own id', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const outside = await transaction(pool, (tx) => outbox.emit(tx, 'a'));
    const inside = await tracking(['a', 'b'], () =>
      transaction(pool, (tx) => outbox.emitMany(tx, [{ routingKey: 'a' }, { routingKey: 'a' }])),
    );
    const chains = (await entries()).map(({ envelope }) => trackingOf(envelope.headers));
    expect(chains).toEqual([[outside.id], ...inside.map(({ id }) => ['a', 'b', id])]);
  });

  test('a chain that the caller gives as header goes as it is', async () => {
    const { pool, outbox, entries } = await openOutbox();
    const headers = { [TRACKING_HEADER]: '["own"]' };
    await transaction(pool, (tx) => outbox.emit(tx, 'a', 1, { headers }));
    const [entry] = await entries();
    expect(entry?.envelope.headers[TRACKING_HEADER]).toBe('["own"]');
  });
});
