/** pages — a walk through a list misses nothing and repeats nothing, whatever happens meanwhile. */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import type { EntryStore, ListOrder, ListQuery } from '../../ports/entry-store.ts';
import { sampleEntries, sampleEntry } from '../samples.ts';
import {
  assertRefused,
  changeOf,
  type EntryCase,
  got,
  idsOf,
  later,
  listIds,
  put,
  stepped,
} from './shared.ts';

/** Entries that come in other orders than by id, with many ties. */
function mixed(count: number): Entry[] {
  return sampleEntries(count, 'm', (index) => ({
    priority: (index * 7) % 10,
    attempts: (index * 5) % 4,
    dueAt: index % 6 === 0 ? null : later((index * 11) % 23),
    updatedAt: later((index * 3) % 13),
    state: index % 6 === 0 ? 'hold' : 'incoming',
  }));
}

/** Walks a list, doing something between its pages; the ids in the order seen. */
async function walk(
  store: EntryStore,
  query: ListQuery,
  between: (page: number) => Promise<void>,
): Promise<readonly string[]> {
  const seen: string[] = [];
  let after: string | undefined;
  for (let page = 0; page < 1_000; page += 1) {
    const found = await store.list(after === undefined ? query : { ...query, after });
    seen.push(...idsOf(found.entries));
    if (found.next === undefined) return seen;
    after = found.next;
    await between(page);
  }
  return assert.fail('the list did not end');
}

/** Every id once: what stays must be there, nothing may be there twice. */
function assertOnce(seen: readonly string[], wanted: readonly string[]): void {
  const counts = new Map<string, number>();
  for (const id of seen) counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const id of wanted) {
    assert.equal(counts.get(id) ?? 0, 1, `"${id}" was seen ${counts.get(id) ?? 0} times`);
  }
}

async function change(
  store: EntryStore,
  id: string,
  parts: Parameters<typeof stepped>[1] | 'remove',
): Promise<void> {
  const entry = await got(store, id);
  const to = parts === 'remove' ? 'remove' : stepped(entry, parts);
  assert.deepEqual(await store.commit([changeOf(entry, to)]), ['done']);
}

const ORDERS: readonly ListOrder[] = ['id', 'dueAt', 'updatedAt', 'priority', 'attempts'];

const WALKS: readonly EntryCase[] = ORDERS.flatMap((order) =>
  [false, true].map((descending) => ({
    name: `pages by ${order}, ${descending ? 'down' : 'up'}, are the whole list in its order`,
    async run({ store }: { readonly store: EntryStore }) {
      await put(store, ...mixed(53));
      const whole = await listIds(store, { order, descending });
      assert.equal(new Set(whole).size, 53);
      for (const limit of [1, 7, 52, 53]) {
        assert.deepEqual(await listIds(store, { order, descending, limit }), whole);
      }
    },
  })),
);

const CHANGING: readonly EntryCase[] = ORDERS.map((order) => ({
  name: `pages by ${order} show each untouched entry once while others come, go and move`,
  async run({ store }) {
    const entries = mixed(60);
    await put(store, ...entries);
    const touched = idsOf(entries).filter((_, index) => index % 3 === 0);
    const untouched = idsOf(entries).filter((_, index) => index % 3 !== 0);
    const seen = await walk(store, { order, limit: 6 }, async (page) => {
      const id = touched[page];
      if (id !== undefined && page % 2 === 0) await change(store, id, 'remove');
      else if (id !== undefined) {
        await change(store, id, { attempts: 9, dueAt: later(1e6), updatedAt: later(1e6) });
      }
      await put(store, sampleEntry(`a-${page}`), sampleEntry(`z-${page}`, { priority: 0 }));
    });
    assertOnce(seen, untouched);
  },
}));

export const pageCases: readonly EntryCase[] = [
  ...WALKS,
  ...CHANGING,
  {
    name: 'pages by id never show an entry twice, even when it moves',
    async run({ store }) {
      const entries = mixed(40);
      await put(store, ...entries);
      const seen = await walk(store, { limit: 5 }, async (page) => {
        const moving = idsOf(entries)[page * 3];
        if (moving !== undefined) {
          await change(store, moving, { state: 'deferred', updatedAt: later(1e6 + page) });
        }
      });
      assertOnce(seen, idsOf(entries));
      assert.equal(seen.length, 40);
    },
  },
  {
    name: 'pages of a filtered list hold what fits and nothing else',
    async run({ store }) {
      await put(store, ...mixed(60));
      const query = { states: ['hold' as const], order: 'updatedAt' as const };
      const pages = await listIds(store, { ...query, limit: 2 });
      assert.equal(pages.length, 10);
      assert.deepEqual(pages, await listIds(store, query));
    },
  },
  {
    name: 'a page whose place was removed goes on where it was',
    async run({ store }) {
      const ids = idsOf(mixed(10));
      await put(store, ...mixed(10));
      const first = await store.list({ limit: 4 });
      const seen = idsOf(first.entries);
      for (const id of seen) await change(store, id, 'remove');
      const rest = await listIds(store, { limit: 4, after: first.next ?? '' });
      assert.deepEqual([...seen, ...rest], ids);
    },
  },
  {
    name: 'a place in a list that no list ever gave is refused',
    async run({ store }) {
      await put(store, ...sampleEntries(5, 'm'));
      for (const after of ['nonsense', '%%%', '{}', 'e30', 'W10', 'bnVsbA', "' or 1=1 --"]) {
        await assertRefused(() => store.list({ limit: 2, after }), 'config.invalid');
      }
    },
  },
  {
    name: 'a place in a list of another order is refused',
    async run({ store }) {
      await put(store, ...sampleEntries(5, 'm'));
      const { next } = await store.list({ limit: 2, order: 'dueAt' });
      assert.ok(next !== undefined);
      const after = next;
      await assertRefused(
        () => store.list({ limit: 2, order: 'priority', after }),
        'config.invalid',
      );
      await assertRefused(
        () => store.list({ limit: 2, order: 'dueAt', descending: true, after }),
        'config.invalid',
      );
    },
  },
];
