/**
 * guard — middleware that may refuse a delivery before the handler sees it, such as one of an
 * unknown sender or with a wrong body.
 *
 * Promise: only `true` lets it pass. A guard that forgets to answer refuses.
 */

import { show } from '../core/errors.ts';
import { failure } from '../core/failure.ts';
import type { Option } from '../core/option-table.ts';
import { failed, held, isOutcome, type Outcome } from '../core/verdict.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { checkFunction, checkMiddlewareOptions } from './options.ts';

/** `true` to let it pass; a reason, an outcome, or false to refuse it. */
export type GuardAnswer = boolean | string | Outcome;

const GUARD = {
  refused: {
    kind: 'choice',
    choices: ['hold', 'fail'],
    default: 'hold',
    about: 'a refused message is put on hold for an operator, or fails for good',
  },
} as const;

/** Every option of `guard()`. */
export const GUARD_OPTIONS: Readonly<Record<keyof GuardOptions, Option>> = GUARD;

/** What `guard()` takes besides the question. */
export interface GuardOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** A refused message is put on hold for an operator, or fails for good. Default `hold`. */
  readonly refused?: 'hold' | 'fail';
}

/** Asks before the handler runs; a guard that throws fails the attempt, which is tried again. */
export function guard(
  ask: (delivery: Delivery) => GuardAnswer | Promise<GuardAnswer>,
  options: GuardOptions = {},
): Middleware {
  checkFunction('ask of guard', ask);
  const { refused } = checkMiddlewareOptions('guard', options, GUARD);
  return async (delivery, next) => {
    const answer: unknown = await ask(delivery);
    if (answer === true) return next();
    if (isOutcome(answer)) return answer;
    const reason = reasonOf(answer);
    if (refused === 'hold') return held(reason, CODE);
    return failed(failure('permanent', CODE, reason));
  };
}

const CODE = 'guard.refused';

function reasonOf(answer: unknown): string {
  if (typeof answer === 'string' && answer !== '') return answer;
  if (answer === false || answer === '') return 'a guard refused the message';
  return `a guard answered ${show(answer)}; only true lets a message pass`;
}
