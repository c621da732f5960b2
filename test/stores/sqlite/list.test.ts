import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry, type SampleParts } from 'respool/testkit';
import { type Entry, type EntryStore, failure, type ListQuery } from 'respool';
import { claimOf } from './requests.ts';
import { makeFolder, openStore } from './setup.ts';

/** More than a page may look at. */
const MANY = 25_000;

async function openLarge(
  parts: (index: number) => SampleParts,
  thread = false,
): Promise<EntryStore> {
  const store = await openStore({ path: await makeFolder(), synchronous: 'normal', thread });
  const entries = sampleEntries(MANY, 'm', parts);
  for (let from = 0; from < MANY; from += 5_000) {
    await store.insert(entries.slice(from, from + 5_000));
  }
  return store;
}

async function walk(store: EntryStore, query: Omit<ListQuery, 'limit'>) {
  const found: Entry[] = [];
  let pages = 0;
  for (let after: string | undefined; ; ) {
    const asked = { limit: 500, ...query, ...(after === undefined ? {} : { after }) };
    const page = await store.list(asked);
    found.push(...page.entries);
    pages += 1;
    after = page.next;
    if (after === undefined) return { ids: found.map(({ envelope }) => envelope.id), pages };
  }
}

describe('a list of a large store', () => {
  test('has short pages instead of long scans, and finds everything in the end', async () => {
    const store = await openLarge((index) => ({
      topic: index % 10_000 === 0 ? 'rare' : 'mail',
      updatedAt: SAMPLE_AT + index,
      state: index % 2 === 0 ? 'incoming' : 'hold',
    }));
    const after = { updatedAfter: SAMPLE_AT + MANY - 3 };
    const { ids, pages } = await walk(store, after);
    expect(ids).toEqual(['m-24998', 'm-24999']);
    expect(pages).toBe(2);
    const down = await walk(store, { ...after, descending: true });
    expect(down.ids).toEqual(['m-24999', 'm-24998']);
  });

  test('reads no more than the range of ids that begin as asked', async () => {
    const store = await openLarge(() => ({ state: 'incoming' }));
    for (const [idPrefix, first] of [
      ['m-2499', 'm-24990'],
      ['m-0000', 'm-00000'],
    ] as const) {
      for (const descending of [false, true]) {
        // From either end of the table the other range is further away than a page may look.
        const { ids, pages } = await walk(store, { idPrefix, descending });
        expect({ count: ids.length, pages }).toEqual({ count: 10, pages: 1 });
        expect(descending ? ids.at(-1) : ids[0]).toBe(first);
      }
    }
  });

  test('goes straight to a rare state and a rare id', async () => {
    const store = await openLarge((index) => ({
      state: index % 5_000 === 1 ? 'hold' : 'deferred',
    }));
    const held = await walk(store, { states: ['hold'], order: 'updatedAt' });
    expect(held.pages).toBe(1);
    expect(held.ids).toHaveLength(5);
    const byId = await walk(store, { ids: ['m-12345', 'none'] });
    expect(byId).toEqual({ ids: ['m-12345'], pages: 1 });
  });

  test('goes straight to a rare topic once a claim needed the way there', async () => {
    const store = await openLarge((index) => ({
      topic: index % 10_000 === 9_999 ? 'rare' : 'mail',
    }));
    const query = { topic: 'rare', states: ['deferred', 'incoming', 'hold'] } as const;
    const ids = ['m-09999', 'm-19999'];
    expect(await walk(store, query)).toEqual({ ids, pages: 2 });
    const topics = [{ pattern: 'rare', take: true }];
    expect(await store.claim(claimOf(store, { topics, max: 1 }))).toHaveLength(1);
    expect(await walk(store, query)).toEqual({ ids: ['m-19999'], pages: 1 });
  });

  test('comes in every order, and archived entries by the end of their retention', async () => {
    const archived = (index: number): SampleParts => ({
      state: 'archived',
      ending: 'delivered',
      priority: index % 10,
      attempts: index % 7,
      dueAt: SAMPLE_AT + ((index * 7_919) % MANY),
    });
    const store = await openLarge(archived);
    const due = await store.list({
      limit: 3,
      states: ['archived'],
      order: 'dueAt',
      dueBefore: SAMPLE_AT + 2,
    });
    expect(due.entries.map(({ status }) => status.dueAt)).toEqual([SAMPLE_AT, SAMPLE_AT + 1]);
    expect(due.next).toBeUndefined();
    for (const order of ['dueAt', 'priority', 'attempts', 'updatedAt', 'id'] as const) {
      const first = await store.list({ limit: 500, order });
      const second = await store.list({ limit: 500, order, after: first.next ?? '' });
      const ids = [...first.entries, ...second.entries].map(({ envelope }) => envelope.id);
      expect(new Set(ids).size, order).toBe(1_000);
    }
  });

  test('that takes long is made beside the writes when there is a thread', async () => {
    const failed = failure('transient', 'timeout', 'no answer');
    const store = await openLarge(
      (index) => ({
        updatedAt: SAMPLE_AT + ((index * 7_919) % MANY),
        ...(index % 5 === 0 ? { lastFailure: failed } : {}),
      }),
      true,
    );
    const [page, , tally] = await Promise.all([
      store.list({ limit: 2, order: 'updatedAt' }),
      store.insert([sampleEntry('z', { updatedAt: SAMPLE_AT + 9e9 })]),
      store.tally('fingerprint', {}),
    ]);
    expect(page.entries.map(({ status }) => status.updatedAt)).toEqual([SAMPLE_AT, SAMPLE_AT + 1]);
    expect(tally).toMatchObject([{ key: failed.fingerprint, count: MANY / 5 }]);
    // Asked after the insert, it sees the insert.
    const last = await store.list({ limit: 1, order: 'updatedAt', descending: true });
    expect(last.entries[0]?.envelope.id).toBe('z');
    const found = await store.list({ limit: 1, text: 'M-24' });
    expect(found.entries).toHaveLength(0);
    expect(found.next).toBeDefined();
  });

  test('looks into texts for a bounded number of entries per page', async () => {
    const store = await openLarge((index) => ({
      headers: index === MANY - 1 ? { tenant: 'last' } : {},
    }));
    const { ids, pages } = await walk(store, { header: { name: 'tenant' } });
    expect(ids).toEqual([`m-${MANY - 1}`]);
    expect(pages).toBeGreaterThan(1);
    const tally = await store.tally('topic', { header: { name: 'tenant' } });
    expect(tally).toEqual([]);
    const counted = await store.tally('topic', { text: 'mail' });
    expect(counted).toMatchObject([{ key: 'mail.send', approximate: true }]);
  });
});
