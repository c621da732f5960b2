/** createSpool: every option has an effect, every bad one is refused by name (R72, R213–R215, R221). */
import { createSpool, fixed } from 'respool';
import { memory, memoryBodies } from 'respool/stores/memory';
import { createTestSpool } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { codeOf, makeGate, MINUTE, rejection, setup } from './setup.ts';

describe('a bad option is refused with its name, its value and what is allowed', () => {
  const bad: Record<string, { options: object; words: string[]; code?: string }> = {
    concurrency: { options: { concurrency: 0 }, words: ['"concurrency"', '0', '1 to 10000'] },
    'concurrency, too many': { options: { concurrency: 10_001 }, words: ['10001'] },
    'concurrency, a text': { options: { concurrency: '5' }, words: ['"5"'] },
    destinationConcurrency: {
      options: { destinationConcurrency: 0 },
      words: ['"destinationConcurrency"', '1 to 10000'],
    },
    'destinationConcurrency by name': {
      options: { destinationConcurrency: { 'x.example': -1 } },
      words: ['"destinationConcurrency.x.example"', '-1'],
    },
    lease: { options: { lease: '10ms' }, words: ['"lease"', '"10ms"', '1s to 1d'] },
    'lease, no duration': { options: { lease: 'long' }, words: ['"lease"', '"long"', '15m'] },
    settle: { options: { settle: 'never' }, words: ['"settle"', '"never"', 'lazy | durable'] },
    unhandled: { options: { unhandled: 'drop' }, words: ['"unhandled"', 'hold | leave'] },
    requireDurability: {
      options: { requireDurability: 'total' },
      words: ['"requireDurability"', '"total"', 'power-loss'],
    },
    'retention.delivered': {
      options: { retention: { delivered: 'keep' } },
      words: ['"retention.delivered"', '"keep"', "'remove'"],
    },
    'retention.bounced': {
      options: { retention: { bounced: 'remove' } },
      words: ['"retention.bounced"', "'keep'"],
    },
    'retention.delivered.archive': {
      options: { retention: { delivered: { archive: -1 } } },
      words: ['"retention.delivered.archive"', '-1'],
    },
    'retention.removed': {
      options: { retention: { removed: '11000d' } },
      words: ['"retention.removed"', '3650d'],
    },
    'retention.dedupeWindow': {
      options: { retention: { dedupeWindow: 'x' } },
      words: ['"retention.dedupeWindow"'],
    },
    'limits.bodyBytes': {
      options: { limits: { bodyBytes: -1 } },
      words: ['"limits.bodyBytes"', '-1'],
    },
    'limits.headerBytes': {
      options: { limits: { headerBytes: 2 ** 21 } },
      words: ['"limits.headerBytes"', '1048576'],
    },
    'limits.inlineBodyBytes': {
      options: { limits: { inlineBodyBytes: 1.5 } },
      words: ['"limits.inlineBodyBytes"', '1.5'],
    },
    'caretaker.every': {
      options: { caretaker: { every: 1 } },
      words: ['"caretaker.every"', '1s to 1d'],
    },
    'caretaker.orphanGrace': {
      options: { caretaker: { orphanGrace: 'x' } },
      words: ['"caretaker.orphanGrace"'],
    },
    path: { options: { path: '' }, words: ['"path"', '""'] },
    middleware: { options: { middleware: 'log' }, words: ['"middleware"', '"log"'] },
    'a policy': {
      options: { policies: { fast: { kind: 'fast' } } },
      words: ['"policies.fast"', 'exponential'],
      code: 'policy.invalid',
    },
    'the name of a policy': {
      options: { policies: { 'a b': fixed(1) } },
      words: ['"policies"', '"a b"', '64'],
    },
    'a backoff': { options: { backoffs: { mine: 5 } }, words: ['"backoffs.mine"', 'function'] },
    'an unknown option': { options: { maxActive: 3 }, words: ['"maxActive"', 'concurrency'] },
    'an unknown retention': {
      options: { retention: { delieverd: 'remove' } },
      words: ['"delieverd"', 'delivered'],
    },
    'an unknown limit': { options: { limits: { body: 1 } }, words: ['"body"', 'bodyBytes'] },
    'an unknown duty': { options: { caretaker: { often: 1 } }, words: ['"often"', 'every'] },
  };
  test.each(Object.entries(bad))('%s', async (_, { options, words, code = 'config.invalid' }) => {
    const stores = { entries: memory(), bodies: memoryBodies() };
    // As a rejection of nothing: constructors neither print nor end the process.
    const error = await rejection(
      Promise.resolve().then(() => createSpool({ ...stores, ...options })),
    );
    expect(error.code).toBe(code);
    for (const word of words) expect(error.message).toContain(word);
  });
});

test('a retention that is null has its default, as every other option', () => {
  const retention = { delivered: null, bounced: null, removed: null } as object;
  expect(() => createSpool({ retention })).not.toThrow();
});

describe('requireDurability', () => {
  test('refuses stores that promise less, by name and promise', async () => {
    const { spool } = await setup({ isStarted: false, requireDurability: 'power-loss' });
    for (const attempt of [() => spool.start(), () => spool.enqueue({ topic: 'a' })]) {
      const error = await rejection(attempt());
      expect(error.code).toBe('config.invalid');
      for (const word of ['power-loss', '"memory"', '"none"'])
        expect(error.message).toContain(word);
    }
  });

  test('looks at both stores, and is content with more than asked for', async () => {
    const entries = { durability: 'node-loss' } as const;
    const half = await setup({
      isStarted: false,
      requireDurability: 'process',
      traits: entries,
    });
    expect(await codeOf(half.spool.start())).toBe('config.invalid');
    const whole = await setup({
      isStarted: false,
      requireDurability: 'process',
      traits: entries,
      bodies: { ...memoryBodies(), traits: { durability: 'power-loss' } },
    });
    await whole.spool.start();
    await whole.spool.stop();
  });
});

describe('settle', () => {
  test.each([
    ['lazy', undefined, false],
    ['lazy', 'lazy', false],
    ['durable', 'durable', true],
  ] as const)('%s is what the store is asked for', async (_, settle, durable) => {
    const { spool, clock, calls } = await setup(settle === undefined ? {} : { settle });
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const commits = calls.filter(({ operation }) => operation === 'commit');
    expect(commits.map(({ args }) => args[1])).toEqual([{ durable }]);
  });
});

describe('lease', () => {
  test('is how long a claim lasts, a minute by default', async () => {
    for (const [options, expected] of [
      [{}, MINUTE],
      [{ lease: '5m' }, 5 * MINUTE],
    ] as const) {
      const { spool, clock, status } = await setup(options);
      spool.handle('a', makeGate().handler);
      const { id } = await spool.enqueue({ topic: 'a' });
      await clock.settle();
      expect((await status(id)).dueAt).toBe(clock.now() + expected);
    }
  });
});

describe('concurrency', () => {
  test('is ten by default', async () => {
    const { spool, clock } = await setup();
    const gate = makeGate();
    spool.handle('a', gate.handler);
    await spool.enqueueMany(Array.from({ length: 20 }, () => ({ topic: 'a' })));
    await clock.settle();
    expect(gate.running).toBe(10);
  });
});

describe('createTestSpool', () => {
  test('is a started spool in memory and virtual time, as the documentation shows it', async () => {
    const { spool, clock } = await createTestSpool({ retention: { delivered: { archive: '7d' } } });
    let calls = 0;
    spool.handle('x', () => {
      calls += 1;
      if (calls <= 2) throw new Error('not yet');
    });
    const { id } = await spool.enqueue({ topic: 'x' });
    await clock.advance('1h');
    expect((await spool.get(id))?.status.attempts).toBe(3);
    await spool.stop();
    expect(clock.timers).toBe(0);
  });

  test('collects orphans by its own clock', async () => {
    const { spool, clock } = await createTestSpool({ caretaker: { orphanGrace: '1h' } });
    const tx = await spool.begin({ topic: 'x', id: 'mine' });
    await tx.write(Buffer.alloc(50_000));
    await spool.enqueue({ topic: 'x', id: 'mine' });
    await tx.commit();
    await clock.advance('3h');
    expect((await spool.operator({ by: 'ops' }).check()).bodies).toBe(0);
  });
});
