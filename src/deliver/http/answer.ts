/**
 * answer — what a response means for the message. Pure.
 *
 * Promise: what is not positively final is deferred (invariant 8, ARCHITECTURE.md).
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { failure } from '../../core/failure.ts';
import { delivered, failed, type Outcome } from '../../core/verdict.ts';
import { checkOptionList } from '../option-checks.ts';
import { plainText } from '../ready-handler.ts';

/** A status such as `404`, or a class such as `'5xx'`. */
export type StatusRule = number | string;

/** What statuses mean; a status takes precedence over its class. */
export type StatusRules = ReadonlyMap<StatusRule, 'transient' | 'permanent'>;

/** A response, as far as it matters. */
export interface Answer {
  readonly status: number;
  readonly retryAfter: string | undefined;
  /** The start of its body, without secrets. */
  readonly start: string;
}

/** Maximum length of the part of a response that the reason of a failure quotes. */
const REASON_RESPONSE_MAX_CHARS = 200;
const RULE_ALLOWED = "a list of statuses 300 to 599 and classes such as '5xx'";
const CLASS = /^[345]xx$/;

/** What statuses mean by default. */
export const DEFAULT_RULES: StatusRules = new Map<StatusRule, 'transient' | 'permanent'>([
  [408, 'transient'],
  [425, 'transient'],
  [429, 'transient'],
  ['5xx', 'transient'],
  ['4xx', 'permanent'],
  // Redirects are not followed, and waiting does not change the address.
  ['3xx', 'permanent'],
]);

/** The rules in the options `transient` and `permanent`; no status may be in both. */
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

/** The outcome of a response. */
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
  const start = plainText(answer.start, REASON_RESPONSE_MAX_CHARS);
  const redirect = status >= 300 && status <= 399 ? '; redirects are not followed' : '';
  const reason = `${host} answered ${status}${redirect}${start === '' ? '' : `: ${start}`}`;
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

/** The three date formats of HTTP, all in GMT. */
const HTTP_DATES = [
  /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/,
  /^[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d\d:\d\d:\d\d GMT$/,
  /^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}$/,
];

/** The wait that a `Retry-After` header asks for; undefined if none, 0 or in the past. */
function retryAfterMs(header: string | undefined, now: Millis): number | undefined {
  const text = header?.trim() ?? '';
  let waitMs = Number.NaN;
  // Any number of digits: an absurd wait is limited, not ignored.
  if (/^\d+$/.test(text)) waitMs = Number(text) * SECOND_MS;
  else if (HTTP_DATES.some((shape) => shape.test(text))) {
    // n.b. The oldest format omits GMT.
    waitMs = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`) - now;
  }
  // With 0 or a time in the past, the policy decides how long to wait.
  return waitMs > 0 ? waitMs : undefined;
}
