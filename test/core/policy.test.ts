/** How long to wait, and when to give up. */
import { describe, expect, test } from 'vitest';
import {
  type BackoffFunction,
  custom,
  describePolicy,
  type Duration,
  exponential,
  type Failure,
  failure,
  fixed,
  ladder,
  linear,
  noRetry,
  postfix,
  type RetryPolicy,
  rungs,
} from 'respool';
import { ATTEMPTS_MAX, checkPolicy, delayMs } from '../../src/core/policy.ts';
import { refusal } from './refusal.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../time.ts';

const broken = failure('transient', 'timeout', 'no answer');

interface Extra {
  readonly failure?: Failure;
  readonly random?: number;
  readonly backoffs?: Readonly<Record<string, BackoffFunction>>;
}

function wait(policy: RetryPolicy, attempt: number, extra: Extra = {}): number {
  return delayMs({ policy, attempt, failure: broken, random: 0, ...extra });
}

/** The waits between all the attempts a policy allows. */
function waits(policy: RetryPolicy, extra: Extra = {}): number[] {
  return Array.from({ length: policy.maxAttempts - 1 }, (_, at) => wait(policy, at + 1, extra));
}

describe('the waits of a policy', () => {
  test.each<[string, RetryPolicy, number[]]>([
    ['fixed waits the same every time', fixed('5s', { attempts: 4 }), [5_000, 5_000, 5_000]],
    ['fixed 0 tries again at once', fixed(0, { attempts: 3 }), [0, 0]],
    ['linear adds the first again', linear({ first: '1s', attempts: 5 }), [1e3, 2e3, 3e3, 4e3]],
    [
      'linear adds its step',
      linear({ first: '1s', step: '500ms', attempts: 4 }),
      [1_000, 1_500, 2_000],
    ],
    ['linear with step 0 is fixed', linear({ first: 7, step: 0, attempts: 3 }), [7, 7]],
    [
      'linear stops growing at its maximum',
      linear({ first: '1s', max: '2500ms', attempts: 5 }),
      [1_000, 2_000, 2_500, 2_500],
    ],
    [
      'exponential doubles',
      exponential({ first: '1s', attempts: 5 }),
      [1_000, 2_000, 4_000, 8_000],
    ],
    [
      'exponential takes a factor and a cap',
      exponential({ first: '5s', factor: 3, max: '10m', attempts: 7 }),
      [5_000, 15_000, 45_000, 135_000, 405_000, 600_000],
    ],
    [
      'exponential rounds a broken factor up',
      exponential({ first: 1, factor: 1.5, attempts: 5 }),
      [1, 2, 3, 4],
    ],
    ['exponential by 1 is fixed', exponential({ first: 9, factor: 1, attempts: 3 }), [9, 9]],
    ['a ladder is its list', ladder(['1s', '1m', 250]), [1_000, 60_000, 250]],
    [
      'a ladder holds any series',
      ladder(['1s', '1s', '2s', '3s', '5s', '8s']),
      [1_000, 1_000, 2_000, 3_000, 5_000, 8_000],
    ],
    ['an empty ladder has none', ladder([]), []],
    ['noRetry has none', noRetry(), []],
  ])('%s', (_, policy, expected) => {
    expect(waits(policy)).toEqual(expected);
  });

  test('postfix is 15m 30m 1h 2h 4h 8h 16h 24h 24h, ten attempts', () => {
    const policy = postfix();
    expect(policy.maxAttempts).toBe(10);
    expect(waits(policy)).toEqual([
      15 * MINUTE_MS,
      30 * MINUTE_MS,
      HOUR_MS,
      2 * HOUR_MS,
      4 * HOUR_MS,
      8 * HOUR_MS,
      16 * HOUR_MS,
      DAY_MS,
      DAY_MS,
    ]);
  });

  test('postfix takes attempts, age and jitter', () => {
    expect(postfix({ attempts: 3, maxAge: '5d', jitter: 0.5 })).toEqual({
      maxAttempts: 3,
      maxAgeMs: 5 * DAY_MS,
      backoff: { kind: 'exponential', firstMs: 15 * MINUTE_MS, factor: 2, maxMs: DAY_MS },
      jitter: 0.5,
    });
  });

  test('the first retry uses the first delay, not the second', () => {
    for (const policy of [
      fixed('3s'),
      linear({ first: '3s', step: '9s' }),
      exponential({ first: '3s', factor: 10 }),
      ladder(['3s', '9s']),
    ]) {
      expect(wait(policy, 1), policy.backoff.kind).toBe(3_000);
    }
  });

  test('a policy that starts from nothing stays a number far out', () => {
    // 100 ** 999 is Infinity, and 0 × Infinity was NaN: such a message was never due again.
    const policy = exponential({ first: 0, factor: 100, attempts: 1_000 });
    expect(new Set(waits(policy))).toEqual(new Set([0]));
  });

  test('a thousand attempts reach the cap and stay there', () => {
    const policy = exponential({ first: 1, factor: 100, max: '1h', attempts: 1_000 });
    expect(wait(policy, 999)).toBe(HOUR_MS);
  });

  test('past the end of a ladder the last wait comes again', () => {
    expect(wait(ladder(['1s', '2s']), 7)).toBe(2_000);
    expect(wait(noRetry(), 1)).toBe(0);
  });
});

describe('what every policy takes', () => {
  test('by default ten attempts, no limit of age, no jitter', () => {
    for (const policy of [
      fixed(1),
      linear({ first: 1 }),
      exponential({ first: 1 }),
      custom('x', [1]),
    ]) {
      expect(policy).toMatchObject({ maxAttempts: 10, maxAgeMs: null, jitter: 0 });
    }
  });

  test('linear and exponential grow up to 24h unless told otherwise', () => {
    expect(linear({ first: 1 }).backoff).toMatchObject({ maxMs: DAY_MS });
    expect(exponential({ first: 1 }).backoff).toMatchObject({ maxMs: DAY_MS, factor: 2 });
  });

  test('a ladder has one attempt more than waits; noRetry has one', () => {
    expect(ladder(['1s', '2s']).maxAttempts).toBe(3);
    expect(ladder([]).maxAttempts).toBe(1);
    expect(noRetry()).toEqual(ladder([]));
  });

  test('is plain data: it survives JSON', () => {
    for (const policy of [postfix({ maxAge: '5d' }), ladder(['1s']), custom('x', ['1s'])]) {
      expect(JSON.parse(JSON.stringify(policy))).toEqual(policy);
    }
  });
});

describe('jitter', () => {
  test.each<[number, number, number]>([
    [0, 0.999, 1_000],
    [0.2, 0, 1_000],
    [0.2, 0.5, 1_100],
    [0.2, 0.999, 1_200],
    [1, 0.5, 1_500],
    [0.001, 0.1, 1_001],
  ])('of %d with chance %d makes %d ms of a second: it only adds', (jitter, random, ms) => {
    expect(wait(fixed('1s', { jitter }), 1, { random })).toBe(ms);
  });

  test('goes on top of the cap and of a wait that was asked for', () => {
    const policy = exponential({ first: '1s', max: '1s', jitter: 1 });
    expect(wait(policy, 5, { random: 0.5 })).toBe(1_500);
    const asked = { ...broken, retryAfterMs: 10_000 };
    expect(wait(policy, 1, { random: 0.5, failure: asked })).toBe(15_000);
  });
});

test('a wait the other side asked for replaces the one of the policy, longer or shorter', () => {
  for (const policy of [fixed('1m'), ladder(['1m']), custom('x', ['1m'])]) {
    expect(wait(policy, 1, { failure: { ...broken, retryAfterMs: 5 } })).toBe(5);
    expect(wait(policy, 1, { failure: { ...broken, retryAfterMs: DAY_MS } })).toBe(DAY_MS);
    expect(wait(policy, 1, { failure: { ...broken, retryAfterMs: 0 } })).toBe(0);
  }
});

describe('a custom policy', () => {
  const policy = custom('by-code', ['1m', '1s', '10s', '1s'], { attempts: 4 });
  const backoffs: Readonly<Record<string, BackoffFunction>> = {
    'by-code': (attempt, { code }) => (code === 'http.429' ? '10s' : attempt * 400),
  };

  test('asks the function of its name, by attempt and by failure', () => {
    expect(wait(policy, 1, { backoffs })).toBe(1_000);
    expect(wait(policy, 3, { backoffs })).toBe(10_000);
    const busy = failure('transient', 'http.429', 'slow down');
    expect(wait(policy, 1, { backoffs, failure: busy })).toBe(10_000);
  });

  test.each<[Duration, number]>([
    [0, 1_000],
    ['1s', 1_000],
    [1_001, 10_000],
    ['10s', 10_000],
    ['59s', 60_000],
    ['2h', 60_000],
  ])('rounds an asked %j up to the rung of %d ms', (asked, ms) => {
    expect(wait(policy, 1, { backoffs: { 'by-code': () => asked } })).toBe(ms);
  });

  test.each<[string, Readonly<Record<string, BackoffFunction>> | undefined]>([
    ['there is no registry', undefined],
    ['it is not registered', {}],
    ['it throws', { 'by-code': () => bang() }],
    ['it says nothing', { 'by-code': () => undefined as unknown as Duration }],
    ['it says nonsense', { 'by-code': () => 'soon' }],
    ['it says NaN', { 'by-code': () => Number.NaN }],
    ['it says less than nothing', { 'by-code': () => -1 }],
    ['it is no function', { 'by-code': 5 as unknown as BackoffFunction }],
  ])('waits its longest rung when %s', (_, registry) => {
    const extra = registry === undefined ? {} : { backoffs: registry };
    expect(wait(policy, 1, extra)).toBe(MINUTE_MS);
  });

  test.each(['constructor', 'toString', '__proto__'])(
    'named %j finds nothing that every object has',
    (name) => {
      expect(wait(custom(name, ['1s', '1m']), 1, { backoffs: {} })).toBe(MINUTE_MS);
    },
  );

  test('that came as unsorted data is read in order', () => {
    const backoff = { kind: 'custom', name: 'by-code', rungsMs: [5_000, 1_000] } as const;
    const given: RetryPolicy = { ...policy, backoff };
    expect(wait(given, 1, { backoffs })).toBe(1_000);
    expect(wait(given, 1)).toBe(5_000);
  });
});

describe('rungs', () => {
  test.each<[string, RetryPolicy, number[]]>([
    ['fixed', fixed('5s', { attempts: 9 }), [5_000]],
    ['fixed, one attempt', fixed('5s', { attempts: 1 }), []],
    ['linear', linear({ first: 10, max: 35, attempts: 9 }), [10, 20, 30, 35]],
    ['exponential', exponential({ first: '1s', attempts: 5 }), [1_000, 2_000, 4_000, 8_000]],
    ['ladder, unsorted with repeats', ladder([30, 10, 30, 20]), [10, 20, 30]],
    ['no retry', noRetry(), []],
    ['custom', custom('x', [20, 10, 20]), [10, 20]],
    ['custom, one attempt', custom('x', [20], { attempts: 1 }), []],
  ])('of %s: ascending, each once', (_, policy, expected) => {
    expect(rungs(policy)).toEqual(expected);
  });

  test('of postfix are its eight different waits', () => {
    expect(rungs(postfix())).toHaveLength(8);
    expect(new Set(rungs(postfix()))).toEqual(new Set(waits(postfix())));
  });

  test('leave jitter out', () => {
    expect(rungs(fixed('5s', { jitter: 1 }))).toEqual([5_000]);
  });
});

describe('a bad policy is refused with policy.invalid', () => {
  const odd = <T>(value: unknown): T => value as T;
  test.each<[string, () => unknown, string]>([
    ['a delay that is no duration', () => fixed('soon'), '"soon" as "delay"'],
    ['a negative delay', () => fixed(-1), '-1 as "delay"'],
    ['a delay of NaN', () => fixed(Number.NaN), 'NaN as "delay"'],
    ['no delay', () => fixed(odd(undefined)), 'undefined as "delay"'],
    ['a delay over a hundred years', () => fixed('40000d'), '0s to 36525d'],
    ['a bad first', () => linear({ first: 'x' }), '"x" as "first"'],
    ['a bad step', () => linear({ first: 1, step: '-1s' }), '"-1s" as "step"'],
    ['a cap below the first', () => linear({ first: '2s', max: '1s' }), 'at least first, 2000 ms'],
    ['a cap below the first', () => exponential({ first: 2, max: 1 }), 'at least first, 2 ms'],
    ['a factor below 1', () => exponential({ first: 1, factor: 0.5 }), '0.5 as "factor"'],
    ['a factor over 100', () => exponential({ first: 1, factor: 101 }), 'a number 1 to 100'],
    ['a factor of NaN', () => exponential({ first: 1, factor: Number.NaN }), 'NaN as "factor"'],
    ['a factor as text', () => exponential({ first: 1, factor: odd('2') }), '"2" as "factor"'],
    ['no attempts', () => fixed(1, { attempts: 0 }), '0 as "attempts"'],
    ['half attempts', () => fixed(1, { attempts: 1.5 }), 'a whole number 1 to 1000'],
    ['too many attempts', () => fixed(1, { attempts: 1_001 }), '1001 as "attempts"'],
    ['attempts as a bigint', () => fixed(1, { attempts: odd(5n) }), '5 as "attempts"'],
    ['negative jitter', () => fixed(1, { jitter: -0.1 }), '-0.1 as "jitter"'],
    ['jitter over 1', () => fixed(1, { jitter: 1.1 }), 'a number 0 to 1'],
    ['a bad age', () => fixed(1, { maxAge: 'old' }), '"old" as "maxAge"'],
    ['a ladder that is no list', () => ladder(odd('1s')), '"1s" as "delays"'],
    ['a bad rung of a ladder', () => ladder(['1s', 'x']), '"x" as "delays[1]"'],
    ['a ladder too long', () => ladder(Array.from({ length: 1_000 }, () => 1)), 'at most 999'],
    ['a custom policy without a name', () => custom('', [1]), '"" as "name"'],
    ['a custom policy without rungs', () => custom('x', []), '1 to 1000 durations'],
    ['a bad rung of a custom policy', () => custom('x', [1, -1]), '-1 as "rungs[1]"'],
  ])('%s', (_, make, text) => {
    const error = refusal(make);
    expect(error.code).toBe('policy.invalid');
    expect(error.message).toContain('cannot use ');
    expect(error.message).toContain(text);
    expect(error.message.length).toBeLessThan(300);
  });

  test('the longest ladder and the most attempts are still fine', () => {
    expect(ladder(Array.from({ length: 999 }, () => 1)).maxAttempts).toBe(ATTEMPTS_MAX);
    expect(fixed(1, { attempts: ATTEMPTS_MAX }).maxAttempts).toBe(ATTEMPTS_MAX);
  });
});

describe('a policy that came as data', () => {
  test.each([fixed(1), linear({ first: 1 }), postfix(), ladder([]), custom('x', [1])])(
    'is taken when a constructor could have made it: %o',
    (policy) => {
      expect(checkPolicy(policy, 'mail')).toBe(policy);
    },
  );

  const data = fixed('1s');
  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['null', null],
    ['a name', 'postfix'],
    ['a function', postfix],
    ['no backoff', { ...data, backoff: undefined }],
    ['an unknown backoff', { ...data, backoff: { kind: 'fibonacci' } }],
    ['no attempts', { ...data, maxAttempts: undefined }],
    ['too many attempts', { ...data, maxAttempts: 1e9 }],
    ['no jitter', { ...data, jitter: undefined }],
    ['no age', { ...data, maxAgeMs: undefined }],
    ['an age as text', { ...data, maxAgeMs: '7d' }],
    ['a negative delay', { ...data, backoff: { kind: 'fixed', delayMs: -1 } }],
    ['a broken delay', { ...data, backoff: { kind: 'fixed', delayMs: 0.5 } }],
    ['an endless delay', { ...data, backoff: { kind: 'fixed', delayMs: 1e15 } }],
    ['no delay', { ...data, backoff: { kind: 'fixed' } }],
    ['half an exponential', { ...data, backoff: { kind: 'exponential', firstMs: 1 } }],
    ['a ladder without rungs', { ...data, backoff: { kind: 'ladder' } }],
    ['a ladder of words', { ...data, backoff: { kind: 'ladder', delaysMs: ['1s'] } }],
    ['a custom one without rungs', { ...data, backoff: { kind: 'custom', name: 'x' } }],
    ['an empty custom one', { ...data, backoff: { kind: 'custom', name: 'x', rungsMs: [] } }],
  ])('is refused with %s, and the policy is named', (_, policy) => {
    const error = refusal(() => checkPolicy(policy as RetryPolicy, 'mail'));
    expect(error.code).toBe('policy.invalid');
    expect(error.message).toContain('"mail');
  });
});

test.each<[RetryPolicy, string]>([
  [fixed('5s', { attempts: 3 }), 'fixed 5s, 3 attempts'],
  [linear({ first: '1s', step: '2s', max: '1m' }), 'linear 1s +2s up to 1m, 10 attempts'],
  [
    exponential({ first: '1s', max: '1h', attempts: 12, jitter: 0.2 }),
    'exponential 1s ×2 up to 1h, 12 attempts, jitter 0.2',
  ],
  [ladder(['1s', '1m'], { maxAge: '1d' }), 'ladder 1s 1m, 3 attempts, within 1d'],
  [noRetry(), 'ladder without retries, 1 attempt'],
  [custom('by-code', ['1s']), 'custom "by-code", 10 attempts'],
])('%# a policy is told in one line: %o', (policy, text) => {
  expect(describePolicy(policy)).toBe(text);
});

function bang(): never {
  throw new Error('bang');
}
