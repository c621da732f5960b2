/**
 * insert — an inserted entry comes out unchanged and once; an existing one is never overwritten.
 */

import assert from 'node:assert/strict';
import type { Entry } from '../../core/entry.ts';
import { failure } from '../../core/failure.ts';
import { PRIORITY_MAX } from '../../core/limits.ts';
import { handedOffStatus } from '../../core/next-status.ts';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from '../samples.ts';
import {
  assertSameBytes,
  assertSameEntry,
  entryChange,
  claim,
  claimIds,
  type EntryCase,
  got,
  later,
  listIds,
  put,
  steppedStatus,
} from './shared.ts';

const UNICODE = 'Grüße, 世界 🌍 — "quoted" \\ \'single\' % _ <tag> \u2028';

/** An entry that uses every field there is. */
function fullEntry(id: string): Entry {
  return sampleEntry(id, {
    topic: 'a.b-c_d:e/f',
    headers: { 'content-type': 'text/plain', tenant: UNICODE, empty: '' },
    enqueuedAt: later(-5),
    expiresAt: later(86_400_000),
    priority: 0,
    dedupeKey: `key ${UNICODE}`,
    eta: later(5),
    ownId: true,
    destination: `host ${UNICODE}`,
    orderKey: `order ${UNICODE}`,
    state: 'deferred',
    policy: 'webhooks',
    revision: 7,
    attempts: 3,
    postponed: 2,
    lost: 1,
    replays: 4,
    notices: 5,
    dueAt: later(1_234),
    because: { code: 'smtp.451', text: UNICODE, by: 'handler' },
    ending: 'bounced',
    lastFailure: failure('transient', 'smtp.451', UNICODE, 600_000),
    history: [
      { at: later(-3), tookMs: 12.5, by: 'a', lane: 'delivery', attempt: 1, code: 'smtp.451' },
      {
        at: later(-1),
        tookMs: 0,
        by: 'b',
        lane: 'notice',
        attempt: 2,
        code: 'timeout',
        reason: UNICODE,
      },
    ],
    notes: { 'remote-id': UNICODE },
    updatedAt: later(-1),
  });
}

export const insertCases: readonly EntryCase[] = [
  {
    name: 'an inserted entry is read back with every field unchanged',
    async run({ store }) {
      const entry = fullEntry('full');
      await put(store, entry);
      assertSameEntry(await store.get('full'), entry);
    },
  },
  {
    name: 'an entry without any optional field is read back without them',
    async run({ store }) {
      const entry = sampleEntry('plain', { isStored: true });
      await put(store, entry);
      const found = await got(store, 'plain');
      assertSameEntry(found, entry);
      assert.ok(!('inlineBody' in found), 'an inline body appeared from nowhere');
    },
  },
  {
    name: 'an empty inline body stays an empty inline body',
    async run({ store }) {
      const entry = sampleEntry('empty', { bytes: new Uint8Array(0) });
      await put(store, entry);
      assertSameEntry(await store.get('empty'), entry);
    },
  },
  {
    name: 'a binary inline body keeps every byte value',
    async run({ store }) {
      const bytes = Uint8Array.from({ length: 1_024 }, (_, index) => (index * 7) % 256);
      const entry = sampleEntry('binary', { bytes });
      await put(store, entry);
      assertSameEntry(await store.get('binary'), entry);
    },
  },
  {
    name: 'an inline body as large as the store allows is kept whole',
    async run({ store }) {
      const size = Math.min(store.traits.inlineMaxBytes, 2 ** 20);
      const bytes = Uint8Array.from({ length: size }, (_, index) => (index * 31) % 251);
      await put(store, sampleEntry('large', { bytes }));
      const { inlineBody } = await got(store, 'large');
      assert.ok(inlineBody !== undefined && Buffer.compare(inlineBody, bytes) === 0);
    },
  },
  {
    name: 'a claimed entry brings its inline body along',
    async run({ store }) {
      const bytes = Uint8Array.of(0, 255, 10, 13);
      await put(store, sampleEntry('a', { bytes }));
      const [entry] = await claim(store);
      assertSameBytes(entry?.inlineBody, bytes, 'the claimed body differs');
    },
  },
  {
    name: 'every priority from 0 to 9 is kept',
    async run({ store }) {
      const entries = sampleEntries(PRIORITY_MAX + 1, 'p', (index) => ({ priority: index }));
      await put(store, ...entries);
      for (const entry of entries) assertSameEntry(await store.get(entry.envelope.id), entry);
    },
  },
  {
    name: 'an id of 64 characters and every allowed kind is kept',
    async run({ store }) {
      const id = '0az_-'.padEnd(64, '_-9z');
      const entry = sampleEntry(id);
      await put(store, entry);
      assertSameEntry(await store.get(id), entry);
    },
  },
  {
    name: 'the results of an insert come in the order of its entries',
    async run({ store }) {
      await put(store, sampleEntry('b'));
      const results = await store.insert([sampleEntry('a'), sampleEntry('b'), sampleEntry('c')]);
      assert.deepEqual(results, ['stored', { duplicateOf: 'b' }, 'stored']);
    },
  },
  {
    name: 'an id that is there already is a duplicate, and the first entry is not overwritten',
    async run({ store }) {
      const first = sampleEntry('a', { headers: { n: '1' }, bytes: Uint8Array.of(1) });
      await put(store, first);
      const again = sampleEntry('a', { headers: { n: '2' }, bytes: Uint8Array.of(2) });
      assert.deepEqual(await store.insert([again]), [{ duplicateOf: 'a' }]);
      assertSameEntry(await store.get('a'), first);
    },
  },
  {
    name: 'a dedupe key that is there already is a duplicate of the entry that holds it',
    async run({ store }) {
      const first = sampleEntry('a', { dedupeKey: 'welcome 42' });
      await put(store, first);
      const again = sampleEntry('b', { dedupeKey: 'welcome 42' });
      assert.deepEqual(await store.insert([again]), [{ duplicateOf: 'a' }]);
      assert.equal(await store.get('b'), undefined);
      assertSameEntry(await store.get('a'), first);
    },
  },
  {
    name: 'dedupe keys that differ only in case or accents are different keys',
    async run({ store }) {
      const keys = ['key', 'KEY', 'kéy', 'key ', ' key', 'ke\u0301y'];
      await put(store, ...keys.map((dedupeKey, index) => sampleEntry(`k${index}`, { dedupeKey })));
      assert.equal((await listIds(store)).length, keys.length);
    },
  },
  {
    name: 'an id that comes twice in one batch is stored once, the first time',
    async run({ store }) {
      const first = sampleEntry('a', { headers: { n: '1' } });
      const results = await store.insert([first, sampleEntry('a', { headers: { n: '2' } })]);
      assert.deepEqual(results, ['stored', { duplicateOf: 'a' }]);
      assertSameEntry(await store.get('a'), first);
    },
  },
  {
    name: 'a dedupe key that comes twice in one batch is stored once, the first time',
    async run({ store }) {
      const results = await store.insert([
        sampleEntry('a', { dedupeKey: 'k' }),
        sampleEntry('b', { dedupeKey: 'k' }),
        sampleEntry('c'),
      ]);
      assert.deepEqual(results, ['stored', { duplicateOf: 'a' }, 'stored']);
      assert.deepEqual(await listIds(store), ['a', 'c']);
    },
  },
  {
    name: 'inserts of one dedupe key at the same time store one entry',
    async run({ store }) {
      const entries = sampleEntries(20, 'd', { dedupeKey: 'k' });
      const results = (await Promise.all(entries.map((entry) => store.insert([entry])))).flat();
      const stored = results.indexOf('stored');
      const winner = entries[stored]?.envelope.id;
      assert.deepEqual(await listIds(store), [winner]);
      const duplicates = results.filter((_, index) => index !== stored);
      assert.deepEqual(
        duplicates,
        duplicates.map(() => ({ duplicateOf: winner })),
      );
    },
  },
  {
    name: 'an archived entry still holds its id and its dedupe key',
    async run({ store }) {
      const entry = sampleEntry('a', { dedupeKey: 'k' });
      await put(store, entry);
      const archived = steppedStatus(entry, { state: 'archived', ending: 'delivered' });
      await store.commit([entryChange(entry, archived)]);
      const again = [sampleEntry('a'), sampleEntry('b', { dedupeKey: 'k' })];
      assert.deepEqual(await store.insert(again), [{ duplicateOf: 'a' }, { duplicateOf: 'a' }]);
    },
  },
  {
    name: 'id and dedupe key are free again once the entry is removed',
    async run({ store }) {
      const entry = sampleEntry('a', { dedupeKey: 'k' });
      await put(store, entry);
      await store.commit([entryChange(entry, 'remove')]);
      await put(store, sampleEntry('a'), sampleEntry('b', { dedupeKey: 'k' }));
      assert.deepEqual(await listIds(store), ['a', 'b']);
    },
  },
  {
    name: 'an entry that comes in active can be claimed by others only after its lease',
    async run({ store }) {
      const fresh = sampleEntry('a');
      const hold = { now: SAMPLE_AT, leaseMs: SAMPLE_LEASE_MS, holder: `${store.instance}:own` };
      const active: Entry = { ...fresh, status: handedOffStatus(fresh.status, hold) };
      await put(store, active);
      assertSameEntry(await store.get('a'), active);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS - 1) }), []);
      assert.deepEqual(await claimIds(store, { now: later(SAMPLE_LEASE_MS) }), ['a']);
    },
  },
  {
    name: 'an entry that comes in active is settled by the holder it came with',
    async run({ store }) {
      const fresh = sampleEntry('a');
      const hold = { now: SAMPLE_AT, leaseMs: SAMPLE_LEASE_MS, holder: `${store.instance}:own` };
      const active: Entry = { ...fresh, status: handedOffStatus(fresh.status, hold) };
      await put(store, active);
      assert.deepEqual(await store.commit([entryChange(active, 'remove')]), ['done']);
      assert.equal(await store.get('a'), undefined);
    },
  },
  {
    name: '2,000 entries go in with one call',
    async run({ store }) {
      const entries = sampleEntries(2_000, 'm');
      await put(store, ...entries);
      assert.equal((await listIds(store)).length, 2_000);
      assertSameEntry(await store.get('m-01999'), entries[1_999] as Entry);
    },
  },
  {
    name: 'inserts at the same time are all kept',
    async run({ store }) {
      const entries = sampleEntries(200, 'm');
      const results = await Promise.all(entries.map((entry) => store.insert([entry])));
      assert.ok(results.every(([result]) => result === 'stored'));
      assert.equal((await listIds(store)).length, 200);
    },
  },
  {
    name: 'an insert of nothing returns nothing',
    async run({ store }) {
      assert.deepEqual(await store.insert([]), []);
    },
  },
  {
    name: 'an id that was never inserted is not there',
    async run({ store }) {
      assert.equal(await store.get('nobody'), undefined);
    },
  },
  {
    name: 'changing bytes after the insert does not change what is stored',
    async run({ store }) {
      const bytes = Uint8Array.of(1, 2, 3);
      await put(store, sampleEntry('a', { bytes }));
      bytes[0] = 99;
      const { inlineBody } = await got(store, 'a');
      assertSameBytes(inlineBody, Uint8Array.of(1, 2, 3), 'the stored bytes changed');
    },
  },
  {
    name: 'changing bytes that were handed out does not change what is stored',
    async run({ store }) {
      await put(store, sampleEntry('a', { bytes: Uint8Array.of(1, 2, 3) }));
      const handedOut = [(await got(store, 'a')).inlineBody, (await claim(store))[0]?.inlineBody];
      for (const bytes of handedOut) bytes?.fill(0);
      const { inlineBody } = await got(store, 'a');
      assertSameBytes(inlineBody, Uint8Array.of(1, 2, 3), 'the stored bytes changed');
    },
  },
];
