/** endings — messages with a dedupe key end in batches, and none fails its neighbours. */

import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import type { Change, Entry } from 'respool';
import { withService } from '../../services/index.ts';
import { faultyPool, loseAnswers } from './faulty-pool.ts';
import { openStore } from './setup.ts';
import { claim, entryChange, got, steppedStatus } from '../requests.ts';

async function setup(count: number) {
  const pool = await faultyPool();
  const store = await openStore({ pool });
  const keyed = (n: number): Entry => sampleEntry(`m-${n}`, { dedupeKey: `k-${n}` });
  await store.insert(Array.from({ length: count }, (_, n) => keyed(n)));
  const texts: string[] = [];
  pool.plan = (text) => {
    texts.push(text);
    return 'none';
  };
  return { pool, store, texts, claimed: await claim(store, { max: count }) };
}

/** What a delivery leaves of a message whose key is remembered. */
function ended(entry: Entry, dedupeKey = entry.envelope.dedupeKey ?? ''): Change {
  const body = { ...entry.envelope.body, place: 'none' as const };
  const to = steppedStatus(entry, { state: 'archived', ending: 'delivered', dueAt: 1 });
  return entryChange(entry, to, { envelope: { ...entry.envelope, body, dedupeKey } });
}

withService('postgres', () => {
  test('a batch of them is one statement', async () => {
    const { store, texts, claimed } = await setup(100);
    texts.length = 0;
    const stale = { ...ended(claimed[7] as Entry), revision: 99 };
    const changes = claimed.map((entry, n) => (n === 7 ? stale : ended(entry)));
    const answers = await store.commit(changes);
    expect(answers.map((answer, n) => (answer === 'stale' ? n : -1)).filter((n) => n >= 0)).toEqual(
      [7],
    );
    // Where one was stale, it may have had an order key: that is asked once more.
    expect(texts.filter((text) => !text.includes('is_called'))).toHaveLength(1);
    const left = await got(store, claimed[3]?.envelope.id ?? '');
    expect(left).toMatchObject({
      envelope: { dedupeKey: claimed[3]?.envelope.dedupeKey, body: { place: 'none' } },
      status: { state: 'archived' },
    });
    expect(left.inlineBody).toBeUndefined();
    expect((await got(store, claimed[7]?.envelope.id ?? '')).status.state).toBe('active');
  });

  test('one whose new key belongs to another is refused alone', async () => {
    const { store, claimed } = await setup(4);
    const [a, b, c] = claimed as [Entry, Entry, Entry];
    const answers = await Promise.allSettled([
      store.commit([ended(a)]),
      store.commit([ended(b, 'k-3')]),
      store.commit([ended(c)]),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect((await got(store, b.envelope.id)).status.state).toBe('active');
  });

  test('a batch whose answer was lost is told to be done', async () => {
    const { pool, store, claimed } = await setup(3);
    pool.plan = loseAnswers(/rewritten/, 1);
    expect(await store.commit(claimed.map((entry) => ended(entry)))).toEqual(
      claimed.map(() => 'done'),
    );
  });
});
