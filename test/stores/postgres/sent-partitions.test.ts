/** sent — what was delivered is moved to parts of a table, which are made ahead and dropped. */

import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { postgres, type PostgresOptions } from 'respool/stores/postgres';
import type { Clock, Entry, Status } from 'respool';
import { assertNext, keyedEntry } from '../../../src/testkit/entry-cases/order.ts';
import { withService } from '../../services/index.ts';
import { faultyPool } from './faulty-pool.ts';
import { openClient, openStore, ownSchema, serverUrl } from './setup.ts';
import { DAY_MS, HOUR_MS, systemClock } from '../../time.ts';
import { claim, claimIds, entryChange, later, steppedStatus } from '../requests.ts';

const SENT = { partition: '1h', keep: '1d' } as const;

/** Time as the test says it; long timers wait until they are called. */
function ownClock(): { clock: Clock; timers: (() => void)[]; at: { now: number } } {
  const at = { now: SAMPLE_AT };
  const timers: (() => void)[] = [];
  const clock: Clock = {
    ...systemClock,
    now: () => at.now,
    after(ms, call) {
      if (ms < HOUR_MS / 2) return systemClock.after(ms, call);
      timers.push(call);
      return () => undefined;
    },
  };
  return { clock, timers, at };
}

async function setup(options: Partial<PostgresOptions> = {}) {
  const schema = ownSchema();
  const { clock, timers, at } = ownClock();
  const store = await openStore({ schema, sent: SENT, ...options }, { clock });
  const client = await openClient();
  /** The parts of the table, by their first times, in hours from the beginning. */
  const parts = async (): Promise<(number | 'default')[]> => {
    const sql = `SELECT inhrelid::regclass::text AS name FROM pg_inherits
      WHERE inhparent = '"${schema}".sent'::regclass ORDER BY 1`;
    return (await client.query<{ name: string }>(sql)).rows.map(({ name }) => {
      const from = /sent_(\d+)/.exec(name)?.[1];
      return from === undefined ? 'default' : (Number(from) - SAMPLE_AT) / HOUR_MS;
    });
  };
  const inDefault = async (): Promise<string[]> =>
    (await client.query(`SELECT id FROM "${schema}".sent_default`)).rows.map(({ id }) => id);
  const ids = async (): Promise<string[]> =>
    (await store.sentPage({ limit: 100 })).messages.map(({ envelope }) => envelope.id);
  /** Lets the parts be looked after at a time. */
  const tend = async (now: number): Promise<void> => {
    at.now = now;
    const waiting = timers.length;
    timers.at(-1)?.();
    await expect.poll(() => timers.length).toBe(waiting + 1);
  };
  return { schema, store, client, parts, inDefault, ids, timers, at, tend };
}

function delivered(entry: Entry, parts: Partial<Status> = {}) {
  const to = { state: 'archived', ending: 'delivered', dueAt: later(DAY_MS), ...parts } as const;
  return entryChange(entry, steppedStatus(entry, to));
}

describe('what is refused', () => {
  test.each([
    [{ partition: '10s', keep: '1d' }, 'sent.partition'],
    [{ partition: '1h', keep: '1s' }, 'sent.keep'],
    [{ partition: '1h', keep: '42d' }, 'more than 1000 parts'],
    [{ partition: '1h', keep: '1d', more: 1 }, 'more'],
  ])('%j', (sent, text) => {
    expect(() => postgres({ url: 'postgres://x@127.0.0.1/x', sent })).toThrow(text);
  });
});

withService('postgres', () => {
  test('what was delivered is moved, with its body and when that was', async () => {
    const { store, ids } = await setup();
    await store.insert([sampleEntry('a', { bytes: Uint8Array.of(7, 0), headers: { x: 'y' } })]);
    const [entry] = await claim(store);
    expect(await store.commit([delivered(entry as Entry, { updatedAt: later(5) })])).toEqual([
      'done',
    ]);
    expect(await store.get('a')).toBeUndefined();
    const { messages } = await store.sentPage({ limit: 1 });
    expect(messages).toEqual([
      { sentAt: later(5), envelope: entry?.envelope, body: Uint8Array.of(7, 0) },
    ]);
    expect(await ids()).toEqual(['a']);
  });

  test('without the option what was delivered stays where it is', async () => {
    const store = await openStore();
    await store.insert([sampleEntry('a')]);
    await store.commit([delivered((await claim(store))[0] as Entry)]);
    expect((await store.get('a'))?.status.state).toBe('archived');
    expect(await store.sentPage({ limit: 1 })).toEqual({ messages: [] });
  });

  test('what ended in another way, or was removed, is not moved', async () => {
    const { store, ids } = await setup();
    await store.insert(['a', 'b', 'c', 'd'].map((id) => sampleEntry(id)));
    const [a, b, c, d] = (await claim(store)) as [Entry, Entry, Entry, Entry];
    const others = [
      delivered(a, { ending: 'bounced' }),
      delivered(b, { ending: 'removed' }),
      entryChange(c, 'remove'),
      delivered(d),
    ];
    expect(await store.commit(others)).toEqual(['done', 'done', 'done', 'done']);
    expect(await ids()).toEqual(['d']);
    expect((await store.list({ limit: 9 })).entries.map(({ envelope }) => envelope.id)).toEqual([
      'a',
      'b',
    ]);
  });

  test('what is to be known again stays as well, and a second one is a duplicate', async () => {
    const { store, ids } = await setup();
    const remembered = [
      sampleEntry('a', { dedupeKey: 'k' }),
      sampleEntry('b', { ownId: true }),
      sampleEntry('c', { headers: { x: '"ownId":true' } }),
    ];
    await store.insert(remembered);
    const stale = sampleEntry('nobody');
    const changes = [...(await claim(store)).map((entry) => delivered(entry)), delivered(stale)];
    expect(await store.commit(changes)).toEqual(['done', 'done', 'done', 'stale']);
    expect(await ids()).toEqual(['a', 'b', 'c']);
    expect(await store.insert(remembered)).toEqual([
      { duplicateOf: 'a' },
      { duplicateOf: 'b' },
      'stored',
    ]);
    expect((await store.get('a'))?.status).toMatchObject({ state: 'archived', attempts: 1 });
  });

  test('what was delivered lets the next of its key go', async () => {
    const { store, ids } = await setup();
    await store.insert([
      keyedEntry('a'),
      keyedEntry('b'),
      keyedEntry('c', { dedupeKey: 'k' }),
      keyedEntry('d'),
    ]);
    for (const id of ['a', 'b', 'c', 'd']) {
      const [entry] = await claim(store);
      expect(entry?.envelope.id).toBe(id);
      expect(await claimIds(store)).toEqual([]);
      await store.commit([delivered(entry as Entry)]);
    }
    expect(await ids()).toEqual(['a', 'b', 'c', 'd']);
    await store.insert([keyedEntry('e')]);
    await assertNext(store, 'e');
  });

  test('one whose answer was lost was sent once', async () => {
    const pool = await faultyPool();
    const { store, ids } = await setup({ pool });
    await store.insert([sampleEntry('a')]);
    const [entry] = await claim(store);
    let lost = 0;
    pool.plan = (text) => (text.includes('leaving') && lost++ === 0 ? 'after' : 'none');
    expect(await store.commit([delivered(entry as Entry)])).toEqual(['done']);
    expect(lost).toBe(2);
    expect(await ids()).toEqual(['a']);
  });

  test('parts are made ahead, as time goes by, and dropped when all in them is too old', async () => {
    const { store, parts, tend, ids } = await setup();
    expect(await parts()).toEqual([0, 1, 2, 'default']);
    await store.insert(sampleEntries(2, 'm'));
    await store.commit((await claim(store)).map((entry) => delivered(entry)));
    await tend(later(HOUR_MS));
    expect(await parts()).toEqual([0, 1, 2, 3, 'default']);
    await tend(later(DAY_MS));
    expect((await parts()).slice(0, 2)).toEqual([0, 1]);
    expect(await ids()).toHaveLength(2);
    await tend(later(DAY_MS + HOUR_MS));
    expect(await parts()).toEqual([1, 2, 3, 24, 25, 26, 27, 'default']);
    expect(await ids()).toEqual([]);
  });

  test('a clock that is ahead of the server’s drops no part too early', async () => {
    const { parts, tend } = await setup();
    await tend(systemClock.now());
    const present = await parts();
    expect(present).not.toContain(0);
    await tend(systemClock.now() + 30 * DAY_MS);
    expect(await parts()).toEqual(expect.arrayContaining(present));
  });

  test('stores that are opened at once make each part once, also of another width', async () => {
    const { schema, parts, at } = await setup();
    const { clock } = ownClock();
    const url = await serverUrl();
    const wide = { partition: '2h', keep: '1d' };
    at.now = later(3 * HOUR_MS);
    const moved = { ...clock, now: () => later(3 * HOUR_MS) };
    const stores = [SENT, wide, SENT, wide].map((sent) =>
      postgres({ url, schema, sent }, { clock: moved }),
    );
    await Promise.all(stores.map((store) => store.open()));
    await Promise.all(stores.map((store) => store.close()));
    const made = await parts();
    expect(made.slice(0, 4)).toEqual([0, 1, 2, 3]);
    expect(new Set(made).size).toBe(made.length);
  });

  test('what has no part of its own goes to the default part, until it is too old', async () => {
    const { store, inDefault, timers, at, parts } = await setup();
    await store.insert(sampleEntries(2, 'm'));
    const far = later(30 * HOUR_MS);
    const changes = (await claim(store)).map((entry) => delivered(entry, { updatedAt: far }));
    expect(await store.commit(changes)).toEqual(['done', 'done']);
    expect(await inDefault()).toEqual(['m-00000', 'm-00001']);
    // Its time comes: that part is left out, the next ones are made.
    at.now = far;
    timers.at(-1)?.();
    await expect.poll(() => timers.length).toBe(2);
    expect((await parts()).slice(-3)).toEqual([31, 32, 'default']);
    at.now = far + DAY_MS + 1;
    timers.at(-1)?.();
    await expect.poll(() => timers.length).toBe(3);
    expect(await inDefault()).toEqual([]);
  });

  test('pages of sent messages follow each other, by topic and id', async () => {
    const { store } = await setup();
    await store.insert(
      sampleEntries(5, 'm', (index) => ({ topic: index % 2 === 0 ? 'mail.a' : 'sms' })),
    );
    const entries = await claim(store);
    await store.commit(
      entries.map((entry, at) => delivered(entry, { updatedAt: later(10 - (at % 3)) })),
    );
    const seen: string[] = [];
    let after: string | undefined;
    do {
      const page = await store.sentPage({ limit: 2, ...(after === undefined ? {} : { after }) });
      seen.push(...page.messages.map(({ envelope }) => envelope.id));
      after = page.next;
    } while (after !== undefined);
    expect(seen).toEqual(['m-00002', 'm-00001', 'm-00004', 'm-00000', 'm-00003']);
    const idsOf = async (query: object) =>
      (await store.sentPage({ limit: 9, ...query })).messages.map(({ envelope }) => envelope.id);
    expect(await idsOf({ topic: 'mail.*' })).toEqual(['m-00002', 'm-00004', 'm-00000']);
    expect(await idsOf({ id: 'm-00003' })).toEqual(['m-00003']);
    await expect(store.sentPage({ limit: 0 })).rejects.toMatchObject({ code: 'limit.exceeded' });
    await expect(store.sentPage({ limit: 501 })).rejects.toMatchObject({ code: 'limit.exceeded' });
    await expect(store.sentPage({ limit: 1, after: 'x' })).rejects.toMatchObject({
      code: 'config.invalid',
    });
  });
});
