/** Rules: what fits is replayed when its destination is well, at the pace of the rule. */
import { expect, test } from 'vitest';
import { RULE_LEASE_MS, RULES_KIND } from '../../../src/dead-letters/rules/types.ts';
import { INTERRUPTED_REASON } from '../../../src/dead-letters/replay/run-state.ts';
import { pauseOf, runRules, runRulesOnce } from '../../../src/dead-letters/rules/run.ts';
import { RespoolError } from 'respool';
import { Ground, letterOf, NO_COUNTS, Place, ruleOf } from './setup.ts';
import { MINUTE_MS } from '../../time.ts';

test('a rule replays what fits, in its own name, with its canary, rate and limits', async () => {
  const ground = new Ground();
  ground.place.put(
    letterOf('a'),
    letterOf('b', { code: 'http.400', reason: 'bad' }),
    letterOf('c', { home: undefined }),
    letterOf('d'),
  );
  const [news] = await runRulesOnce([ruleOf({ canary: 2, rate: 7, times: 4 })], ground.tools());
  expect(ground.hands.planned).toEqual([
    {
      by: 'rule:r',
      options: { query: { ids: ['a', 'd'] }, max: 2, canary: 2, rate: 7, replaysMax: 4 },
    },
  ]);
  expect(news).toMatchObject({ rule: 'r', result: 'done', sent: 2, replays: ['p1'] });
  expect(ground.closed).toBe(1);
});

test('conditions of a rule are asked of the place, and the time by the clock', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  const when = { group: 'g', code: 'c', topic: 'a.*', queue: 'dlq', olderThan: '1m' };
  await runRulesOnce([ruleOf({ when })], ground.tools());
  const before = ground.clock.now() - MINUTE_MS;
  expect(ground.place.queries).toEqual([
    { kinds: ['dead'], group: 'g', code: 'c', topic: 'a.*', before },
  ]);
});

test('what is parked is left to people, also where a pattern leads to it', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a', { kind: 'parked' }), letterOf('b'));
  await runRulesOnce([ruleOf()], ground.tools());
  expect(ground.hands.planned[0]?.options.query?.ids).toEqual(['b']);
});

test('categories of the configuration decide what fits', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a', { code: 'erp.1', reason: 'x' }));
  const categories = [{ category: 'network', code: 'erp.*' } as const];
  await runRulesOnce([ruleOf()], ground.tools({ categories }));
  expect(ground.hands.planned).toHaveLength(1);
});

test('an empty place is not looked at, and nothing is planned where nothing fits', async () => {
  const ground = new Ground();
  const [empty] = await runRulesOnce([ruleOf()], ground.tools());
  expect([empty?.result, ground.place.looks]).toEqual(['quiet', 0]);
  ground.place.put(letterOf('a', { code: 'http.400', reason: 'bad' }));
  const [none] = await runRulesOnce([ruleOf()], ground.tools());
  expect([none?.result, ground.place.looks]).toEqual(['quiet', 1]);
  expect([ground.asked, ground.hands.planned]).toEqual([[], []]);
});

test('a place that refuses to be looked at is not looked at', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.place.caution = { kind: 'refused', text: 'it may drop them', remedy: 'lift it' };
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'failed', because: expect.stringContaining('lift it') });
  expect(ground.place.looks).toBe(0);
});

test('nothing is sent before the destination is well', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  ground.health = { why: 'queue "orders" has no consumer' };
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'waiting', because: 'queue "orders" has no consumer' });
  expect(ground.hands.planned).toEqual([]);
  expect(ground.asked[0]?.routes).toEqual([{ kind: 'queue', exchange: '', key: 'orders' }]);
  ground.health = 'well';
  await runRulesOnce([ruleOf()], ground.tools());
  expect(ground.hands.ran).toEqual(['p1']);
});

test('no more than max are replayed in a round, over all places', async () => {
  const ground = new Ground();
  const second = new Place('dlq2');
  ground.places = [ground.place, second];
  ground.place.put(letterOf('a'), letterOf('b'));
  second.put(letterOf('c'), letterOf('d'));
  await runRulesOnce([ruleOf({ max: 3 })], ground.tools());
  const ids = ground.hands.planned.map(({ options }) => options.query?.ids);
  expect(ids).toEqual([['a', 'b'], ['c']]);
});

test('a place that fails does not keep the others waiting', async () => {
  const ground = new Ground();
  const broken = new Place('broken');
  broken.put(letterOf('x'));
  broken.isBroken = true;
  ground.places = [broken, ground.place];
  ground.place.put(letterOf('a'));
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'failed', sent: 1 });
  expect(news?.because).toContain('queue "broken"');
});

/** As a replay ends whose process is told to. */
const PAUSED = { state: 'paused', because: INTERRUPTED_REASON } as const;

test('a rule runs at its pace, again and again, until the signal', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  const running = runRules([ruleOf({ every: '5m' })], ground.tools());
  await ground.clock.settle();
  expect(ground.hands.ran).toHaveLength(1);
  await ground.clock.advance('4m59s');
  expect(ground.hands.ran).toHaveLength(1);
  await ground.clock.advance('1s');
  expect(ground.hands.ran).toHaveLength(2);
  ground.stop.abort();
  await running;
  expect(ground.clock.timers).toBe(0);
});

test('a rule that is stopped waits twice as long each time, and then goes on', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = async () => ({
    state: 'stopped',
    because: '1 of 1 canaries failed again',
    counts: { ...NO_COUNTS, sent: 1, again: 1 },
  });
  const running = runRules([ruleOf({ every: '10m' })], ground.tools());
  await ground.clock.settle();
  await ground.clock.advance('19m');
  expect(ground.hands.ran).toHaveLength(1);
  await ground.clock.advance('1m');
  expect(ground.hands.ran).toHaveLength(2);
  await ground.clock.advance('40m');
  expect(ground.hands.ran).toHaveLength(3);
  await ground.clock.advance('1h');
  // What was stopped is gone on with: only its own record knows what may have been sent.
  expect(ground.hands.ran).toEqual(['p1', 'p1', 'p1', 'p1']);
  expect(ground.news.map(({ result }) => result)).toEqual(Array(4).fill('stopped'));
  expect(ground.news[0]?.because).toContain('canaries failed again');
  expect(await ground.state()).toMatchObject({ failures: 4, result: 'stopped' });
  ground.hands.end = async () => ({ state: 'done', counts: { ...NO_COUNTS, sent: 1 } });
  await ground.clock.advance('1h');
  expect(await ground.state()).toMatchObject({ failures: 0, result: 'done' });
  ground.stop.abort();
  await running;
});

test('a canary that was not attempted is no failure of the rule', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  ground.hands.end = async () => ({
    state: 'stopped',
    because: '0 of 1 canaries were attempted; nothing else was sent',
    counts: { ...NO_COUNTS, sent: 1 },
    canaries: { passed: 0, failed: 0, waiting: 1 },
  });
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'waiting', sent: 1 });
  expect(news?.because).toContain('0 of 1 canaries were attempted');
  expect(await ground.state()).toMatchObject({ failures: 0, replays: ['p1'] });
});

test('what failed again is told also when the round is done', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  const because = '1 of 2 letters that were sent failed again';
  const counts = { ...NO_COUNTS, sent: 2, again: 1 };
  ground.hands.end = async () => ({ state: 'done', because, counts });
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'done', sent: 2, again: 1 });
  expect(news?.because).toContain(because);
});

test('a replay that was stopped is not gone on with while its destination is not well', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = async () => ({ state: 'stopped' });
  await runRulesOnce([ruleOf()], ground.tools());
  ground.health = { why: 'no consumer' };
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'waiting', because: 'no consumer' });
  expect(await ground.state()).toMatchObject({ failures: 1, replays: ['p1'] });
  expect(ground.hands.ran).toEqual(['p1']);
});

test('a round in which nothing could be sent counts as stopped', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = async () => ({ state: 'done', counts: { ...NO_COUNTS, failed: 1 } });
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'stopped', because: 'replay p1: 1 were not sent' });
});

test('pauses double up to an hour, and are never shorter than the pace', () => {
  const minutes = (every: string, failures: number) => pauseOf({ every }, failures) / MINUTE_MS;
  expect([0, 1, 2, 3, 4, 500].map((one) => minutes('5m', one))).toEqual([5, 10, 20, 40, 60, 60]);
  expect(minutes('3h', 3)).toBe(180);
});

test('a restart goes on where the rule was, and waits for its next time', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  await runRulesOnce([ruleOf()], ground.tools());
  const after = new Ground(ground);
  after.place.put(letterOf('a'));
  const running = runRules([ruleOf()], after.tools({ runner: 'two' }));
  await after.clock.settle();
  expect(after.hands.ran).toEqual([]);
  await after.clock.advance('5m');
  expect(after.hands.ran).toHaveLength(1);
  after.stop.abort();
  await running;
});

test('a replay that was interrupted by a stop is gone on with after the restart', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  ground.hands.end = (_, signal) =>
    new Promise((resolve) => {
      const ended = { ...PAUSED, counts: { ...NO_COUNTS, sent: 1 } };
      signal.addEventListener('abort', () => resolve(ended));
    });
  const running = runRules([ruleOf()], ground.tools());
  await ground.clock.settle();
  ground.stop.abort();
  await running;
  expect(await ground.state()).toMatchObject({ isInterrupted: true, replays: ['p1'] });
  ground.hands.end = async () => ({ state: 'done', counts: { ...NO_COUNTS, sent: 2 } });
  const after = new AbortController();
  const again = runRules([ruleOf()], ground.tools({ signal: after.signal, runner: 'two' }));
  await ground.clock.settle();
  expect(ground.hands.ran).toEqual(['p1', 'p1']);
  expect(ground.hands.planned).toHaveLength(1);
  expect(ground.news.at(-1)).toMatchObject({ result: 'done', sent: 1 });
  after.abort();
  await again;
});

test('a replay that a crash left running is gone on with', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  const replay = await ground.hands.plan(ground.place, { query: { ids: ['a'] } }, 'rule:r');
  ground.hands.replays.set(replay.id, { ...replay, state: 'running' });
  await ground.records.put(RULES_KIND, 'r', {
    replays: [replay.id],
    runner: { name: 'dead', until: ground.clock.now() + 1_000 },
  });
  const running = runRules([ruleOf()], ground.tools());
  await ground.clock.advance(999);
  expect(ground.hands.ran).toEqual([]);
  await ground.clock.advance(1);
  expect(ground.hands.ran).toEqual([replay.id]);
  ground.stop.abort();
  await running;
});

test('a replay that somebody paused is left to them', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = async () => ({ state: 'paused' });
  await runRulesOnce([ruleOf()], ground.tools());
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'waiting', because: expect.stringContaining('p1') });
  expect(ground.hands.ran).toEqual(['p1']);
  await ground.hands.cancel('p1');
  await runRulesOnce([ruleOf()], ground.tools());
  expect(ground.hands.ran).toEqual(['p1', 'p2']);
});

test('what may have been sent already is left to people', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  ground.hands.unsureOf.set('p1', ['a']);
  ground.hands.end = async () => ({ state: 'done', counts: { ...NO_COUNTS, sent: 1, unsure: 1 } });
  await runRulesOnce([ruleOf()], ground.tools());
  await runRulesOnce([ruleOf()], ground.tools());
  expect(ground.hands.planned[1]?.options.query?.ids).toEqual(['b']);
  expect((await ground.state()).unsure).toEqual(['a']);
});

test('two processes do not run the same rule at once', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  const { promise, resolve } = Promise.withResolvers<void>();
  ground.hands.end = async () => {
    await promise;
    return { state: 'done', counts: { ...NO_COUNTS, sent: 1 } };
  };
  const first = runRulesOnce([ruleOf()], ground.tools({ runner: 'one' }));
  await ground.clock.settle();
  expect(await runRulesOnce([ruleOf()], ground.tools({ runner: 'two' }))).toEqual([undefined]);
  // Signs of life keep it far beyond one lease.
  await ground.clock.advance(10 * RULE_LEASE_MS);
  expect(await runRulesOnce([ruleOf()], ground.tools({ runner: 'two' }))).toEqual([undefined]);
  resolve();
  await first;
  expect(ground.hands.planned).toHaveLength(1);
  const [after] = await runRulesOnce([ruleOf()], ground.tools({ runner: 'two' }));
  expect(after?.result).toBe('done');
});

test('whoever lost its turn ends its round and says so', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = (_, signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('called off')));
    });
  const running = runRules([ruleOf()], ground.tools());
  await ground.clock.settle();
  await ground.records.put(RULES_KIND, 'r', { runner: { name: 'two', until: 1e15 } });
  await ground.clock.advance(RULE_LEASE_MS);
  expect(ground.news).toMatchObject([{ result: 'failed' }]);
  expect(ground.news[0]?.because).toContain('another process has taken it over');
  expect(await ground.state()).toEqual({ runner: { name: 'two', until: 1e15 } });
  ground.stop.abort();
  await running;
});

test('a queue that somebody else works on is waited for, and not held against the rule', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  ground.hands.end = async () => {
    throw new RespoolError('move.refused', 'somebody else works on it');
  };
  const [news] = await runRulesOnce([ruleOf()], ground.tools());
  expect(news).toMatchObject({ result: 'waiting' });
  expect(await ground.state()).toMatchObject({ failures: 0 });
});

test('a rule whose places cannot be opened says why, and tries again later', async () => {
  const ground = new Ground();
  const openPlaces = async () => {
    throw new Error('no broker');
  };
  const [news] = await runRulesOnce([ruleOf()], ground.tools({ openPlaces }));
  expect(news).toMatchObject({ result: 'failed', because: 'no broker' });
  expect(news?.nextAt).toBe(ground.clock.now() + 10 * MINUTE_MS);
});

test('a rule whose state cannot be read goes on when it can', async () => {
  const ground = new Ground();
  ground.place.put(letterOf('a'));
  let isBroken = true;
  const records = {
    ...ground.records,
    get: async (kind: string, key: string) => {
      if (isBroken) throw new Error('disk is gone');
      return ground.records.get(kind, key);
    },
  };
  const operator = () => ({ records, recordAction: async () => undefined });
  const running = runRules([ruleOf()], ground.tools({ operator }));
  await ground.clock.settle();
  expect(ground.news).toMatchObject([{ result: 'failed', because: 'disk is gone' }]);
  isBroken = false;
  await ground.clock.advance('5m');
  expect(ground.hands.ran).toHaveLength(1);
  ground.stop.abort();
  await running;
});
