/** What a handler said, and what happens to the message. */
import { describe, expect, test } from 'vitest';
import {
  custom,
  delivered,
  failed,
  type Failure,
  failure,
  fixed,
  held,
  judge,
  type Judgement,
  type Lane,
  noRetry,
  type Outcome,
  postponed,
  type RetryPolicy,
  type Verdict,
} from 'respool';
import { DURATION_MAX_MS } from '../../src/core/duration.ts';
import { judgeExpiry, judgeLost, LOST_MAX } from '../../src/core/verdict.ts';
import { DAY_MS, HOUR_MS } from '../time.ts';

const NOW = Date.UTC(2026, 0, 1);
const LANES: readonly Lane[] = ['delivery', 'notice'];
const transient = failure('transient', 'smtp.451', 'greylisted');
const permanent = failure('permanent', 'smtp.550', 'no such user');
const policy = fixed('1m', { attempts: 3 });

interface Facts {
  readonly lane?: Lane;
  readonly attempt?: number;
  readonly lost?: number;
  /** How long ago it was enqueued. */
  readonly ageMs?: number;
  readonly policy?: RetryPolicy;
  readonly random?: number;
}

function facts(given: Facts): Omit<Judgement, 'outcome'> {
  const { lane = 'delivery', attempt = 1, lost = 0, ageMs = 0 } = given;
  return {
    claim: { lane, attempt, lost, enqueuedAt: NOW - ageMs },
    policy: given.policy ?? policy,
    now: NOW,
    random: given.random ?? 0,
  };
}

function verdictOn(outcome: Outcome, given: Facts = {}): Verdict {
  return judge({ ...facts(given), outcome });
}

/** A verdict in one word, with how it came about. */
function inShort(verdict: Verdict): string {
  switch (verdict.kind) {
    case 'defer':
      return `defer ${verdict.delayMs} ${verdict.costsAttempt ? 'costs' : 'free'}`;
    case 'bounce':
      return `bounce ${verdict.spent ? 'spent' : 'final'}`;
    case 'hold':
      return `hold ${verdict.costsAttempt ? 'costs' : 'free'}`;
    default:
      return verdict.kind;
  }
}

const asked: Failure = { ...transient, retryAfterMs: 5_000 };
const askedMuch: Failure = { ...transient, retryAfterMs: DAY_MS };
const aged = fixed('1m', { attempts: 3, maxAge: '1h' });

describe('every outcome in lane delivery', () => {
  test.each<[string, Outcome, Facts, string]>([
    ['delivered, first attempt', delivered(), {}, 'ack'],
    ['delivered, last attempt', delivered(), { attempt: 3 }, 'ack'],
    ['delivered, past its age', delivered(), { policy: aged, ageMs: DAY_MS }, 'ack'],
    ['transient, attempts left', failed(transient), {}, 'defer 60000 costs'],
    ['transient, one left', failed(transient), { attempt: 2 }, 'defer 60000 costs'],
    ['transient, the last attempt', failed(transient), { attempt: 3 }, 'bounce spent'],
    ['transient, more than allowed', failed(transient), { attempt: 9 }, 'bounce spent'],
    ['transient, no retry', failed(transient), { policy: noRetry() }, 'bounce spent'],
    ['permanent, attempts left', failed(permanent), {}, 'bounce final'],
    ['permanent, the last attempt', failed(permanent), { attempt: 3 }, 'bounce final'],
    ['transient, told to wait', failed(asked), {}, 'defer 5000 costs'],
    ['transient, told to wait, spent', failed(asked), { attempt: 3 }, 'bounce spent'],
    ['permanent, told to wait', failed({ ...permanent, retryAfterMs: 1 }), {}, 'bounce final'],
    ['transient, young', failed(transient), { policy: aged }, 'defer 60000 costs'],
    [
      'transient, the next attempt exactly at the limit of age',
      failed(transient),
      { policy: aged, ageMs: HOUR_MS - 60_000 },
      'defer 60000 costs',
    ],
    [
      'transient, the next attempt a moment past the limit of age',
      failed(transient),
      { policy: aged, ageMs: HOUR_MS - 59_999 },
      'bounce spent',
    ],
    ['transient, told to wait past its age', failed(askedMuch), { policy: aged }, 'bounce spent'],
    ['transient, told to wait, no age', failed(askedMuch), {}, `defer ${DAY_MS} costs`],
    ['permanent, past its age', failed(permanent), { policy: aged, ageMs: DAY_MS }, 'bounce final'],
    ['postponed', postponed('5m', 'busy'), {}, 'defer 300000 free'],
    ['postponed at the last attempt', postponed('5m', 'busy'), { attempt: 3 }, 'defer 300000 free'],
    ['postponed by nothing', postponed(0, 'busy'), {}, 'defer 0 free'],
    ['postponed past its age', postponed('2h', 'busy'), { policy: aged }, 'bounce spent'],
    ['held', held('look'), {}, 'hold costs'],
    ['held at the last attempt', held('look'), { attempt: 3 }, 'hold costs'],
    ['held past its age', held('look'), { policy: aged, ageMs: DAY_MS }, 'hold costs'],
  ])('%s', (_, outcome, given, expected) => {
    expect(inShort(verdictOn(outcome, given))).toBe(expected);
  });
});

describe('every outcome in lane notice', () => {
  test.each<[string, Outcome, Facts, string]>([
    ['delivered', delivered(), {}, 'ack'],
    ['transient, attempts left', failed(transient), {}, 'defer 60000 costs'],
    ['transient, the last attempt', failed(transient), { attempt: 3 }, 'bounce spent'],
    ['permanent', failed(permanent), {}, 'bounce final'],
    ['told to wait', failed(asked), {}, 'defer 5000 costs'],
    ['postponed', postponed('5m', 'busy'), {}, 'defer 300000 free'],
    ['held', held('look'), {}, 'hold costs'],
    [
      'transient: the age of the message says nothing about its notice',
      failed(transient),
      { policy: aged, ageMs: DAY_MS },
      'defer 60000 costs',
    ],
    [
      'postponed: the age of the message says nothing about its notice',
      postponed('5m', 'busy'),
      { policy: aged, ageMs: DAY_MS },
      'defer 300000 free',
    ],
  ])('%s', (_, outcome, given, expected) => {
    expect(inShort(verdictOn(outcome, { ...given, lane: 'notice' }))).toBe(expected);
  });
});

describe('a verdict says why', () => {
  test('a failure gives its code, its reason and itself', () => {
    const because = { code: 'smtp.451', text: 'greylisted', by: 'handler' };
    expect(verdictOn(failed(transient))).toEqual({
      kind: 'defer',
      delayMs: 60_000,
      because,
      failure: transient,
      costsAttempt: true,
    });
    expect(verdictOn(failed(transient), { attempt: 3 })).toEqual({
      kind: 'bounce',
      because,
      failure: transient,
      spent: true,
    });
  });

  test('a limit of age is the policy speaking, and the failure is kept', () => {
    const verdict = verdictOn(failed(transient), { policy: aged, ageMs: DAY_MS });
    expect(verdict).toMatchObject({
      kind: 'bounce',
      because: { code: 'policy.max-age', by: 'policy' },
      failure: transient,
    });
    expect(JSON.stringify(verdict)).toContain('3600000 ms: greylisted');
  });

  test('a postponement is no failure', () => {
    const verdict = verdictOn(postponed('1s', 'busy'));
    expect(verdict).toMatchObject({ because: { code: 'handler.postponed', text: 'busy' } });
    expect('failure' in verdict).toBe(false);
    const past = verdictOn(postponed('2h', 'busy'), { policy: aged });
    expect('failure' in past).toBe(false);
  });

  test('a hold and a postponement may bring their own code', () => {
    expect(verdictOn(held('odd body', 'body.invalid'))).toMatchObject({
      because: { code: 'body.invalid', text: 'odd body', by: 'handler' },
    });
    expect(verdictOn({ kind: 'held', reason: 'x' })).toMatchObject({
      because: { code: 'handler.held' },
    });
    const gate: Outcome = { kind: 'postponed', delayMs: 1, reason: 'x', code: 'breaker.open' };
    expect(verdictOn(gate)).toMatchObject({ because: { code: 'breaker.open' } });
  });

  test('what a handler built by hand is cut to the limits', () => {
    const long = 'r'.repeat(100_000);
    const reasons = [
      verdictOn(held(long, long)),
      verdictOn({ kind: 'postponed', delayMs: 1, reason: long, code: long }),
      verdictOn(failed({ ...transient, reason: long, code: long })),
    ];
    for (const verdict of reasons) expect(JSON.stringify(verdict).length).toBeLessThan(3_000);
    const far = verdictOn({ kind: 'postponed', delayMs: 1e300, reason: 'x' });
    expect(far).toMatchObject({ delayMs: DURATION_MAX_MS });
    const half = verdictOn({ kind: 'postponed', delayMs: 0.5, reason: 'x' });
    expect(half).toMatchObject({ delayMs: 1 });
  });
});

test('chance and the registry of delay functions reach the delay', () => {
  const shaky = fixed('1s', { jitter: 0.5 });
  expect(verdictOn(failed(transient), { policy: shaky, random: 0.5 })).toMatchObject({
    delayMs: 1_250,
  });
  const own = custom('by-code', ['1s', '1h']);
  const verdict = judge({
    ...facts({ policy: own }),
    outcome: failed(transient),
    backoffs: { 'by-code': (_attempt, { code }) => (code === 'smtp.451' ? '1h' : '1s') },
  });
  expect(verdict).toMatchObject({ delayMs: HOUR_MS });
});

describe('a lost holder', () => {
  test('three in a row may be lost', () => {
    expect(LOST_MAX).toBe(3);
  });

  test.each<[number, string]>([
    [1, 'defer 60000 costs'],
    [2, 'defer 60000 costs'],
    [3, 'defer 60000 costs'],
    [4, 'hold costs'],
    [5, 'hold costs'],
  ])('after %d in a row: %s', (lost, expected) => {
    for (const lane of LANES) {
      expect(inShort(judgeLost(facts({ lane, lost }))), lane).toBe(expected);
    }
  });

  test('is a transient failure told by the engine', () => {
    expect(judgeLost(facts({ lost: 1 }))).toMatchObject({
      kind: 'defer',
      because: { code: 'holder.lost', by: 'engine' },
      failure: { permanence: 'transient', code: 'holder.lost' },
    });
    expect(judgeLost(facts({ lost: 4 }))).toMatchObject({
      kind: 'hold',
      because: {
        code: 'holder.lost',
        by: 'engine',
        text: '4 holders in a row were lost with this message; it may kill them',
      },
    });
  });

  test('costs attempts and age like any other failure', () => {
    expect(inShort(judgeLost(facts({ lost: 1, attempt: 3 })))).toBe('bounce spent');
    const old = facts({ lost: 1, policy: aged, ageMs: DAY_MS });
    expect(judgeLost(old)).toMatchObject({ kind: 'bounce', because: { code: 'policy.max-age' } });
  });

  test('is held rather than bounced when it is both spent and poison', () => {
    expect(inShort(judgeLost(facts({ lost: 4, attempt: 3 })))).toBe('hold costs');
  });
});

describe('an expiry', () => {
  test.each<[string, Lane, number | undefined, boolean]>([
    ['none is set', 'delivery', undefined, false],
    ['it is still to come', 'delivery', NOW + 1, false],
    ['it is now', 'delivery', NOW, true],
    ['it is past', 'delivery', NOW - 1, true],
    ['it is past, but this is a notice', 'notice', NOW - 1, false],
  ])('when %s', (_, lane, expiresAt, isOver) => {
    const verdict = judgeExpiry({ lane, expiresAt }, NOW);
    expect(verdict !== undefined).toBe(isOver);
  });

  test('bounces without cost, as expired', () => {
    expect(judgeExpiry({ lane: 'delivery', expiresAt: NOW }, NOW)).toEqual({
      kind: 'bounce',
      because: {
        code: 'expired',
        text: 'it was not delivered before 2026-01-01T00:00:00.000Z',
        by: 'engine',
      },
      spent: false,
      expired: true,
    });
  });
});
