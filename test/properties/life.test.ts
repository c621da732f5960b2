/** Any sequence of claims, losses, heartbeats, verdicts and operators keeps the promises. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Entry,
  failed,
  judge,
  type Outcome,
  type RetryPolicy,
  type Status,
  type Verdict,
} from 'respool';
import { SAMPLE_AT, sampleEntry } from 'respool/testkit';
import {
  claimedStatus,
  extendedStatus,
  nextStatus,
  type Retention,
  type SettleContext,
} from '../../src/core/next-status.ts';
import { judgeExpiry, judgeLost, LOST_MAX } from '../../src/core/verdict.ts';
import { type OperatorAction, operatorMove } from '../../src/core/operator.ts';
import { type Mover, mayMove } from '../../src/core/state.ts';
import { anyFailure, anyOutcome, anyPolicy, chance } from './arbitraries.ts';
import { always } from './runs.ts';
import { DAY_MS, MINUTE_MS } from '../time.ts';

type Step =
  | { readonly kind: 'attempt'; readonly outcome: Outcome; readonly random: number }
  | { readonly kind: 'release' }
  | { readonly kind: 'lose' }
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'operator'; readonly action: OperatorAction }
  | { readonly kind: 'sleep'; readonly ms: number };

/** A world with one message in it. */
interface World {
  now: number;
  entry: Entry | undefined;
  wasOperated: boolean;
  readonly policy: RetryPolicy;
  readonly retention: Retention;
  readonly announces: boolean;
}

const engineStep: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('attempt'), outcome: anyOutcome, random: chance }),
  },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'release' }) },
  { weight: 2, arbitrary: fc.constant<Step>({ kind: 'lose' }) },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'heartbeat' }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('sleep'), ms: fc.nat({ max: DAY_MS }) }),
  },
);

const operatorStep: fc.Arbitrary<Step> = fc.record({
  kind: fc.constant('operator'),
  action: fc.constantFrom<OperatorAction>(
    { kind: 'hold', reason: 'why' },
    { kind: 'release' },
    { kind: 'retry' },
    { kind: 'bounce', reason: 'why' },
    { kind: 'remove', hard: false, reason: 'why' },
    { kind: 'setPolicy', policy: 'other' },
    { kind: 'touch' },
  ),
});

const world: fc.Arbitrary<World> = fc
  .record({
    policy: anyPolicy,
    announces: fc.boolean(),
    deliveredMs: fc.option(fc.nat({ max: DAY_MS })),
    bouncedMs: fc.option(fc.nat({ max: DAY_MS })),
    expiresInMs: fc.option(fc.nat({ max: 2 * DAY_MS })),
    hasKey: fc.boolean(),
  })
  .map(({ policy, announces, deliveredMs, bouncedMs, expiresInMs, hasKey }) => ({
    now: SAMPLE_AT,
    entry: sampleEntry('m-1', {
      ...(expiresInMs === null ? {} : { expiresAt: SAMPLE_AT + expiresInMs }),
      ...(hasKey ? { dedupeKey: 'k' } : {}),
    }),
    wasOperated: false,
    policy,
    announces,
    retention: { deliveredMs, bouncedMs, removedMs: DAY_MS, dedupeWindowMs: DAY_MS },
  }));

/** One write: legal, by one revision, and a status that keeps the promises. */
function write(here: World, to: Status | 'remove', mover: Mover): void {
  const { entry } = here;
  if (entry === undefined) throw new Error('written after its removal');
  if (to === 'remove') {
    here.entry = undefined;
    return;
  }
  const from = entry.status;
  const isChange = mover === 'operator' && from.state === to.state;
  if (!isChange)
    expect(mayMove(from.state, to.state, mover), `${from.state}→${to.state}`).toBe(true);
  expect(to.revision).toBe(from.revision + 1);
  expect(to.updatedAt).toBe(here.now);
  here.entry = { ...entry, status: to };
  promises(here, to);
}

function promises(here: World, status: Status): void {
  const { state, lane, dueAt, ending } = status;
  for (const counter of ['attempts', 'postponed', 'lost', 'replays', 'notices'] as const) {
    expect(status[counter], counter).toBeGreaterThanOrEqual(0);
  }
  expect(status.history.length).toBeLessThanOrEqual(10);
  expect(status.holder !== undefined).toBe(state === 'active');
  expect(status.claimedFrom !== undefined).toBe(state === 'active');
  // Nobody looks at a hold or an announced bounce until an operator acts; all else has a time.
  if (state === 'hold') expect(dueAt).toBeNull();
  else if (state !== 'bounce') expect(Number.isSafeInteger(dueAt)).toBe(true);
  else expect(dueAt === null || Number.isSafeInteger(dueAt)).toBe(true);
  if (state === 'bounce') expect(lane).toBe('notice');
  if (state === 'incoming' || state === 'deferred') {
    expect(lane).toBe('delivery');
    expect(ending).toBeUndefined();
  }
  if (state === 'bounce' || state === 'archived') expect(ending).toBeDefined();
  if (here.wasOperated) return;
  expect(status.attempts).toBeLessThanOrEqual(here.policy.maxAttempts);
  expect(status.notices).toBeLessThanOrEqual(here.policy.maxAttempts);
  expect(status.replays).toBe(0);
}

/** Waits until the entry is due and claims it; false when nobody would. */
function claim(here: World): boolean {
  const { entry } = here;
  if (entry === undefined) return false;
  const { state, dueAt } = entry.status;
  if (state === 'archived' || dueAt === null) return false;
  if (state === 'bounce' && !here.announces) return false;
  here.now = Math.max(here.now, dueAt);
  const lease = { now: here.now, leaseMs: MINUTE_MS, holder: `h/${entry.status.revision}` };
  write(here, claimedStatus(entry.status, lease), 'claim');
  return true;
}

/** What the engine would decide before any handler runs, or else the judge after it. */
function verdictOn(here: World, outcome: Outcome, random: number): Verdict {
  const { envelope, status } = entryOf(here);
  const { lane, attempts, notices, lost, claimedFrom } = status;
  const attempt = lane === 'delivery' ? attempts : notices;
  const judgement = {
    claim: { lane, attempt, lost, enqueuedAt: envelope.enqueuedAt },
    policy: here.policy,
    now: here.now,
    random,
  };
  if (claimedFrom === 'active') return judgeLost(judgement);
  const expired = judgeExpiry({ lane, expiresAt: envelope.expiresAt }, here.now);
  return expired ?? judge({ ...judgement, outcome });
}

function settle(here: World, verdict: Verdict): void {
  const entry = entryOf(here);
  const { now, retention, announces } = here;
  const line = { at: now, tookMs: 1, by: 'e', lane: entry.status.lane, attempt: 1, code: 'x' };
  const context: SettleContext = { now, retention, announces, attempt: line };
  write(here, nextStatus(entry, verdict, context), 'settle');
}

function operate(here: World, action: OperatorAction): void {
  if (here.entry === undefined) return;
  const context = { now: here.now, by: 'ann', retention: here.retention };
  const answer = operatorMove(here.entry, action, context);
  if (answer.kind === 'refused') return;
  here.wasOperated = true;
  write(here, answer.to, 'operator');
}

function take(here: World, step: Step): void {
  switch (step.kind) {
    case 'sleep':
      here.now += step.ms;
      break;
    case 'operator':
      operate(here, step.action);
      break;
    case 'lose':
      // The holder dies; the next claim comes when its lease is over.
      claim(here);
      break;
    case 'heartbeat':
      if (here.entry?.status.state !== 'active') break;
      write(
        here,
        extendedStatus(here.entry.status, { now: here.now, leaseMs: MINUTE_MS }),
        'settle',
      );
      break;
    case 'release':
      if (claim(here)) settle(here, { kind: 'release' });
      break;
    default:
      if (claim(here)) settle(here, verdictOn(here, step.outcome, step.random));
  }
}

function entryOf(here: World): Entry {
  if (here.entry === undefined) throw new Error('there is no entry');
  return here.entry;
}

/** Lives through the steps, in a world of its own: a failing run repeats the same values. */
function live(given: World, steps: readonly Step[]): World {
  const here = { ...given };
  for (const step of steps) take(here, step);
  return here;
}

describe('the life of a message', () => {
  test('without operators keeps every promise, whatever handlers say and holders do', () => {
    always([world, fc.array(engineStep, { maxLength: 40, size: 'max' })], (given, steps) => {
      live(given, steps);
    });
  });

  test('with operators keeps every promise but the number of attempts', () => {
    const step = fc.oneof(engineStep, operatorStep);
    always([world, fc.array(step, { maxLength: 40, size: 'max' })], (given, steps) => {
      live(given, steps);
    });
  });

  test('ends: what fails every time leaves the delivery lane after its attempts', () => {
    const failing = fc.record({
      kind: fc.constant('attempt'),
      outcome: anyFailure.map(failed),
      random: chance,
    });
    always([world, fc.array(failing, { minLength: 20, maxLength: 20 })], (given, steps) => {
      const { entry } = live(given, steps);
      expect(entry?.status.lane).toBe('notice');
      expect(['bounce', 'archived']).toContain(entry?.status.state);
    });
  });

  test('that kills every holder is held or bounced after four losses', () => {
    always([world], (given) => {
      const round: Step[] = [
        { kind: 'lose' },
        { kind: 'attempt', outcome: { kind: 'delivered' }, random: 0 },
      ];
      const { entry } = live(given, Array.from({ length: LOST_MAX + 1 }, () => round).flat());
      // A message that expired meanwhile may be on its way to tell of it.
      if (entry?.status.lane === 'notice') return;
      expect(entry?.status.state).toBe('hold');
    });
  });

  test('is undone to the last counter by a release', () => {
    always([world, fc.array(engineStep, { maxLength: 15 })], (given, steps) => {
      const here = live(given, steps);
      const before = here.entry?.status;
      if (before === undefined || before.state === 'active' || !claim(here)) return;
      const { now, retention, announces } = here;
      const context = { now, retention, announces };
      expect(nextStatus(entryOf(here), { kind: 'release' }, context)).toEqual({
        ...before,
        revision: before.revision + 2,
        dueAt: now,
        updatedAt: now,
      });
    });
  });
});
