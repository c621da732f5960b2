/** tallies — counts above the limit are estimates, said to be so and remembered for a while. */

import { expect, test } from 'vitest';
import { sampleEntries } from 'respool/testkit';
import { withService } from '../../services/index.ts';
import { openClient, openStore, ownSchema } from './setup.ts';
import { systemClock } from '../../time.ts';
import { claimRequest } from '../requests.ts';

withService('postgres', () => {
  test('up to the limit counts are exact, above it they are marked', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema }, { countMax: 50 });
    await store.insert(sampleEntries(50, 'm'));
    expect(await store.tally('state', {})).toMatchObject([{ key: 'incoming', count: 50 }]);
    expect((await store.tally('state', {}))[0]).not.toHaveProperty('approximate');
    await store.insert(sampleEntries(150, 'n', { topic: 'other' }));
    await store.insert(sampleEntries(3, 'h', { state: 'hold', dueAt: null }));
    await (await openClient()).query(`ANALYZE "${schema}".entries`);
    const [incoming, hold] = await store.tally('state', {});
    expect(incoming).toMatchObject({ key: 'incoming', approximate: true, oldestAt: null });
    expect(incoming?.count).toBeGreaterThan(50);
    expect(Math.abs((incoming?.count ?? 0) - 200)).toBeLessThan(60);
    expect(hold).toMatchObject({ key: 'hold', count: 3 });
    expect(hold).not.toHaveProperty('approximate');
    const topics = await store.tally('topic', {});
    expect(topics.every(({ approximate }) => approximate === true)).toBe(true);
  });

  test('an estimate is remembered for five seconds, an exact count never', async () => {
    let nowMs = 0;
    const clock = { ...systemClock, monotonic: () => nowMs };
    const store = await openStore({}, { countMax: 10, clock });
    await store.insert(sampleEntries(20, 'm'));
    const first = await store.tally('state', {});
    await store.claim(claimRequest(store, { max: 20 }));
    expect(await store.tally('state', {})).toBe(first);
    nowMs += 5_000;
    expect(await store.tally('state', {})).toMatchObject([{ key: 'active', approximate: true }]);
    await store.insert(sampleEntries(5, 'n'));
    nowMs += 5_000;
    expect((await store.tally('state', { states: ['incoming'] }))[0]?.count).toBe(5);
    await store.insert(sampleEntries(2, 'o'));
    expect((await store.tally('state', { states: ['incoming'] }))[0]?.count).toBe(7);
  });

  test('an insert touches no row that another insert touches', async () => {
    const schema = ownSchema();
    const store = await openStore({ schema });
    const client = await openClient();
    await client.query('BEGIN');
    // Held open: if inserts shared a counter, the next one would wait for this transaction.
    await store.insertWithin(client, sampleEntries(3, 'm'));
    expect(await store.insert(sampleEntries(3, 'n'))).toEqual(['stored', 'stored', 'stored']);
    await client.query('COMMIT');
    expect(await store.tally('state', {})).toMatchObject([{ count: 6 }]);
  });
});
