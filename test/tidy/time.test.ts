/**
 * time — keep tests independent of how fast the machine is and of what else it does.
 *
 * An exception names a file or a folder, the rule, and why it cannot be otherwise. One that is not
 * needed any more is refused as well.
 */
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseSource, readSources } from './source.ts';
import * as rules from './time-rules.ts';

interface RuleCase {
  readonly rule: rules.TimeRule;
  readonly bad: readonly string[];
  readonly good: readonly string[];
  /** Where it may be broken, and why. */
  readonly exceptions: Readonly<Record<string, string>>;
}

const AT_RANDOM = 'faults come at random moments; nothing that is asserted depends on them';
const IS_REPEATED = 'what a server that is well answers too late is asked again';
const NOTHING_LISTENS = 'no server is there: that the limit is reached is the case';
const GIVES_UP = 'gives up a run that hangs, after minutes';

const CASES: Readonly<Record<string, RuleCase>> = {
  'no test compares an elapsed time': {
    rule: rules.noElapsedTimeIsCompared,
    bad: [
      'const from = Date.now(); work(); expect(Date.now() - from).toBeLessThan(50);',
      'const from = systemClock.monotonic(); expect(systemClock.monotonic() - from).toBeLessThan(5);',
      'const from = performance.now(); const ms = performance.now() - from; expect(ms < 5).toBe(true);',
      'const [from] = [performance.now()]; expect(5_000).toBeGreaterThan(performance.now() - from);',
      'const lateMs = []; lateMs.push(performance.now() - at); expect(Math.max(...lateMs)).toBeLessThan(5);',
      'function timed() { const a = Date.now(); work(); return Date.now() - a; } expect(timed()).toBeLessThan(5);',
      'const times = async () => { const a = Date.now(); work(); return [Date.now() - a]; }; await expect.poll(times).toBeLessThan(5);',
      'const { tookMs } = await measured(); expect(tookMs).toBeLessThanOrEqual(9_000);',
      'const end = Date.now() + 5_000; while (Date.now() < end) look();',
      'const { user } = process.cpuUsage(); expect(user / 1_000).toBeLessThan(2_000);',
    ],
    good: [
      'const clock = new SimClock(); expect(clock.monotonic() - from).toBeLessThan(60_000);',
      'const from = Date.now(); work(); expect(Date.now() - from).toBeGreaterThanOrEqual(1_000);',
      'const at = []; at.push(performance.now()); expect(at.length).toBeLessThan(30);',
      'const from = Date.now(); expect(entry.at).toBeGreaterThanOrEqual(from);',
      'function a() { const ms = Date.now() - at; } function b(ms: number) { return ms < 5; }',
    ],
    exceptions: {
      'nodes/faults.ts': GIVES_UP,
      'nodes/idle-transaction.ts': 'works for so long at least; its rates are for torture',
      'outbox/faults/run.ts': GIVES_UP,
      'rabbit/queues/faults/': GIVES_UP,
      'rabbit/faults/flow.ts': GIVES_UP,
      'torture/': 'a program of its own, which measures how long a recovery takes',
    },
  },
  'no limit is shorter than those of the whole run': {
    rule: rules.noLimitIsShort,
    bad: [
      "test('a', async () => undefined, 60_000);",
      "test.each([1])('a', () => undefined, 60_000);",
      "test('a', { timeout: 60_000 }, () => undefined);",
      "const MAX_MS = 2 * 1_000; test('a', { timeout: MAX_MS }, () => undefined);",
      'beforeAll(() => undefined, 10_000);',
      'await expect.poll(look, { timeout: 20_000 }).toBe(1);',
      'await vi.waitFor(look);',
      'await vi.waitUntil(look, { timeout: 5_000 });',
      "spawn('node', ['a.ts'], { timeout: 15_000 });",
      "await run('node', ['a.ts'], { cwd: folder, timeout: 15_000 });",
      'await fetch(url, { signal: AbortSignal.timeout(1_000) });',
    ],
    good: [
      "test('a', async () => undefined, 600_000);",
      'const MAX_MS = 15 * 60_000; beforeAll(() => undefined, MAX_MS);',
      'await expect.poll(look, { interval: 5 }).toBe(1);',
      'await vi.waitUntil(look, { timeout: 120_000 });',
      "spool.handle('a', handler, { timeout: 50 });",
      'new Sqlite(file, { timeout: 5_000 });',
    ],
    exceptions: {},
  },
  'no real server has to be quick': {
    rule: rules.noServerHasToBeQuick,
    bad: [
      "const url = await serverUrl(); openStore({ url, statementTimeout: '1s' });",
      "withService('nats', (url) => nats({ url, timeoutMs: 400 }));",
      "const server = await privateServer('rabbitmq'); rabbitSink({ confirmTimeout: 3_000 });",
    ],
    good: [
      "const url = await serverUrl(); openStore({ url, statementTimeout: '60s' });",
      'makePublisher({ confirmTimeoutMs: 30 });',
      "withService('nats', (url) => nats({ url, timeoutMs: LIMIT_MS }));",
    ],
    exceptions: {
      'rabbit/confirm-publisher.test.ts': 'nothing listens there, or the timer is held',
      'rabbit/faults/broker.test.ts': 'the consumer timeout of the broker itself',
      'rabbit/publisher-fallback.test.ts': NOTHING_LISTENS,
      'rabbit/publisher.test.ts': NOTHING_LISTENS,
      'stores/nats/restart.test.ts': IS_REPEATED,
      'stores/postgres/durability.test.ts': IS_REPEATED,
    },
  },
  'no test sleeps': {
    rule: rules.noTestSleeps,
    bad: [
      "import { setTimeout as sleep } from 'node:timers/promises';",
      'await new Promise((resolve) => setTimeout(resolve, 100));',
      'await new Promise((resolve) => systemClock.after(100, resolve));',
    ],
    good: [
      "import { setImmediate as turn } from 'node:timers/promises';",
      'const after = (ms, call) => systemClock.after(ms, call);',
      "expect(timers).toContain('setTimeout');",
    ],
    exceptions: {
      'nodes/': AT_RANDOM,
      'outbox/faults-idle.test.ts': 'nothing should happen meanwhile, and no event tells of that',
      'outbox/faults/': AT_RANDOM,
      'rabbit/queues/faults/': AT_RANDOM,
      'rabbit/faults/': AT_RANDOM,
      'rabbit/publisher-source.test.ts':
        'the broker has its own clock; what waits there is waited for',
      'service/slow-readers.test.ts': 'the memory of another process is looked at again and again',
      'spool/precedence.test.ts': 'a disk needs real time between steps of virtual time',
      'time.ts': 'is the clock',
      'torture/': AT_RANDOM,
    },
  },
};

const sources = readSources(path.join(import.meta.dirname, '..'));
const found = Object.fromEntries(
  Object.entries(CASES).map(([title, { rule }]) => [title, rule(sources)]),
);

describe('test/', () => {
  test.each(Object.entries(CASES))('%s', (title, { exceptions }) => {
    const list = (found[title] ?? [])
      .filter((one) => !Object.keys(exceptions).some((place) => one.path.startsWith(place)))
      .map(({ path: file, line, what }) => `test/${file}:${line} ${what}`);
    expect(list, `${title}:\n${list.join('\n')}\n`).toEqual([]);
  });

  test.each(Object.entries(CASES))('every exception is needed: %s', (title, { exceptions }) => {
    const paths = (found[title] ?? []).map((one) => one.path);
    const idle = Object.keys(exceptions).filter(
      (place) => !paths.some((one) => one.startsWith(place)),
    );
    expect(idle).toEqual([]);
  });
});

describe('the rule', () => {
  test.each(Object.entries(CASES))('"%s" catches what it should, no more', (_, ruleCase) => {
    const { rule, bad, good } = ruleCase;
    const violations = (text: string) => rule([parseSource('a.test.ts', text)]);
    expect(bad.filter((text) => violations(text).length === 0)).toEqual([]);
    expect(good.flatMap(violations)).toEqual([]);
  });
});
