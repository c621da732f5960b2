/**
 * answer — what a response means for the message. Pure.
 *
 * Promise: what is not positively final is deferred (invariant 8).
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { failure } from '../../core/failure.ts';
import { delivered, failed, type Outcome } from '../../core/outcome.ts';
import { checkOptionList } from '../option-checks.ts';
import { plainText } from '../plain-text.ts';

/** A status of its own, or a whole class of them such as `'5xx'`. */
export type StatusRule = number | string;

/** Statuses to what they mean; a number says more than a class. */
export type StatusRules = ReadonlyMap<StatusRule, 'transient' | 'permanent'>;

/** What a response was. */
export interface Answer {
  readonly status: number;
  readonly retryAfter: string | undefined;
  /** The first words of its body, without secrets. */
  readonly start: string;
}

/** So much of a response is kept in the reason of a failure. */
const REASON_RESPONSE_MAX_CHARS = 200;
const RULE_ALLOWED = "a list of statuses 300 to 599 and classes such as '5xx'";
const CLASS = /^[345]xx$/;

/** What answers mean unless the options say otherwise. */
export const DEFAULT_RULES: StatusRules = new Map<StatusRule, 'transient' | 'permanent'>([
  [408, 'transient'],
  [425, 'transient'],
  [429, 'transient'],
  ['5xx', 'transient'],
  ['4xx', 'permanent'],
  // Redirects are not followed, and the address that answers so will not change by waiting.
  ['3xx', 'permanent'],
]);

/** The rules of the options `transient` and `permanent`; no status may be in both. */
export function checkStatusRules(transient: unknown, permanent: unknown): StatusRules {
  const rules = new Map<StatusRule, 'transient' | 'permanent'>();
  for (const [name, list] of [
    ['transient', transient],
    ['permanent', permanent],
  ] as const) {
    if (list === undefined) continue;
    for (const rule of checkOptionList(name, list, RULE_ALLOWED)) {
      if (!isRule(rule)) {
        throw new RespoolError(
          'config.invalid',
          `cannot use ${show(rule)} in "${name}": allowed is ${RULE_ALLOWED}`,
        );
      }
      if ((rules.get(rule) ?? name) !== name) {
        throw new RespoolError(
          'config.invalid',
          `cannot use ${show(rule)} in "permanent": it is in "transient" as well; ` +
            'leave it in one of the two',
        );
      }
      rules.set(rule, name);
    }
  }
  return rules;
}

function isRule(rule: unknown): rule is StatusRule {
  if (typeof rule === 'string') return CLASS.test(rule);
  return Number.isInteger(rule) && Number(rule) >= 300 && Number(rule) <= 599;
}

/** The outcome that a response means. */
export function outcomeOfAnswer(
  answer: Answer,
  {
    host,
    rules,
    retryAfterMaxMs,
    now,
  }: {
    readonly host: string;
    readonly rules: StatusRules;
    readonly retryAfterMaxMs: number;
    readonly now: Millis;
  },
): Outcome {
  const { status } = answer;
  if (status >= 200 && status <= 299) return delivered();
  const permanence = lookUp(rules, status) ?? lookUp(DEFAULT_RULES, status) ?? 'transient';
  const said = plainText(answer.start, REASON_RESPONSE_MAX_CHARS);
  const redirect = status >= 300 && status <= 399 ? '; redirects are not followed' : '';
  const reason = `${host} answered ${status}${redirect}${said === '' ? '' : `: ${said}`}`;
  const waitMs = permanence === 'transient' ? retryAfterMs(answer.retryAfter, now) : undefined;
  return failed(
    failure(
      permanence,
      `http.${status}`,
      reason,
      waitMs === undefined ? undefined : Math.min(waitMs, retryAfterMaxMs),
    ),
  );
}

function lookUp(rules: StatusRules, status: number): 'transient' | 'permanent' | undefined {
  return rules.get(status) ?? rules.get(`${Math.floor(status / 100)}xx`);
}

/** The three ways in which HTTP writes a date, all in GMT. */
const HTTP_DATES = [
  /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/,
  /^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d\d:\d\d:\d\d GMT$/,
  /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$/,
];

/** The wait of a `Retry-After` header; undefined without one that asks to wait at all. */
function retryAfterMs(header: string | undefined, now: Millis): number | undefined {
  const text = header?.trim() ?? '';
  let waitMs = Number.NaN;
  // Any number of digits: an absurd wait is cut by the limit, not passed over.
  if (/^\d+$/.test(text)) waitMs = Number(text) * SECOND_MS;
  else if (HTTP_DATES.some((shape) => shape.test(text))) {
    // n.b. the oldest form does not say that it means GMT.
    waitMs = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`) - now;
  }
  // "At once" or a moment gone by is no reason to pass over the policy's own patience.
  return waitMs > 0 ? waitMs : undefined;
}
