/** The spool as a source, where a whole spool is too coarse to see it: dryness and alarms. */
import { memory, memoryBodies } from 'respool/stores/memory';
import { SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { Events } from '../../src/engine/events.ts';
import { Chain } from '../../src/spool/chain.ts';
import { BodyRemover } from '../../src/spool/body.ts';
import { SpoolSource } from '../../src/spool/source.ts';
import { StoreClock } from '../../src/system/clock.ts';

const DEMAND = {
  max: 1,
  wants: [{ lane: 'delivery' as const, topics: [{ pattern: '#', take: true }], max: 1 }],
  exceptDestinations: [],
};

async function setup(): Promise<{ source: SpoolSource; clock: SimClock }> {
  const clock = new SimClock();
  const entries = memory();
  const bodies = memoryBodies();
  await entries.open();
  await bodies.open();
  const source = new SpoolSource({
    entries,
    bodies,
    chain: new Chain([]),
    bodyRemover: new BodyRemover(entries, bodies, () => undefined),
    events: new Events(),
    clock,
    storeClock: new StoreClock(clock, entries),
    leaseMs: 60_000,
    retention: { deliveredMs: null, bouncedMs: null, removedMs: 0, dedupeWindowMs: 0 },
    settlesDurably: false,
    pollMs: 30_000,
    announces: () => false,
    recordSettledAgain: async () => undefined,
    onClockJump: () => undefined,
    wentBackAt: () => undefined,
  });
  return { source, clock };
}

describe('a source is dry', () => {
  test('after a round that took everything, and while it sleeps and knows of nothing due', async () => {
    const { source, clock } = await setup();
    const mayHandOff = (): boolean => source.mayHandOff(source.now());
    expect(mayHandOff()).toBe(false);
    await source.next(DEMAND);
    // A round that left slots free took all there was; for a moment that is known.
    expect(mayHandOff()).toBe(true);
    expect(source.mayHandOff(source.now() + 1_000)).toBe(false);
    const wait = source.wait(DEMAND, new AbortController().signal);
    await clock.settle();
    expect(source.mayHandOff(source.now() + 1_000)).toBe(true);
    // From the alarm on, before anybody could wake up.
    source.alarm();
    expect(mayHandOff()).toBe(false);
    await wait;
    expect(mayHandOff()).toBe(false);
  });

  test('no longer from the moment the next thing is due', async () => {
    const { source, clock } = await setup();
    await source.next(DEMAND);
    source.noteDue(clock.now() + 5_000);
    const wait = source.wait(DEMAND, new AbortController().signal);
    await clock.settle();
    expect(source.mayHandOff(source.now() + 4_999)).toBe(true);
    expect(source.mayHandOff(source.now() + 5_000)).toBe(false);
    await clock.advance(5_000);
    await wait;
  });
});

describe('a wait', () => {
  test('ends with its signal, also one that was aborted before', async () => {
    const { source, clock } = await setup();
    const abort = new AbortController();
    await source.next(DEMAND);
    const wait = source.wait(DEMAND, abort.signal);
    await clock.settle();
    abort.abort();
    await wait;
    await source.wait(DEMAND, abort.signal);
    expect(clock.timers).toBe(0);
  });

  test('is over at once after news that no round has seen', async () => {
    const { source, clock } = await setup();
    await source.next(DEMAND);
    source.noteDue(clock.now());
    await source.wait(DEMAND, new AbortController().signal);
    await source.next(DEMAND);
    source.alarm();
    await source.wait(DEMAND, new AbortController().signal);
    expect(clock.timers).toBe(0);
  });

  test('gives every claim call a holder of its own', async () => {
    const { source } = await setup();
    const holders = [source.holder(), source.holder(), source.holder()];
    expect(new Set(holders).size).toBe(3);
    for (const holder of holders) expect(holder.startsWith('memory-1/')).toBe(true);
  });
});
