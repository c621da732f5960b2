/** Retries, then new messages, then notices: after pauses, restarts and late handlers (R69). */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, type EntryStore, fixed, type Spool } from 'respool';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import { SimClock } from 'respool/testkit';
import { afterEach, describe, expect, test } from 'vitest';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

type Store = 'memory' | 'sqlite';

/** Opens the same store again and again, one after the other. */
async function storeOf(kind: Store): Promise<() => EntryStore> {
  if (kind === 'memory') {
    const shared = createMemoryData();
    return () => memory({ shared });
  }
  const path = await mkdtemp(join(tmpdir(), 'respool-precedence-'));
  ends.push(() => rm(path, { recursive: true, force: true }));
  return () => sqlite({ path });
}

interface Place {
  readonly spool: Spool;
  readonly clock: SimClock;
  /** What ran, in its order: `retry a`, `new b`, `notice c`. */
  readonly ran: string[];
  readonly deliver: (topic: string, concurrency?: number) => void;
  readonly announce: (topic: string) => void;
  /** Lets virtual time pass until this is so. */
  readonly until: (isSo: () => boolean | Promise<boolean>) => Promise<void>;
}

/** One slot, so that the order of claims is the order of attempts. */
function placeOf(open: () => EntryStore, clock: SimClock): Place {
  const spool = createSpool({
    entries: open(),
    bodies: memoryBodies({ clock }),
    clock,
    concurrency: 1,
    unhandled: 'leave',
    policies: { default: fixed('1h', { attempts: 3 }) },
  });
  ends.push(() => spool.stop());
  const ran: string[] = [];
  const deliver: Place['deliver'] = (topic, concurrency) => {
    const handler = ({ attempt, id }: { attempt: number; id: string }): void => {
      ran.push(`${attempt > 1 ? 'retry' : 'new'} ${id}`);
      if (id.startsWith('r') && attempt === 1) throw new Error('not yet');
    };
    spool.handle(topic, handler, concurrency === undefined ? {} : { concurrency });
  };
  const announce: Place['announce'] = (topic) => {
    spool.onBounce(topic, ({ id }) => void ran.push(`notice ${id}`));
  };
  return { spool, clock, ran, deliver, announce, until: (isSo) => until(clock, isSo) };
}

/** Lets virtual time pass until this is so; stores with a disk need some real time as well. */
async function until(clock: SimClock, isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) {
    await clock.advance(5);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Messages of a topic that failed once and are due in an hour. */
async function failOnce({ spool, until }: Place, topic: string, ids: readonly string[]) {
  await spool.enqueueMany(ids.map((id) => ({ topic, id })));
  await until(async () => (await spool.count()).deferred >= ids.length);
}

const AFTERWARDS = ['retry r1', 'new n1', 'notice b1'];

describe.each<Store>(['memory', 'sqlite'])('on %s', (kind) => {
  test.each([
    ['everything', undefined],
    ['their topic', 'a'],
  ] as const)('after a pause of %s', async (_, topic) => {
    const here = placeOf(await storeOf(kind), new SimClock());
    const { spool, clock, ran, deliver, announce, until } = here;
    deliver('a');
    deliver('other');
    announce('#');
    await spool.start();
    await failOnce(here, 'a', ['r1']);
    // So that the turns stand anywhere.
    await spool.enqueue({ topic: 'other', id: 'o1' });
    await until(() => ran.includes('new o1'));
    await spool.operator({ by: 'ops' }).pause(topic ?? '#');
    await spool.enqueue({ topic: 'a', id: 'b1' });
    await spool.operator({ by: 'ops' }).bounce(['b1']);
    await spool.enqueue({ topic: 'a', id: 'n1' });
    await clock.advance('2h');
    ran.length = 0;
    await spool.operator({ by: 'ops' }).resume(topic ?? '#');
    await until(() => ran.length === 3);
    expect(ran).toEqual(AFTERWARDS);
  });

  test.each([
    ['notices first', ['announce', 'deliver']],
    ['deliveries first', ['deliver', 'announce']],
  ] as const)('when handlers come late, %s, and after a restart', async (_, order) => {
    const clock = new SimClock();
    const open = await storeOf(kind);
    const before = placeOf(open, clock);
    before.deliver('a');
    await before.spool.start();
    await failOnce(before, 'a', ['r1']);
    await before.spool.operator({ by: 'ops' }).pause('a');
    await before.spool.enqueue({ topic: 'a', id: 'b1' });
    await before.spool.operator({ by: 'ops' }).bounce(['b1']);
    await before.spool.enqueue({ topic: 'a', id: 'n1' });
    await before.spool.operator({ by: 'ops' }).resume('a');
    await before.spool.stop();
    await clock.advance('2h');
    const after = placeOf(open, clock);
    after.deliver('other');
    await after.spool.start();
    await after.spool.enqueue({ topic: 'other', id: 'o1' });
    await after.until(() => after.ran.includes('new o1'));
    after.ran.length = 0;
    for (const register of order) after[register]('a');
    await after.until(() => after.ran.length === 3);
    expect(after.ran).toEqual(AFTERWARDS);
  });

  test('when onBounce comes later', async () => {
    const here = placeOf(await storeOf(kind), new SimClock());
    const { spool, clock, ran, deliver, announce, until } = here;
    deliver('a');
    await spool.start();
    await failOnce(here, 'a', ['r1', 'r2']);
    await spool.operator({ by: 'ops' }).pause('#');
    await spool.enqueueMany(['b1', 'b2', 'n1', 'n2'].map((id) => ({ topic: 'a', id })));
    await spool.operator({ by: 'ops' }).bounce(['b1', 'b2']);
    await clock.advance('2h');
    ran.length = 0;
    announce('a');
    await spool.operator({ by: 'ops' }).resume('#');
    await until(() => ran.length === 6);
    // Two turns of four for retries, one each for the others.
    expect(ran.map((one) => one.split(' ')[0])).toEqual([
      'retry',
      'new',
      'retry',
      'notice',
      'new',
      'notice',
    ]);
  });

  test('what is enqueued right after its handler came does not overtake what waits', async () => {
    const here = placeOf(await storeOf(kind), new SimClock());
    const { spool, clock, ran, deliver, until } = here;
    deliver('other');
    await spool.start();
    await spool.enqueue({ topic: 'a', id: 'n1' });
    await clock.advance('1s');
    deliver('a');
    await spool.enqueue({ topic: 'a', id: 'n2' });
    await until(() => ran.length === 2);
    expect(ran).toEqual(['new n1', 'new n2']);
  });

  test.each([
    ['alone', false],
    ['beside a bounce handler of the same topics that has one, too', true],
  ] as const)('a handler with a limit gives new messages their turns, %s', async (_, isBeside) => {
    const clock = new SimClock();
    const spool = createSpool({
      entries: (await storeOf(kind))(),
      bodies: memoryBodies({ clock }),
      clock,
      concurrency: 8,
      policies: { default: fixed('1ms', { attempts: 1_000 }) },
    });
    ends.push(async () => {
      let isStopped = false;
      void spool.stop().finally(() => {
        isStopped = true;
      });
      await until(clock, () => isStopped);
    });
    const fresh: string[] = [];
    const attempts = new Map<string, number>();
    spool.handle(
      'a',
      async ({ id, attempt }) => {
        attempts.set(id, attempt);
        // As long as this, so that other retries are always due.
        await new Promise<void>((resolve) => clock.after(2, resolve));
        if (id.startsWith('n')) fresh.push(id);
        else throw new Error('always');
      },
      { concurrency: 1 },
    );
    if (isBeside) spool.onBounce('a', () => undefined, { concurrency: 1 });
    await spool.start();
    await spool.enqueueMany(Array.from({ length: 20 }, (_, at) => ({ topic: 'a', id: `r${at}` })));
    // The first of them, too, are new: without turns one of them would be tried again and again.
    const most = (): number => Math.max(0, ...attempts.values());
    await until(clock, () => attempts.size === 20 || most() > 100);
    expect(attempts.size).toBe(20);
    await spool.enqueueMany(['n1', 'n2', 'n3'].map((id) => ({ topic: 'a', id })));
    const before = most();
    await until(clock, () => fresh.length === 3 || most() > before + 5);
    expect(fresh).toEqual(['n1', 'n2', 'n3']);
  });
});
