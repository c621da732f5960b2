/** Canaries over a real spool, in virtual time: they count only when their attempts have ended. */
import { describe, expect, test } from 'vitest';
import { type EntryStore, PermanentError } from 'respool';
import { createMemoryData, memory } from 'respool/stores/memory';
import { createTestSpool, faultyStore } from 'respool/testkit';
import {
  cancelReplay,
  createSpoolLetters,
  planReplay,
  removeReplay,
  type ReplayOptions,
  reportReplay,
  resumeReplay,
  runReplay,
  type RunTools,
} from 'respool/dead-letters';
import type { CanaryEnd } from '../../../src/core/reserved-headers.ts';
import { onlyChosen } from '../../../src/cli/commands/dlq/replay/replay.ts';
import { drive, setup as memorySetup } from './setup.ts';

const SOURCE = { kind: 'spool', kinds: ['dead'] } as const;
const THREE = { canary: 3, canaryWait: '2s' } as const;

type Receiver = () => void | Promise<void>;

function refuse(): never {
  throw new PermanentError('mail.refused', 'no such user');
}

function postpone(): never {
  throw new Error('come back later');
}

/** Messages of these topics that bounced; `receivers` decide about attempts from then on. */
async function bounced(topics: readonly string[], entries: EntryStore = memory()) {
  const { spool, clock } = await createTestSpool({ concurrency: 4, entries });
  const receivers = new Map<string, Receiver>();
  const delivered: string[] = [];
  for (const topic of new Set(topics)) {
    receivers.set(topic, refuse);
    spool.handle(topic, async ({ id }) => {
      await receivers.get(topic)?.();
      delivered.push(id);
    });
  }
  for (const topic of topics) await spool.enqueue({ topic, body: 'x' });
  await clock.advance('1m');
  expect((await spool.count()).bounce).toBe(topics.length);
  const operator = spool.operator({ by: 'ann' });
  const letters = createSpoolLetters(operator, { kinds: ['dead'] });
  const plan = async (options: ReplayOptions) =>
    (await planReplay(operator, letters, SOURCE, options, { clock })).id;
  return {
    spool,
    clock,
    operator,
    letters,
    delivered,
    receivers,
    plan,
    run: (id: string) => drive(clock, runReplay(operator, letters, id, { clock })),
    resume: (id: string, tools: RunTools = {}) =>
      drive(clock, resumeReplay(operator, letters, id, { clock, ...tools })),
  };
}

const mails = (count: number): string[] => Array.from({ length: count }, () => 'mail');
const works: Receiver = () => undefined;

describe('a canary without an ended attempt', () => {
  test('stops the replay while nothing is delivered; a resume goes on with the same ones', async () => {
    const { spool, operator, plan, run, resume, receivers, delivered, clock } = await bounced(
      mails(20),
    );
    receivers.set('mail', works);
    await operator.pause('#');
    const id = await plan(THREE);
    const stopped = await run(id);
    expect(stopped).toMatchObject({
      state: 'stopped',
      counts: { sent: 3, again: 0 },
      canaries: { passed: 0, failed: 0, waiting: 3 },
    });
    expect(stopped.because).toMatch(/^0 of 3 canaries were attempted; nothing else was sent/);
    expect((await spool.count()).bounce).toBe(17);
    // Still nothing: the three are watched on, and no others are sent.
    expect(await resume(id)).toMatchObject({ state: 'stopped', counts: { sent: 3 } });
    await operator.resume('#');
    expect(await resume(id)).toMatchObject({
      state: 'done',
      counts: { sent: 20, again: 0 },
      canaries: { passed: 3, failed: 0, waiting: 0 },
    });
    await clock.advance('1m');
    expect(new Set(delivered).size).toBe(20);
    expect(delivered).toHaveLength(20);
    await spool.stop();
  });

  test('stops it behind a backlog, while the attempts of others take all there is', async () => {
    const { spool, plan, run, receivers, clock } = await bounced(mails(20));
    let release: (() => void) | undefined;
    const opened = new Promise<void>((resolve) => (release = resolve));
    receivers.set('mail', () => opened);
    for (let at = 0; at < 50; at += 1) await spool.enqueue({ topic: 'mail', body: 'backlog' });
    await clock.settle();
    const stopped = await run(await plan(THREE));
    expect(stopped.because).toMatch(/^0 of 3 canaries were attempted; nothing else was sent/);
    expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 3 } });
    release?.();
    await clock.advance('1m');
    await spool.stop();
  });

  test('stops it when one of several topics is paused, with the right numbers', async () => {
    const topics = ['mail', 'sms', 'mail', 'mail', 'sms', 'mail'];
    const { spool, operator, plan, run, receivers } = await bounced(topics);
    receivers.set('mail', works).set('sms', works);
    await operator.pause('sms');
    const stopped = await run(await plan(THREE));
    expect(stopped.because).toMatch(/^2 of 3 canaries were attempted; nothing else was sent/);
    expect(stopped).toMatchObject({ canaries: { passed: 2, failed: 0, waiting: 1 } });
    expect((await spool.count()).bounce).toBe(3);
    await spool.stop();
  });

  test('can be cancelled; all letters are where they were, or wait as sent', async () => {
    const { spool, operator, plan, run, clock } = await bounced(mails(8));
    await operator.pause('#');
    const id = await plan(THREE);
    await run(id);
    const cancelled = await cancelReplay(operator, id, { clock });
    expect(cancelled).toMatchObject({ state: 'cancelled', counts: { sent: 3, unsure: 0 } });
    expect(await spool.count()).toMatchObject({ bounce: 5, incoming: 3 });
    await spool.stop();
  });

  test('is passed over when an operator resumes without canaries', async () => {
    const { spool, operator, plan, run, resume } = await bounced(mails(8));
    await operator.pause('#');
    const id = await plan(THREE);
    await run(id);
    const done = await resume(id, { canary: 0 });
    expect(done).toMatchObject({ state: 'done', counts: { sent: 8, waiting: 5 } });
    await spool.stop();
  });

  test('stops it also when the guard never stops', async () => {
    const { spool, operator, plan, run } = await bounced(mails(8));
    await operator.pause('#');
    const stopped = await run(await plan({ ...THREE, stopAbove: 100 }));
    expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 3 } });
    await spool.stop();
  });
});

describe('a canary whose attempt failed', () => {
  test.each([
    ['is deferred', postpone],
    ['bounces', refuse],
  ])('stops it when it %s', async (_, receiver) => {
    const { spool, plan, run, receivers } = await bounced(mails(8));
    receivers.set('mail', receiver);
    const stopped = await run(await plan(THREE));
    expect(stopped).toMatchObject({
      state: 'stopped',
      counts: { sent: 3, again: 3 },
      canaries: { passed: 0, failed: 3, waiting: 0 },
    });
    expect((await spool.count()).bounce).toBeGreaterThanOrEqual(5);
    await spool.stop();
  });

  test('stops it when it is held, as without a handler', async () => {
    const { spool, plan, run, clock } = await bounced(mails(8));
    const id = await plan({ ...THREE, to: { kind: 'topic', topic: 'nobody.handles.this' } });
    const stopped = await run(id);
    expect(stopped).toMatchObject({ state: 'stopped', canaries: { passed: 0, failed: 3 } });
    expect((await spool.count()).bounce).toBe(5);
    await clock.settle();
    await spool.stop();
  });

  test('is not forgiven when others of it were well: a resume sends canaries anew', async () => {
    const { spool, plan, run, resume, receivers } = await bounced(mails(12));
    let attempts = 0;
    receivers.set('mail', () => {
      attempts += 1;
      if (attempts === 1) refuse();
    });
    const id = await plan(THREE);
    expect(await run(id)).toMatchObject({ state: 'stopped', canaries: { passed: 2, failed: 1 } });
    const done = await resume(id);
    expect(done).toMatchObject({ canaries: { passed: 3, failed: 0, waiting: 0 } });
    expect(done).toMatchObject({ state: 'done', counts: { sent: 12, again: 1 } });
    expect(done.because).toBe('1 of 12 letters that were sent failed again');
    await spool.stop();
  });
});

describe('a canary that is not there any more', () => {
  test('was removed by an operator: it stops, says so, and a resume sends others', async () => {
    const { spool, operator, plan, run, resume, receivers } = await bounced(mails(20));
    receivers.set('mail', works);
    await operator.pause('#');
    const id = await plan(THREE);
    expect(await run(id)).toMatchObject({ state: 'stopped', canaries: { waiting: 3 } });
    const waiting = (await operator.page({ state: 'incoming' })).entries;
    const [first, second] = waiting.map(({ envelope }) => envelope.id);
    await operator.remove([first ?? ''], { hard: true });
    await operator.remove([second ?? '']);
    await operator.resume('#');
    const stopped = await resume(id);
    expect(stopped).toMatchObject({
      state: 'stopped',
      counts: { sent: 3, again: 0 },
      canaries: { passed: 1, failed: 0, waiting: 0, removed: 2 },
      because:
        '1 of 3 canaries were delivered, 2 were removed before they were delivered; ' +
        'nothing else was sent',
    });
    expect((await spool.count()).bounce).toBe(17);
    const done = await resume(id);
    expect(done).toMatchObject({ state: 'done', counts: { sent: 20 } });
    expect(done.canaries).toEqual({ passed: 3, failed: 0, waiting: 0 });
    await spool.stop();
  });

  test('was removed, while others wait: it tells the two apart', async () => {
    const { spool, operator, plan, run, resume } = await bounced(mails(8));
    await operator.pause('#');
    const id = await plan(THREE);
    await run(id);
    const [first] = (await operator.page({ state: 'incoming' })).entries;
    await operator.remove([first?.envelope.id ?? ''], { hard: true });
    const stopped = await resume(id);
    expect(stopped.because).toMatch(
      /^0 of 3 canaries were attempted, 1 was removed before it was delivered; nothing else was/,
    );
    expect(stopped).toMatchObject({ canaries: { waiting: 2, removed: 1 }, counts: { sent: 3 } });
    await spool.stop();
  });

  test('bounced and was forgotten: it failed, with its code', async () => {
    const retention = { bounced: { archive: '1m' } } as const;
    const { spool, clock } = await createTestSpool({ retention });
    spool.handle('mail', refuse);
    const operator = spool.operator({ by: 'ann' });
    await operator.pause('#');
    const all = await Promise.all(mails(8).map((topic) => spool.enqueue({ topic, body: 'x' })));
    await operator.hold(all.map(({ id }) => id));
    const letters = createSpoolLetters(operator, { kinds: ['parked'] });
    const source = { kind: 'spool', kinds: ['parked'] } as const;
    const { id } = await planReplay(operator, letters, source, THREE, { clock });
    await drive(clock, runReplay(operator, letters, id, { clock }));
    await operator.resume('#');
    await clock.advance('1h');
    expect(Object.values(await spool.count())).toEqual([0, 0, 0, 5, 0, 0]);
    const stopped = await drive(clock, resumeReplay(operator, letters, id, { clock }));
    expect(stopped).toMatchObject({
      state: 'stopped',
      counts: { sent: 3, again: 3 },
      canaries: { passed: 0, failed: 3, waiting: 0 },
    });
    const lines: object[] = [];
    for await (const { result, code } of reportReplay(operator, id)) lines.push({ result, code });
    expect(lines).toEqual(
      Array.from({ length: 3 }, () => ({ result: 'again', code: 'mail.refused' })),
    );
    await spool.stop();
  });

  test('was delivered while no replay ran, also long ago: it passed', async () => {
    const { spool, operator, plan, run, resume, receivers, clock } = await bounced(mails(8));
    receivers.set('mail', works);
    await operator.pause('#');
    const id = await plan(THREE);
    await run(id);
    await operator.resume('#');
    await clock.advance('1d');
    expect(await spool.count()).toMatchObject({ incoming: 0, archived: 0, bounce: 5 });
    expect(await resume(id)).toMatchObject({ state: 'done', canaries: { passed: 3 } });
    await spool.stop();
  });

  test('leaves nothing in the store: it is removed at once, and its log with the replay', async () => {
    const { spool, operator, plan, run, receivers, clock } = await bounced(mails(8));
    receivers.set('mail', works);
    const id = await plan(THREE);
    expect(await run(id)).toMatchObject({ state: 'done' });
    await clock.settle();
    expect(Object.values(await spool.count())).toEqual([0, 0, 0, 0, 0, 0]);
    await removeReplay(operator, id, { clock });
    expect(await operator.records.read(`dlq.replay.${id}`, 0, 100)).toEqual([]);
    await spool.stop();
  });

  test('and whose replay is not on record any more leaves no log behind', async () => {
    const { spool, operator, plan, run, receivers, clock, delivered } = await bounced(mails(8));
    receivers.set('mail', works);
    await operator.pause('#');
    const id = await plan(THREE);
    await run(id);
    await removeReplay(operator, id, { clock });
    await operator.resume('#');
    await clock.advance('1m');
    expect(delivered).toHaveLength(3);
    expect(await operator.records.read(`dlq.replay.${id}`, 0, 100)).toEqual([]);
    await spool.stop();
  });
});

test('how a canary ended is on record before it is gone, and nothing else is', async () => {
  const shared = createMemoryData();
  const store = faultyStore(memory({ shared }));
  const { spool, operator, plan, run, resume, receivers, clock } = await bounced(mails(8), store);
  receivers.set('mail', works);
  await operator.pause('#');
  const id = await plan(THREE);
  await run(id);
  // A producer cannot make a canary of its message.
  const headers = { 'respool-replay': id, 'respool-canary': id };
  await spool.enqueue({ topic: 'mail', headers });
  // It has delivered, and dies before the write that removes the messages.
  store.faults.plan = (operation) => (operation === 'commit' ? 'before' : 'ok');
  await operator.resume('#').catch(() => undefined);
  await clock.advance('5s');
  const ends = async () => {
    const log = await operator.records.read(`dlq.replay.${id}`, 0, 1_000);
    return log.filter(({ record }) => (record as { kind: string }).kind === 'canary');
  };
  expect(new Set((await ends()).map(({ record }) => (record as CanaryEnd).id)).size).toBe(3);
  expect((await spool.count()).active).toBe(4);
  store.faults.plan = () => 'ok';
  await clock.advance('5m');
  expect(await spool.count()).toMatchObject({ active: 0, incoming: 0, bounce: 5 });
  expect(await resume(id)).toMatchObject({ state: 'done', canaries: { passed: 3 } });
  await spool.stop();
});

test('letters that are parked on the way are no canaries', async () => {
  const { spool, operator, plan, run, receivers, clock } = await bounced(mails(6));
  // The first three were replayed before.
  await run(await plan({ canary: 0, max: 3, stopAbove: 100 }));
  await clock.advance('1m');
  receivers.set('mail', works);
  await operator.pause('#');
  const stopped = await run(await plan({ ...THREE, canary: 2, replaysMax: 1 }));
  expect(stopped).toMatchObject({
    state: 'stopped',
    counts: { sent: 2, parked: 3 },
    canaries: { waiting: 2 },
  });
  await spool.stop();
});

test('a process that dies between canaries and rest: the next one watches the same canaries', async () => {
  const { spool, operator, letters, plan, resume, receivers, clock } = await bounced(mails(20));
  await operator.pause('#');
  const id = await plan({ ...THREE, canaryWait: '1h' });
  const dead = onlyChosen(letters, () => true);
  const silent = { ...dead, since: () => new Promise<never>(() => undefined) };
  const running = runReplay(operator, silent, id, { clock });
  running.catch(() => undefined);
  await clock.advance('5s');
  expect((await spool.count()).bounce).toBe(17);
  // Its lease is never renewed again.
  const { records } = operator;
  const found = await records.get('dlq.replays', id);
  const replay = found?.value as { runner: { name: string; until: number } };
  const runner = { name: 'dead', until: clock.now() };
  await records.put('dlq.replays', id, { ...replay, runner }, found?.revision ?? 0);
  receivers.set('mail', works);
  await operator.resume('#');
  await clock.advance('2s');
  const done = await resume(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 20 }, canaries: { passed: 3 } });
  await spool.stop();
});

describe('a replay of canaries only', () => {
  test('that are not attempted stops, and is done when a resume finds them delivered', async () => {
    const { spool, operator, plan, run, resume, receivers, delivered, clock } = await bounced(
      mails(5),
    );
    receivers.set('mail', works);
    await operator.pause('#');
    const id = await plan({ ...THREE, max: 3 });
    const stopped = await run(id);
    expect(stopped).toMatchObject({
      state: 'stopped',
      counts: { sent: 3, again: 0 },
      canaries: { passed: 0, failed: 0, waiting: 3 },
    });
    expect(stopped.because).toMatch(/^0 of 3 canaries were attempted: no attempt has ended/);
    expect(await resume(id)).toMatchObject({ state: 'stopped', counts: { sent: 3 } });
    await operator.resume('#');
    await clock.advance('1m');
    expect(await resume(id)).toMatchObject({
      state: 'done',
      counts: { sent: 3 },
      canaries: { passed: 3, failed: 0, waiting: 0 },
    });
    expect(delivered).toHaveLength(3);
    await spool.stop();
  });

  test('of which one is attempted says so', async () => {
    const { spool, operator, plan, run, receivers } = await bounced(['mail', 'fax', 'mail']);
    receivers.set('mail', works);
    await operator.pause('mail');
    const stopped = await run(await plan({ canary: 10, canaryWait: '2s' }));
    expect(stopped).toMatchObject({ state: 'stopped', canaries: { failed: 1, waiting: 2 } });
    expect(stopped.because).toMatch(/^1 of 3 canaries were attempted: /);
    await spool.stop();
  });

  test('of which one was removed meanwhile says so, and a resume ends it', async () => {
    const { spool, operator, plan, run, resume } = await bounced(mails(3));
    await operator.pause('#');
    const id = await plan(THREE);
    expect(await run(id)).toMatchObject({ state: 'stopped', canaries: { waiting: 3 } });
    const [first] = (await operator.page({ state: 'incoming' })).entries;
    await operator.remove([first?.envelope.id ?? ''], { hard: true });
    expect((await resume(id)).because).toMatch(/^0 of 3 canaries were attempted, 1 was removed/);
    expect(await resume(id, { canary: 0 })).toMatchObject({ state: 'done', counts: { sent: 3 } });
    await spool.stop();
  });
});

describe('at its end a replay', () => {
  test('without more letters than canaries waits for their attempts, and says what failed', async () => {
    const { spool, operator, plan, run } = await bounced(mails(3));
    const id = await plan({ canary: 10, canaryWait: '1m' });
    const done = await run(id);
    expect(done).toMatchObject({ state: 'done', counts: { sent: 3, again: 3 } });
    expect(done.because).toBe('3 of 3 letters that were sent failed again');
    const results: string[] = [];
    for await (const { result } of reportReplay(operator, id)) results.push(result);
    expect(results).toEqual(['again', 'again', 'again']);
    await spool.stop();
  });

  test('tells how many were not attempted yet', async () => {
    const { spool, operator, plan, run } = await bounced(mails(5));
    await operator.pause('#');
    const done = await run(await plan({ canary: 0 }));
    expect(done).toMatchObject({ state: 'done', counts: { sent: 5, again: 0, waiting: 5 } });
    expect(done.because).toBeUndefined();
    await spool.stop();
  });

  test('hears of all of them, however many there are', async () => {
    const { spool, plan, run, clock } = await bounced(mails(1_100));
    const running = run(await plan({ canary: 0, stopAbove: 100, rate: 1_000 }));
    const done = await running;
    expect(done.counts.again + (done.counts.waiting ?? 0)).toBe(1_100);
    expect(done.counts.again).toBeGreaterThan(1_000);
    await clock.settle();
    await spool.stop();
  });
});

describe('at a place that does not tell deliveries', () => {
  test('canaries that no consumer takes stop it', async () => {
    const { place, plan, run, resume } = await memorySetup(20);
    place.waiting = 9;
    const { id } = await plan(THREE);
    const stopped = await run(id);
    expect(stopped).toMatchObject({ state: 'stopped', canaries: { waiting: 3 } });
    expect(stopped.because).toMatch(/^0 of 3 canaries were attempted; .*9 messages wait/);
    expect(place.items).toHaveLength(17);
    place.waiting = 0;
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 20 } });
  });

  test('nobody can tell what became of canaries: it stops, and says so', async () => {
    const { place, plan, run, resume } = await memorySetup(20);
    place.waiting = undefined;
    const { id } = await plan(THREE);
    const stopped = await run(id);
    expect(stopped.because).toMatch(
      /^it cannot be determined whether the 3 canaries were attempted/,
    );
    expect(place.items).toHaveLength(17);
    expect(await resume(id, { canary: 0 })).toMatchObject({ state: 'done', counts: { sent: 20 } });
  });

  test('an exchange as the destination is refused beside canaries', async () => {
    const { plan } = await memorySetup(5);
    const to = { kind: 'queue', exchange: 'shop', key: 'order.new' } as const;
    await expect(plan({ to })).rejects.toThrow(/exchange "shop": give a queue, or "canary" 0/);
    expect((await plan({ to, canary: 0 })).state).toBe('planned');
  });
});
