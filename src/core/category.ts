/**
 * category — the kind of a failure, one of ten words: who can fix it, and whether sending it again
 * can help. Pure. The user's rules are tried first, then the code, then words in the reason.
 *
 * Of HTTP: 503, 507 and 509 mean that the other side had no room (`resource`), 502 that it was not
 * reached (`network`), 408 and 504 that it took too long; a 5xx that no rule names is an error
 * inside of it (`bug`), such a 4xx one of ours (`validation`). All rules: CODES, the first decides.
 */

import { RespoolError, show } from './errors.ts';
import { compileGlob } from './glob.ts';
import { checkNames, checkOneOf, checkTopicPattern } from './limits.ts';
import type { Option, OptionTable } from './option-table.ts';
import { topicMatches } from './topic.ts';

/** The categories; `other` is what no rule knows. */
export const CATEGORIES = [
  'network',
  'timeout',
  'rate-limit',
  'auth',
  'not-found',
  'validation',
  'conflict',
  'bug',
  'resource',
  'other',
] as const;

export type Category = (typeof CATEGORIES)[number];

/** A rule of the user: all its conditions must match, and the first rule that matches decides. */
export interface CategoryRule {
  // Written by `npm run options`: edit the table of options instead.
  /** The category of what fits. */
  readonly category: Category;
  /** The code, with `*` and `?`: `erp.*`. */
  readonly code?: string;
  /** A text within the reason, in any case; parts around `*` in their order. */
  readonly reason?: string;
  /** A topic or pattern. */
  readonly topic?: string;
  /** The queue it is in, with `*` and `?`. */
  readonly queue?: string;
}

/** The conditions of a rule; at least one of them is given. */
const CONDITION_OPTIONS = {
  code: { kind: 'text', about: 'the code, with `*` and `?`: `erp.*`' },
  reason: {
    kind: 'text',
    about: 'a text within the reason, in any case; parts around `*` in their order',
  },
  topic: { kind: 'text', about: 'a topic or pattern' },
  queue: { kind: 'text', about: 'the queue it is in, with `*` and `?`' },
} as const satisfies OptionTable;

/** The options of a rule. */
export const CATEGORY_OPTIONS: Readonly<Record<keyof CategoryRule, Option>> = {
  category: {
    kind: 'choice',
    choices: CATEGORIES,
    ts: 'Category',
    required: true,
    about: 'the category of what fits',
  },
  ...CONDITION_OPTIONS,
};

/** The fields that decide the category; a letter has all of them. */
interface CategoryInput {
  readonly code: string;
  readonly reason: string;
  readonly topic?: string;
  /** The queue, or the state of the spool. */
  readonly place?: string;
}

/** Maximum number of rules of a user. Also in docs/reference/dead-letters.md. */
export const CATEGORY_RULES_MAX = 100;
/** The longest text of a rule. Also in docs/reference/dead-letters.md. */
export const CATEGORY_TEXT_MAX_CHARS = 255;
/** Only this many characters of a reason are searched. Also in docs/reference/dead-letters.md. */
const REASON_READ_CHARS = 1_000;

/** The category of a failure. For many of them: `categoriser`. */
export function categoryOf(failed: CategoryInput, rules: readonly CategoryRule[] = []): Category {
  return categoriser(rules)(failed);
}

/** A function that finds the category of a failure; it compiles the user's rules once. */
export function categoriser(
  rules: readonly CategoryRule[] = [],
): (failed: CategoryInput) => Category {
  const read = rules.map(({ category, ...rule }) => ({ category, fits: matcherOf(rule) }));
  return (failed) =>
    read.find(({ fits }) => fits(failed))?.category ??
    byCode(failed.code) ??
    byReason(failed.reason) ??
    'other';
}

function matcherOf(rule: Omit<CategoryRule, 'category'>): (failed: CategoryInput) => boolean {
  const { reason, topic } = rule;
  const code = rule.code === undefined ? undefined : compileGlob(rule.code);
  const queue = rule.queue === undefined ? undefined : compileGlob(rule.queue);
  return (failed) =>
    (code === undefined || code.match(failed.code) !== undefined) &&
    (topic === undefined || topicMatches(topic, failed.topic ?? '')) &&
    (queue === undefined || queue.match(failed.place ?? '') !== undefined) &&
    (reason === undefined || containsInOrder(failed.reason, reason));
}

/** Whether the text has all parts of the pattern, one after the other. */
function containsInOrder(text: string, pattern: string): boolean {
  const read = text.slice(0, REASON_READ_CHARS).toLowerCase();
  let at = 0;
  for (const part of pattern.toLowerCase().split('*')) {
    const found = read.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return true;
}

/** Refuses what is not a list of rules; `what` names it in error texts. */
export function checkCategoryRules(rules: unknown, what = 'categories'): readonly CategoryRule[] {
  if (!Array.isArray(rules)) {
    throw invalid(show(rules), what, 'a list of rules, such as [{ category, code }]');
  }
  if (rules.length > CATEGORY_RULES_MAX) {
    throw invalid(`${rules.length} rules`, what, `at most ${CATEGORY_RULES_MAX}`);
  }
  return rules.map((rule: unknown, at) => checkRule(rule, `${what}[${at}]`));
}

function checkRule(rule: unknown, what: string): CategoryRule {
  if (typeof rule !== 'object' || rule === null || Array.isArray(rule)) {
    throw invalid(show(rule), what, 'a rule, such as { category, code }');
  }
  checkNames(`"${what}"`, rule, Object.keys(CATEGORY_OPTIONS));
  const { category, ...given } = rule as Readonly<Record<string, unknown>>;
  const conditions = CONDITIONS.filter((name) => given[name] !== undefined);
  if (conditions.length === 0) {
    throw invalid('a rule that fits everything', what, `at least one of ${CONDITIONS.join(', ')}`);
  }
  for (const name of conditions) checkText(given[name], `${what}.${name}`);
  if (given['topic'] !== undefined) checkRuleTopic(given['topic'], `${what}.topic`);
  return {
    category: checkOneOf(`${what}.category`, category, CATEGORIES),
    ...Object.fromEntries(conditions.map((name) => [name, given[name]])),
  };
}

const CONDITIONS = Object.keys(CONDITION_OPTIONS) as readonly (keyof typeof CONDITION_OPTIONS)[];

function checkText(value: unknown, what: string): void {
  const isText = typeof value === 'string' && value.trim() !== '' && value !== '*';
  if (isText && value.length <= CATEGORY_TEXT_MAX_CHARS) return;
  throw invalid(
    show(value),
    what,
    `a text of 1 to ${CATEGORY_TEXT_MAX_CHARS} characters that is not "*" alone`,
  );
}

function checkRuleTopic(value: unknown, what: string): void {
  try {
    checkTopicPattern(value);
  } catch {
    // The check speaks of a message; here it is a setting.
    throw invalid(show(value), what, 'dot-separated words, * for one word, # for any number');
  }
}

function invalid(value: string, what: string, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${value} as "${what}": allowed is ${allowed}`,
  );
}

type Table = readonly (readonly [RegExp, Category])[];

function firstOf(table: Table, text: string): Category | undefined {
  return table.find(([pattern]) => pattern.test(text))?.[1];
}

function byCode(code: string): Category | undefined {
  return firstOf(CODES, code);
}

// Codes of our own handlers, sinks and stores, and of the protocols behind them.
// n.b. Every expression here is linear: alternatives without repetition inside repetition.
const CODES: Table = [
  [/^http\.429$/, 'rate-limit'],
  [/^http\.(?:401|402|403|407|511)$/, 'auth'],
  [/^http\.(?:404|410)$/, 'not-found'],
  [/^http\.(?:408|504|timeout)$/, 'timeout'],
  [/^http\.(?:409|412|423|425|428)$/, 'conflict'],
  [/^http\.(?:503|507|509)$/, 'resource'],
  [/^http\.(?:502|unreachable|reset|tls|protocol|aborted|error)$/, 'network'],
  [/^http\.(?:4\d\d|header)$/, 'validation'],
  [/^http\.5\d\d$/, 'bug'],
  [/^smtp\.(?:454|530|534|535|538)$/, 'auth'],
  [/^smtp\.(?:550|551|556)$/, 'not-found'],
  [/^smtp\.421$/, 'network'],
  [/^smtp\.(?:4\d\d|552)$/, 'resource'],
  [/^smtp\.5\d\d$/, 'validation'],
  [/^(?:amqp\.(?:312|404|no[-_.]route)|broker\.unroutable)$/, 'not-found'],
  [/^amqp\.(?:403|530)$/, 'auth'],
  [/^(?:amqp\.(?:405|406)|topology\.mismatch)$/, 'conflict'],
  [/^amqp\.(?:311|501|502|503)$/, 'validation'],
  [/^(?:amqp\.506|broker\.(?:refused|full)|store\.full|limit\.exceeded)$/, 'resource'],
  [/^broker\.(?:late|unconfirmed)$/, 'timeout'],
  [/^(?:amqp\.(?:320|504|541)|broker\.unavailable|store\.unavailable)$/, 'network'],
  // Why the broker itself gave a message up.
  [/(?:^|[.-])expired$|^policy\.max-age$/, 'timeout'],
  [/(?:^|[.-])maxlen$/, 'resource'],
  [/(?:^|[.-])delivery[-_]limit$|^holder\.lost$/, 'bug'],
  [/^(?:body|message)\.invalid$/, 'validation'],
  [/^(?:body\.(?:missing|corrupt)|exec\.start)$/, 'resource'],
  [/^exec\.signal$/, 'bug'],
  [/^exec\.missing$/, 'not-found'],
  [/timed?[-_. ]?out$|^UND_ERR_\w+_TIMEOUT$|^57014$/i, 'timeout'],
  [
    /^(?:ECONN|EPIPE|EHOST|ENET|EADDR|EAI_|E?NOTFOUND|ENODATA|UND_ERR_(?:SOCKET|CLOSED))/,
    'network',
  ],
  [/^(?:ERR_TLS|ERR_SSL|EPROTO|CERT_|UNABLE_TO_|HPE_)|SELF_SIGNED|^08[0-9A-Z]{3}$/, 'network'],
  [/^(?:ENOSPC|EMFILE|ENFILE|ENOMEM|EDQUOT|ENOBUFS|EBUSY|ERR_OUT_OF_MEMORY)$/, 'resource'],
  [/^53[0-9A-Z]{3}$/, 'resource'],
  [/^(?:EACCES|EPERM|28[0-9A-Z]{3}|42501)$/, 'auth'],
  [/^ENOENT$/, 'not-found'],
  [/^(?:EEXIST|23505|40001|40P01)$/, 'conflict'],
  [/^2[23][0-9A-Z]{3}$|^(?:ZodError|ValidationError)$/, 'validation'],
  [/^(?:Type|Reference|Range|Syntax|Assertion)Error$|^ERR_(?:ASSERTION|INVALID_ARG)/, 'bug'],
];

function byReason(reason: string): Category | undefined {
  const read = reason.slice(0, REASON_READ_CHARS).toLowerCase();
  const status = /\b(?:status|code|http|http\/\d(?:\.\d)?)(?: code)?[ :=]{1,3}([45]\d\d)\b/.exec(
    read,
  );
  return (status === null ? undefined : byCode(`http.${status[1]}`)) ?? firstOf(WORDS, read);
}

/** The most specific words come first: a "connection timed out" is a time-out. */
const WORDS: Table = [
  [/time[d-]? ?-?out|deadline exceeded|took too long|etimedout/, 'timeout'],
  [/rate.?limit|too many requests|throttl|quota/, 'rate-limit'],
  [/is not a function|cannot read propert|is not defined|of (?:undefined|null)\b/, 'bug'],
  [/nullpointer|null pointer|nil pointer|segmentation fault|assertion|stack overflow/, 'bug'],
  [/(?:type|reference|range|index|key|attribute)error\b|internal server error/, 'bug'],
  [/econn|enotfound|getaddrinfo|unreachable|socket|network|\bdns\b|no answer/, 'network'],
  [/connection (?:was )?(?:refused|reset|closed|lost|aborted)|certificate|\btls\b/, 'network'],
  [/unauthori[sz]ed|forbidden|(?:permission|access) (?:was )?denied|authenticat/, 'auth'],
  [/(?:invalid|expired|wrong|bad) (?:token|credential|api key|password|signature)/, 'auth'],
  [/conflict|already exist|duplicate|deadlock|version mismatch|optimistic/, 'conflict'],
  [/out of memory|no space|disk full|too many (?:connections|open files)|overload/, 'resource'],
  [/service unavailable|temporarily unavailable|no capacity|queue is full/, 'resource'],
  [/not found|no such|does not exist|doesn't exist|unknown (?:user|recipient)/, 'not-found'],
  [/invalid|malformed|validation|schema|is required|missing (?:field|property)/, 'validation'],
  [/unexpected token|cannot parse|parse error|unsupported|not allowed/, 'validation'],
];
