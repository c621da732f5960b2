/**
 * inBatches — makes a handler that collects several deliveries and passes them to one call.
 *
 * Not a middleware: it wraps no handler of single deliveries. Each delivery keeps its own slot,
 * attempt, lease and outcome. Also told in docs/how-to/middleware.md.
 *
 *   handler(delivery) ─▶ gathered ─`max`, or `within` after the first─▶ one call ─▶ outcomes
 */

import type { Duration } from '../core/duration.ts';
import { show } from '../core/errors.ts';
import { RetryableError } from '../core/failure.ts';
import type { Option } from '../core/option-table.ts';
import { isOutcome, type Outcome } from '../core/verdict.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery, Handler } from '../ports/handler.ts';
import { systemClock } from '../system/clock.ts';
import { checkFunction, checkMiddlewareOptions, CLOCK } from './options.ts';
import { postponedOutcome } from './run.ts';

/** The result of one delivery of a batch; undefined: delivered, an error: as if thrown. */
export type BatchAnswer = Outcome | Error | undefined;

/** Handles several at once: one answer for each, in their order, or nothing when all went well. */
export type BatchHandler<Body = unknown> = (
  deliveries: readonly Delivery<Body>[],
) => readonly BatchAnswer[] | void | Promise<readonly BatchAnswer[] | void>;

const IN_BATCHES = {
  handler: {
    kind: 'code',
    ts: 'BatchHandler<Body>',
    required: true,
    about: 'is called with 1 to `max` deliveries; what it throws fails all of them',
  },
  max: {
    kind: 'number',
    min: 1,
    max: 10_000,
    required: true,
    about: 'the most deliveries of a batch, in which the concurrency of the handler is a limit too',
  },
  within: {
    kind: 'duration',
    max: '1m',
    required: true,
    about: 'the first of a batch waits for others no longer than this',
  },
  clock: CLOCK,
} as const;

/** Every option of `inBatches()`. */
export const IN_BATCHES_OPTIONS: Readonly<Record<keyof InBatchesOptions, Option>> = IN_BATCHES;

/** What `inBatches()` takes. */
export interface InBatchesOptions<Body = unknown> {
  // Written by `npm run options`: edit the table of options instead.
  /** Is called with 1 to `max` deliveries; what it throws fails all of them. */
  readonly handler: BatchHandler<Body>;
  /**
   * The most deliveries of a batch, in which the concurrency of the handler is a limit too. 1 to
   * 10,000.
   */
  readonly max: number;
  /** The first of a batch waits for others no longer than this. Up to 1m. */
  readonly within: Duration;
  /** Time; the machine's unless given, a test gives its virtual one. */
  readonly clock?: Clock;
}

interface Member<Body> {
  readonly delivery: Delivery<Body>;
  readonly leave: () => void;
  readonly resolve: (outcome: Outcome | undefined) => void;
  readonly reject: (thrown: unknown) => void;
}

/** Makes a handler that gathers deliveries and hands them over together. */
export function inBatches<Body = unknown>(options: InBatchesOptions<Body>): Handler<Body> {
  const { max, withinMs } = checkMiddlewareOptions('inBatches', options, IN_BATCHES);
  const { handler, clock = systemClock } = options;
  checkFunction('handler', handler);
  let gathered: Member<Body>[] = [];
  let callOff: (() => void) | undefined;

  function takeAll(): Member<Body>[] {
    const members = gathered;
    gathered = [];
    callOff?.();
    callOff = undefined;
    for (const { delivery, leave } of members) delivery.signal.removeEventListener('abort', leave);
    return members;
  }

  function add(member: Member<Body>): void {
    const { signal } = member.delivery;
    if (signal.aborted) return member.resolve(ABORTED_OUTCOME);
    signal.addEventListener('abort', member.leave, { once: true });
    gathered.push(member);
    if (gathered.length >= max) void handOver(handler, takeAll());
    else callOff ??= clock.after(withinMs, () => void handOver(handler, takeAll()));
  }

  function remove(member: Member<Body>): void {
    gathered = gathered.filter((other) => other !== member);
    // Of none: only its timer is stopped.
    if (gathered.length === 0) takeAll();
    member.resolve(ABORTED_OUTCOME);
  }

  return async (delivery) => {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome | undefined>();
    const member: Member<Body> = { delivery, leave: () => remove(member), resolve, reject };
    add(member);
    return promise;
  };
}

const ABORTED_OUTCOME = postponedOutcome(
  0,
  'batch.left',
  'the delivery was called off before its batch was full',
);

/** Calls the handler once. Never rejects: its errors go to every member. */
async function handOver<Body>(
  handler: BatchHandler<Body>,
  members: readonly Member<Body>[],
): Promise<void> {
  try {
    const answers: unknown = await handler(members.map(({ delivery }) => delivery));
    checkAnswers(answers, members.length);
    for (const [at, member] of members.entries()) settleMember(member, answers?.[at]);
  } catch (thrown) {
    for (const { reject } of members) reject(thrown);
  }
}

function checkAnswers(
  answers: unknown,
  count: number,
): asserts answers is readonly unknown[] | undefined {
  if (answers === undefined || (Array.isArray(answers) && answers.length === count)) return;
  // Which answer is missing is unknown, and none may count as delivered.
  throw new RetryableError(
    'outcome.invalid',
    `the handler of a batch returned ${Array.isArray(answers) ? answers.length : show(answers)} ` +
      `for ${count} deliveries; return one answer for each, in their order, or nothing`,
  );
}

function settleMember<Body>({ resolve, reject }: Member<Body>, answer: unknown): void {
  try {
    if (answer === undefined || isOutcome(answer)) resolve(answer);
    else if (answer instanceof Error) reject(answer);
    else {
      const text = `the handler of a batch answered ${show(answer)} for one delivery`;
      const allowed = 'allowed is an outcome, an error, or undefined for delivered';
      reject(new RetryableError('outcome.invalid', `${text}; ${allowed}`));
    }
  } catch (error) {
    // It has the kind of an outcome but not the shape.
    reject(error);
  }
}
