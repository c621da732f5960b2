/** Rules whose store is away for a moment or for long, and what becomes of their replays. */
import { expect, test } from 'vitest';
import { INTERRUPTED_REASON } from '../../../src/dead-letters/replay/run-state.ts';
import {
  RULE_LEASE_MS,
  RULES_KIND,
  type RuleTools,
} from '../../../src/dead-letters/rules/types.ts';
import { runRules, runRulesOnce } from '../../../src/dead-letters/rules/run.ts';
import type { RecordStore } from 'respool';
import { Ground, letterOf, NO_COUNTS, ruleOf } from './setup.ts';

const DONE = { state: 'done', counts: { ...NO_COUNTS, sent: 2 } } as const;

/** A rule with a replay that lasts, over a store that a test takes away. */
function setup() {
  const ground = new Ground();
  ground.place.put(letterOf('a'), letterOf('b'));
  const over = Promise.withResolvers<void>();
  ground.hands.end = async (_, signal) => {
    const called = new Promise<void>((resolve) =>
      signal.addEventListener('abort', () => resolve()),
    );
    await Promise.race([called, over.promise]);
    return signal.aborted ? { state: 'paused', because: INTERRUPTED_REASON } : DONE;
  };
  const store = { isAway: false, isMute: false };
  const put: RecordStore['put'] = async (...args) => {
    if (store.isAway) throw new Error('the store is away');
    const answer = await ground.records.put(...args);
    if (store.isMute) throw new Error('no answer');
    return answer;
  };
  const records = { ...ground.records, put };
  const tools = (given: Partial<RuleTools> = {}) =>
    ground.tools({ operator: () => ({ records, recordAction: async () => undefined }), ...given });
  return { ground, store, tools, finish: () => over.resolve() };
}

test('a store that is away for a moment costs a rule nothing', async () => {
  const { ground, store, tools, finish } = setup();
  const round = runRulesOnce([ruleOf()], tools());
  await ground.clock.settle();
  store.isAway = true;
  await ground.clock.advance(RULE_LEASE_MS / 2);
  store.isAway = false;
  await ground.clock.advance(3 * RULE_LEASE_MS);
  finish();
  expect(await round).toMatchObject([{ result: 'done', sent: 2 }]);
});

test('a write without an answer that was done all the same is no loss of the turn', async () => {
  const { ground, store, tools, finish } = setup();
  const round = runRulesOnce([ruleOf()], tools());
  await ground.clock.settle();
  store.isMute = true;
  await ground.clock.advance(RULE_LEASE_MS / 3);
  store.isMute = false;
  await ground.clock.advance(RULE_LEASE_MS);
  finish();
  expect(await round).toMatchObject([{ result: 'done', sent: 2 }]);
});

test('a round that ends since the store is away says so, and is gone on with, not left to people', async () => {
  const { ground, store, tools } = setup();
  const running = runRules([ruleOf()], tools());
  await ground.clock.settle();
  store.isAway = true;
  await ground.clock.advance(RULE_LEASE_MS);
  expect(ground.news).toMatchObject([{ result: 'failed', because: 'the store is away' }]);
  store.isAway = false;
  ground.hands.end = async () => DONE;
  await ground.clock.advance('5m');
  expect(ground.hands.ran).toEqual(['p1', 'p1']);
  expect(ground.news.at(-1)).toMatchObject({ result: 'done', sent: 2 });
  ground.stop.abort();
  await running;
});

test('a replay that was interrupted waits for its destination, and is not left to people then', async () => {
  const { ground, tools } = setup();
  const running = runRules([ruleOf()], tools());
  await ground.clock.settle();
  ground.stop.abort();
  await running;
  const signal = new AbortController().signal;
  ground.hands.end = async () => DONE;
  ground.health = { why: 'no consumer' };
  const [first] = await runRulesOnce([ruleOf()], tools({ signal }));
  const [second] = await runRulesOnce([ruleOf()], tools({ signal }));
  expect([first?.because, second?.because]).toEqual(['no consumer', 'no consumer']);
  ground.health = 'well';
  expect(await runRulesOnce([ruleOf()], tools({ signal }))).toMatchObject([{ result: 'done' }]);
  expect(ground.hands.ran).toEqual(['p1', 'p1']);
});

test('a replay that was interrupted is gone on with, whatever else its run has to say', async () => {
  const { ground, tools } = setup();
  const { end } = ground.hands;
  ground.hands.end = async (...run) => {
    const ended = await end(...run);
    return { ...ended, because: `${ended.because}; 3 letters that were sent were there again` };
  };
  const running = runRules([ruleOf()], tools());
  await ground.clock.settle();
  ground.stop.abort();
  await running;
  ground.hands.end = async () => DONE;
  const { signal } = new AbortController();
  const again = await runRulesOnce([ruleOf()], tools({ signal }));
  expect(again).toMatchObject([{ result: 'done' }]);
  expect(ground.hands.ran).toEqual(['p1', 'p1']);
});

test('what somebody paused after a crash is left to them', async () => {
  const { ground, tools } = setup();
  const replay = await ground.hands.plan(ground.place, { query: { ids: ['a'] } }, 'rule:r');
  ground.hands.replays.set(replay.id, { ...replay, state: 'paused', because: 'by ann' });
  await ground.records.put(RULES_KIND, 'r', { replays: [replay.id], isInterrupted: true });
  const [news] = await runRulesOnce([ruleOf()], tools());
  expect(news).toMatchObject({ result: 'waiting', because: expect.stringContaining('is paused') });
  expect(ground.hands.ran).toEqual([]);
});

test('a rule whose state cannot be written does not take the others with it', async () => {
  const { ground, tools } = setup();
  ground.hands.end = async () => DONE;
  const records: RecordStore = {
    ...ground.records,
    put: async (kind, key, ...rest) => {
      if (key === 'bad') throw new Error('the store is full');
      return ground.records.put(kind, key, ...rest);
    },
  };
  const operator: RuleTools['operator'] = () => ({ records, recordAction: async () => undefined });
  const all = await runRulesOnce([ruleOf({ name: 'bad' }), ruleOf()], tools({ operator }));
  expect(all).toMatchObject([
    { rule: 'bad', result: 'failed', because: 'the store is full' },
    { rule: 'r', result: 'done' },
  ]);
});
