/** What it costs to have many handlers with limits of their own, and that the limits hold. */
import { createSpool, type EntryStore, fixed, postponed, type Spool } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, onTestFinished, test } from 'vitest';

/** A store that counts questions. */
function countedStore(): { readonly store: EntryStore; readonly questions: () => number } {
  const store = memory();
  let questions = 0;
  const counted = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      if (name === 'claim' || name === 'nextDueAt') questions += 1;
      return value.bind(target) as unknown;
    },
  });
  return { store: counted, questions: () => questions };
}

function makeSpool(entries: EntryStore, concurrency: number): Spool {
  const policies = { default: fixed('1ms', { attempts: 5 }) };
  const spool = createSpool({ entries, bodies: memoryBodies(), concurrency, policies });
  onTestFinished(() => spool.stop({ within: 0 }));
  return spool;
}

/** Questions to the store until 20 messages of one topic are delivered, each after the other. */
async function questionsWith(idle: number): Promise<number> {
  const { store, questions } = countedStore();
  const spool = makeSpool(store, 100);
  for (let at = 0; at < idle; at += 1) {
    spool.handle(`idle.${at}`, () => undefined, { concurrency: 10 });
  }
  let count = 0;
  let next: () => Promise<unknown> = () => Promise.resolve();
  const done = new Promise<void>((resolve) => {
    next = () => spool.enqueue({ topic: 'live', body: 'x', delay: '2ms' });
    spool.handle(
      'live',
      () => {
        count += 1;
        if (count === 20) resolve();
        else void next();
      },
      { concurrency: 10 },
    );
  });
  await spool.start();
  await next();
  await done;
  return questions();
}

describe('handlers with limits of their own', () => {
  test('ask the store as often as two, when there are fifty of them', async () => {
    const two = await questionsWith(1);
    const fifty = await questionsWith(49);
    expect(fifty).toBeLessThanOrEqual(2 * two);
  });

  test.each([
    { concurrency: 100, limits: [10, 10, 10] },
    { concurrency: 7, limits: [10, 3, 1] },
    { concurrency: 20, limits: [1, 1, 2, 5, 40] },
  ])(
    'are never exceeded, and nothing waits for a full one: $limits of $concurrency',
    async (how) => {
      const { store } = countedStore();
      const spool = makeSpool(store, how.concurrency);
      const running = how.limits.map(() => 0);
      const most = how.limits.map(() => 0);
      const delivered = new Set<string>();
      const total = how.limits.length * 200;
      const all = new Promise<void>((resolve) => {
        for (const [at, limit] of how.limits.entries()) {
          spool.handle(
            `topic.${at}`,
            async ({ id, attempt }) => {
              running[at] = (running[at] ?? 0) + 1;
              most[at] = Math.max(most[at] ?? 0, running[at] ?? 0);
              await new Promise((go) => setImmediate(go));
              running[at] = (running[at] ?? 0) - 1;
              if (attempt === 1 && id.endsWith('7')) throw new Error('once more');
              delivered.add(id);
              if (delivered.size === total) resolve();
              return undefined;
            },
            { concurrency: limit },
          );
        }
      });
      const messages = Array.from({ length: total }, (_, at) => ({
        id: `m-${at}`,
        topic: `topic.${at % how.limits.length}`,
        body: 'x',
      }));
      await spool.enqueueMany(messages);
      await spool.start();
      await all;
      for (const [at, limit] of how.limits.entries()) expect(most[at]).toBeLessThanOrEqual(limit);
    },
  );

  test('let messages of the others through while one has a backlog and no room', async () => {
    const { store } = countedStore();
    const spool = makeSpool(store, 50);
    const stuck: (() => void)[] = [];
    spool.handle('stuck', () => new Promise<void>((go) => stuck.push(go)), { concurrency: 2 });
    const seen = new Set<string>();
    const all = new Promise<void>((resolve) => {
      for (const topic of ['a', 'b', 'c']) {
        const note = (): undefined => {
          seen.add(topic);
          if (seen.size === 3) resolve();
          return undefined;
        };
        spool.handle(topic, note, { concurrency: 5 });
      }
    });
    const backlog = Array.from({ length: 500 }, () => ({ topic: 'stuck', body: 'x' }));
    await spool.enqueueMany(backlog);
    await spool.enqueueMany(['a', 'b', 'c'].map((topic) => ({ topic, body: 'x' })));
    await spool.start();
    await all;
    for (const go of stuck) go();
  });

  test('that postpone their messages go on in turn with those of other handlers', async () => {
    const { store } = countedStore();
    const spool = makeSpool(store, 4);
    let others = 0;
    const all = new Promise<void>((resolve) => {
      spool.handle('busy', () => postponed('1ms', 'later'), { concurrency: 3 });
      const note = (): undefined => {
        others += 1;
        if (others === 50) resolve();
        return undefined;
      };
      spool.handle('other', note, { concurrency: 3 });
    });
    await spool.enqueueMany(Array.from({ length: 100 }, () => ({ topic: 'busy', body: 'x' })));
    await spool.enqueueMany(Array.from({ length: 50 }, () => ({ topic: 'other', body: 'x' })));
    await spool.start();
    await all;
    expect(others).toBe(50);
  });
});
