/** The source suite, against the spool; and that it finds what a source does wrong. */
import { describe, expect, test } from 'vitest';
import type { Source } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { seededDice, SimClock, sourceSuite, type SourceUnderTest } from 'respool/testkit';
import { Enqueuer } from '../../src/spool/enqueue.ts';
import { Runtime } from '../../src/spool/runtime.ts';
import { runSuite } from '../suite.ts';

const STATES_AT: Readonly<Record<string, readonly string[]>> = {
  waiting: ['incoming', 'deferred'],
  gone: ['archived', 'removed'],
  dead: ['bounce'],
  held: ['hold'],
};

/** A spool in memory and virtual time, as a source; `change` breaks it on purpose. */
async function makeSpool(change = (source: Source): Source => source): Promise<SourceUnderTest> {
  const clock = new SimClock();
  const runtime = new Runtime({
    entries: memory(),
    bodies: memoryBodies({ clock }),
    dice: seededDice(1),
    clock,
  });
  await runtime.ready();
  const { source } = runtime;
  const entrance = new Enqueuer(runtime);
  return {
    source: change(source),
    put: async (messages) => void (await entrance.enqueueMany(messages)),
    pass: (ms) => clock.advance(ms),
    reaches: async (id, place) => {
      const state = (await runtime.entries.get(id))?.status.state ?? 'removed';
      expect(STATES_AT[place]).toContain(state);
    },
    loseClaims: () => clock.advance(source.leaseMs),
    dispose: () => runtime.stop(0),
  };
}

const CAN = { canLose: true, picksTopics: true, keepsOrder: true, canExtend: true } as const;

runSuite('the spool as a source', sourceSuite(makeSpool, CAN));

describe('the source suite', () => {
  /** The source with some methods replaced; the rest keeps its private state. */
  const broken =
    (parts: (source: Source) => Partial<Source>) =>
    (source: Source): Source =>
      new Proxy(source, {
        get(target, name) {
          const own = (parts(target) as Record<PropertyKey, unknown>)[name];
          if (own !== undefined) return own;
          const value: unknown = Reflect.get(target, name);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });

  const ACKS_ALL = broken((source) => ({
    settle: (claim, settlement) =>
      source.settle(claim, { ...settlement, verdict: { kind: 'ack' } }),
  }));
  const TOO_MUCH = broken((source) => ({
    next: (demand) => source.next({ ...demand, max: 10, wants: manyOf(demand.wants) }),
  }));
  const NEVER_STALE = broken((source) => ({
    settle: async (claim, settlement) => {
      await source.settle(claim, settlement);
      return 'done';
    },
  }));
  const CUT_BODIES = broken((source) => ({
    bytes: () => undefined,
    async *body(claim) {
      for await (const chunk of source.body(claim)) yield chunk.subarray(1);
    },
  }));

  function manyOf<T extends { readonly max: number }>(wants: readonly T[]): T[] {
    return wants.map((want) => ({ ...want, max: 10 }));
  }

  test.each([
    ['drops what should be tried again', ACKS_ALL, /held|bounces/],
    ['gives more than was asked for', TOO_MUCH, /at most what is asked for/],
    ['takes the word of a lost holder', NEVER_STALE, /lost is stale/],
    ['cuts bodies', CUT_BODIES, /byte for byte/],
  ])('finds a source that %s', async (_, change, named) => {
    const found: string[] = [];
    const cases = sourceSuite(() => makeSpool(change), CAN);
    for (const { name, run } of cases.filter((one) => named.test(one.name))) {
      await run().catch(() => found.push(name));
    }
    expect(found).not.toEqual([]);
  });

  test('leaves out what a source cannot be asked, and names a way the maker does not give', async () => {
    const none = { canLose: false, picksTopics: false, keepsOrder: false, canExtend: false };
    const names = sourceSuite(makeSpool, none).map(({ name }) => name);
    expect(names.filter((name) => /order|topics|lost|extending/.test(name))).toEqual([]);
    const without = async (): Promise<SourceUnderTest> => {
      const { loseClaims: _, ...rest } = await makeSpool();
      return rest;
    };
    const lost = sourceSuite(without, CAN).find(({ name }) => name.includes('lost is stale'));
    await expect(lost?.run()).rejects.toThrow(/promised "loseClaims"/);
  });
});
