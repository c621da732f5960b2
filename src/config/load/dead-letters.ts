/**
 * dead-letters — the rules of a configuration about dead letters: their categories, and when they
 * are replayed automatically. Checked here; nothing is connected.
 */

import type { ReplayRule } from '../../dead-letters/rules/types.ts';
import { CATEGORIES, type CategoryRule, checkCategoryRules } from '../../core/category.ts';
import { type Duration, durationMs } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { compileGlob } from '../../core/glob.ts';
import { checkOneOf, checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import { REPLAY_RULE_KEYS, REPLAY_WHEN_KEYS } from '../schema/items.ts';
import { checkItemName, checkKeys, configError, readItem, refuseTwice } from './config-errors.ts';

/** What holds for dead letters. */
export interface EffectiveDeadLetters {
  readonly categories: readonly CategoryRule[];
  readonly rules: readonly ReplayRule[];
  readonly replaysMax: number;
  readonly parkedQueue?: string;
}

/** What checking needs to know. */
interface DeadLettersContext {
  /** Keys whose values came from the environment, as text. */
  readonly filled: ReadonlySet<string>;
}

type Data = Readonly<Record<string, unknown>>;

/** Keys that a rule may leave to their defaults, for callers that report defaults. */
export const RULE_DEFAULTS: readonly string[] = Object.entries(REPLAY_RULE_KEYS)
  .filter(([, { kind }]) => kind === 'number' || kind === 'duration')
  .map(([name]) => name);

const RULES_MAX = 100;
const TEXT_MAX = 255;
const HEALTHY_ALLOWED =
  "'consumers' (the destination queue is consumed) or { http: url } (a GET there answers 2xx)";

/** Checks what a configuration says of dead letters, and fills in the defaults. */
export function deadLettersOf(value: unknown, parts: DeadLettersContext): EffectiveDeadLetters {
  const said = (value ?? {}) as Data;
  const { parkedQueue } = said;
  const replaysMax = said['replaysMax'] as number;
  return {
    categories: checkCategoryRules(said['categories'] ?? [], 'deadLetters.categories'),
    rules: rulesOf(said['rules'], { ...parts, replaysMax }),
    replaysMax,
    ...(parkedQueue === undefined ? {} : { parkedQueue: parkedQueue as string }),
  };
}

/** Refuses what cannot be the name of a queue. */
export function checkQueueName(value: unknown, what: string): void {
  const isText = typeof value === 'string' && value !== '' && !value.startsWith('amq.');
  if (isText && Buffer.byteLength(value) <= 255) return;
  throw configError(what, value, 'the name of a queue, up to 255 bytes, not beginning with amq.');
}

interface RuleContext extends DeadLettersContext {
  readonly replaysMax: number;
}

function rulesOf(value: unknown, parts: RuleContext): readonly ReplayRule[] {
  const key = 'deadLetters.rules';
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > RULES_MAX) {
    throw configError(key, value, `a list of at most ${RULES_MAX} rules`);
  }
  const rules = value.map((one: unknown, at) => ruleOf(one, `${key}[${at}]`, parts));
  refuseTwice(key, rules, { of: 'name', advice: '; give each rule a name of its own' });
  return rules;
}

function ruleOf(value: unknown, key: string, parts: RuleContext): ReplayRule {
  if (!isPlainObject(value)) throw configError(key, value, '{ name, when, … }');
  checkKeys(key, value, Object.keys(REPLAY_RULE_KEYS));
  const name = checkItemName(`${key}.name`, value['name']);
  const source = { table: REPLAY_RULE_KEYS, item: value, key, filled: parts.filled };
  const when = whenOf(value['when'], `${key}.when`);
  const healthy = healthyOf(value['healthy'], `${key}.healthy`, when);
  return {
    name,
    when,
    ...(healthy === undefined ? {} : { healthy }),
    times: parts.replaysMax,
    ...readItem<Pick<ReplayRule, 'every' | 'rate' | 'max' | 'canary'>>(source),
  };
}

/** n.b. A rule without any condition would replay every dead letter. */
function whenOf(input: unknown, key: string): ReplayRule['when'] {
  const allowed =
    'at least one of group, category, code, topic, queue and olderThan, such as ' +
    "{ category: 'network' }; { topic: '#' } means every letter";
  if (!isPlainObject(input)) throw configError(key, input, allowed);
  checkKeys(key, input, Object.keys(REPLAY_WHEN_KEYS));
  const { group, category, code, topic, queue, olderThan } = input;
  for (const [name, value] of Object.entries({ group, code })) {
    const isText = typeof value === 'string' && value.trim() !== '' && value.length <= TEXT_MAX;
    if (value === undefined || isText) continue;
    throw configError(`${key}.${name}`, value, `a text of 1 to ${TEXT_MAX} characters`);
  }
  if (category !== undefined) checkOneOf(`${key}.category`, category, CATEGORIES);
  if (topic !== undefined) checkPattern(topic, `${key}.topic`);
  if (queue !== undefined) checkGlob(queue, `${key}.queue`);
  if (olderThan !== undefined) durationMs(olderThan as Duration, `${key}.olderThan`);
  const said = Object.entries(input).filter(([, value]) => value !== undefined && value !== null);
  if (said.length === 0) throw configError(key, input, allowed);
  return Object.fromEntries(said);
}

function checkPattern(topic: unknown, key: string): void {
  try {
    checkTopicPattern(topic);
  } catch {
    throw configError(key, topic, 'dot-separated words, * for one word, # for any number');
  }
}

function checkGlob(queue: unknown, key: string): void {
  try {
    compileGlob(queue as string);
  } catch {
    throw configError(
      key,
      queue,
      'a name of queues of 1 to 256 characters; * for any part, ? for one',
    );
  }
}

function healthyOf(
  value: unknown,
  key: string,
  { queue }: ReplayRule['when'],
): ReplayRule['healthy'] {
  if (value === undefined) return undefined;
  if (value === 'consumers') {
    if (queue !== undefined) return value;
    throw new RespoolError(
      'config.invalid',
      `cannot use "consumers" as "${key}": the rule is about the spool, which has none; leave it ` +
        'out, use { http: url }, or name dead queues in "when.queue"',
    );
  }
  if (!isPlainObject(value)) throw configError(key, value, HEALTHY_ALLOWED);
  checkKeys(key, value, ['http']);
  const { http } = value;
  const url = typeof http === 'string' ? URL.parse(http) : null;
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') {
    // n.b. Not shown: it may hold a password.
    throw new RespoolError(
      'config.invalid',
      `cannot use this as "${key}.http": allowed is a URL like https://host/health`,
    );
  }
  return { http: http as string };
}
