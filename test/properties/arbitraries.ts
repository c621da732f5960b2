/** arbitraries — policies, failures and outcomes of every kind, for the properties of core. */
import fc from 'fast-check';
import {
  custom,
  delivered,
  exponential,
  failed,
  type Failure,
  failure,
  fixed,
  held,
  ladder,
  linear,
  type Outcome,
  type PolicyOptions,
  postponed,
  type RetryPolicy,
} from 'respool';
import { DAY_MS } from '../time.ts';

const span: fc.Arbitrary<number> = fc.oneof(
  fc.nat({ max: 1_000 }),
  fc.nat({ max: DAY_MS }),
  fc.constantFrom(0, 1),
);

const options: fc.Arbitrary<PolicyOptions> = fc.record(
  {
    attempts: fc.integer({ min: 1, max: 20 }),
    maxAge: fc.nat({ max: 2 * DAY_MS }),
    jitter: fc.double({ min: 0, max: 1, noNaN: true }),
  },
  { requiredKeys: [] },
);

/** Growing policies: linear and exponential. */
export const growing: fc.Arbitrary<RetryPolicy> = fc
  .tuple(options, span, span, span, fc.double({ min: 1, max: 100, noNaN: true }), fc.boolean())
  .map(([rest, first, step, more, factor, isLinear]) =>
    isLinear
      ? linear({ ...rest, first, step, max: first + more })
      : exponential({ ...rest, first, factor, max: first + more }),
  );

/** Every kind of policy. */
export const anyPolicy: fc.Arbitrary<RetryPolicy> = fc.oneof(
  growing,
  fc.tuple(span, options).map(([delay, rest]) => fixed(delay, rest)),
  fc.array(span, { maxLength: 12 }).map((delays) => ladder(delays)),
  fc
    .tuple(fc.array(span, { minLength: 1, maxLength: 8 }), options)
    .map(([list, rest]) => custom('own', list, rest)),
);

/** 0 ≤ random < 1. */
export const chance: fc.Arbitrary<number> = fc.double({
  min: 0,
  max: 1,
  maxExcluded: true,
  noNaN: true,
});

/** Failures that a retry may help. */
export const transient: fc.Arbitrary<Failure> = fc
  .tuple(fc.string(), fc.string(), fc.option(span, { nil: undefined }))
  .map(([code, reason, waitMs]) => failure('transient', code, reason, waitMs));

/** Failures of both kinds. */
export const anyFailure: fc.Arbitrary<Failure> = fc
  .tuple(transient, fc.boolean())
  .map(([one, isFinal]): Failure => (isFinal ? { ...one, permanence: 'permanent' } : one));

/** Everything a handler can say. */
export const anyOutcome: fc.Arbitrary<Outcome> = fc.oneof(
  fc.constant(delivered()),
  anyFailure.map(failed),
  fc.tuple(span, fc.string()).map(([delayMs, why]) => postponed(delayMs, why)),
  fc.string().map((why) => held(why)),
);
