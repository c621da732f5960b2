/**
 * alerts — what a configuration says of alerts. Checked here; nothing is connected. The text of a
 * condition is read by parse.ts of observe/alerts/.
 */

import type { Duration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf, checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import { topicMatches, patternsOverlap } from '../../core/topic.ts';
import type { ReadyHandler } from '../../deliver/index.ts';
import { type Condition, printCondition } from '../../observe/alerts/condition.ts';
import { ALERT_TOPIC, topicOf } from '../../observe/alerts/notice.ts';
import { parseCondition } from '../../observe/alerts/parse.ts';
import type { AlertAction, AlertRule } from '../../observe/alerts/types.ts';
import type { Handler } from '../../ports/handler.ts';
import { ALERT_RULE_KEYS } from '../schema/items.ts';
import {
  checkItemName,
  checkKeys,
  configError,
  didYouMean,
  inSection,
  refuseTwice,
} from './config-errors.ts';
import { describeHandler, deliverHandlerOf } from './routes.ts';

/** A receiver, with its handler. */
interface EffectiveReceiver {
  readonly kind: 'http' | 'exec' | 'log';
  /** None for `log`: the process that runs the rules prints. */
  readonly deliver?: Handler | ReadyHandler;
  readonly level?: 'error' | 'warn' | 'info';
}

/** What holds for alerts. */
export interface EffectiveAlerts {
  readonly every: Duration;
  readonly to: Readonly<Record<string, EffectiveReceiver>>;
  readonly rules: readonly AlertRule[];
}

/** What checking needs to know. */
interface AlertsContext {
  /** What relative paths start from. */
  readonly folder: string;
  /** Names of rules that replay dead letters. */
  readonly replayRules: readonly string[];
  /** Queues that are consumed; undefined: not known. */
  readonly queues: readonly string[] | undefined;
  /** Patterns of routes. */
  readonly topics: readonly string[];
}

type Data = Readonly<Record<string, unknown>>;

/** Both also in docs/reference/alerts.md (limits). */
const RULES_MAX = 200;
const RECEIVERS_MAX = 50;
const LEVELS = ['error', 'warn', 'info'] as const;
const RECEIVER_NAME = /^[A-Za-z0-9_-]{1,64}$/;
const RECEIVER_NAME_ALLOWED = 'a name of 1 to 64 letters, digits, _ -';
const RECEIVER_ALLOWED =
  "{ http: { url: … } }, { exec: [command, …] } or { log: 'error' | 'warn' | 'info' }";
const ACTION_ALLOWED =
  "{ pause: 'mail.#' }, { hold: 'mail.#' } or { replay: 'a rule of deadLetters.rules' }";

/** Checks what a configuration says of alerts, and fills in the defaults. */
export function alertsOf(value: unknown, parts: AlertsContext): EffectiveAlerts {
  const { every, to, rules } = (value ?? {}) as Data;
  const receivers = receiversOf(to, parts);
  const names = Object.keys(receivers);
  return { every: every as Duration, to: receivers, rules: rulesOf(rules, { ...parts, names }) };
}

/** The receivers as they may be shown. */
export function shownReceivers({ to }: EffectiveAlerts): Data {
  const pairs = Object.entries(to).map(([name, { deliver, level }]) => [
    name,
    deliver === undefined ? { log: level } : describeHandler(deliver),
  ]);
  return Object.fromEntries(pairs) as Data;
}

/** The rules as they were written. */
export function shownRules({ rules }: EffectiveAlerts): readonly Data[] {
  return rules.map(({ name, when, to, actions }) => {
    const shown = { name, when: printCondition(when), to };
    if (actions.length === 0) return shown;
    // oxlint-disable-next-line unicorn/no-thenable -- The key of the configuration; it holds data.
    return { ...shown, then: actions.map(shownAction) };
  });
}

function shownAction(action: AlertAction): Data {
  if (action.kind === 'replay') return { replay: action.rule };
  return action.kind === 'hold'
    ? { hold: action.topic }
    : { pause: action.topic, until: action.until };
}

function receiversOf(value: unknown, parts: AlertsContext): EffectiveAlerts['to'] {
  const key = 'alerts.to';
  if (value === undefined) return {};
  if (!isPlainObject(value) || Object.keys(value).length > RECEIVERS_MAX) {
    throw configError(key, Array.isArray(value) ? 'a list' : typeof value, 'receivers by name');
  }
  const pairs = Object.entries(value).map(([name, one]) => {
    if (!RECEIVER_NAME.test(name)) throw configError(key, name, RECEIVER_NAME_ALLOWED);
    return [name, receiverOf(one, `${key}.${name}`, parts)] as const;
  });
  return Object.fromEntries(pairs);
}

function receiverOf(value: unknown, key: string, { folder }: AlertsContext): EffectiveReceiver {
  // n.b. Values are not shown: a URL or a command may hold a secret.
  if (!isPlainObject(value)) throw configError(key, typeof value, RECEIVER_ALLOWED);
  checkKeys(key, value, ['http', 'exec', 'log']);
  const kinds = Object.keys(value);
  const [kind] = kinds;
  if (kinds.length !== 1 || kind === undefined) throw configError(key, kinds, RECEIVER_ALLOWED);
  if (kind === 'log') {
    return { kind, level: checkOneOf(`${key}.log`, value['log'], LEVELS) };
  }
  return { kind: kind as 'http' | 'exec', deliver: deliverHandlerOf(value, key, { folder }) };
}

interface RuleContext extends AlertsContext {
  /** Of receivers. */
  readonly names: readonly string[];
}

function rulesOf(value: unknown, parts: RuleContext): readonly AlertRule[] {
  const key = 'alerts.rules';
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > RULES_MAX) {
    throw configError(key, value, `a list of at most ${RULES_MAX} rules`);
  }
  const rules = value.map((one: unknown, at) => ruleOf(one, `${key}[${at}]`, parts));
  refuseTwice(key, rules, { of: 'name', advice: '; give each rule a name of its own' });
  return rules;
}

function ruleOf(value: unknown, key: string, parts: RuleContext): AlertRule {
  if (!isPlainObject(value)) throw configError(key, value, '{ name, when, … }');
  checkKeys(key, value, Object.keys(ALERT_RULE_KEYS));
  const name = checkItemName(`${key}.name`, value['name']);
  return {
    name,
    when: whenOf(value['when'], `${key}.when`, parts),
    to: toOf(value['to'], `${key}.to`, parts),
    actions: actionsOf(value['then'], `${key}.then`, parts),
  };
}

function whenOf(value: unknown, key: string, { queues, topics }: RuleContext): Condition {
  const condition = inSection(key, () => parseCondition(value));
  const { name, of } = condition.measure;
  if (of?.kind === 'topic') checkReached(of.pattern, key, topics);
  if (name === 'consumer' && of?.kind === 'queue') {
    refuseUnknown(key, of.queue, queues, 'consumer of a queue');
  }
  return condition;
}

function toOf(value: unknown, key: string, { names }: RuleContext): readonly string[] {
  if (names.length === 0) {
    throw new RespoolError(
      'config.invalid',
      `cannot use "${key}": there are no receivers; name some as "alerts.to", such as ` +
        "{ ops: { http: { url: 'https://…' } } }",
    );
  }
  if (value === undefined) return names;
  const wanted: unknown[] = Array.isArray(value) ? value : [value];
  if (wanted.length === 0)
    throw configError(key, value, 'the name of a receiver, or a list of them');
  for (const one of wanted) {
    if (typeof one !== 'string') throw configError(key, one, 'the name of a receiver');
    refuseUnknown(key, one, names, 'receiver');
  }
  return [...new Set(wanted as string[])];
}

function actionsOf(value: unknown, key: string, parts: RuleContext): readonly AlertAction[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) return [actionOf(value, key, parts)];
  return value.map((one: unknown, at) => actionOf(one, `${key}[${at}]`, parts));
}

function actionOf(value: unknown, key: string, parts: RuleContext): AlertAction {
  if (!isPlainObject(value)) throw configError(key, value, ACTION_ALLOWED);
  checkKeys(key, value, ['pause', 'hold', 'replay', 'until']);
  const { pause, hold, replay, until } = value;
  const said = [pause, hold, replay].filter((one) => one !== undefined);
  if (said.length !== 1) throw configError(key, Object.keys(value), ACTION_ALLOWED);
  if (until !== undefined && pause === undefined) {
    throw configError(`${key}.until`, until, 'nothing: only a pause ends');
  }
  if (replay !== undefined) {
    if (typeof replay !== 'string')
      throw configError(`${key}.replay`, replay, 'the name of a rule');
    refuseUnknown(`${key}.replay`, replay, parts.replayRules, 'rule in "deadLetters.rules"');
    return { kind: 'replay', rule: replay };
  }
  if (hold !== undefined) {
    return { kind: 'hold', topic: steeredTopic(hold, `${key}.hold`, parts) };
  }
  return {
    kind: 'pause',
    topic: steeredTopic(pause, `${key}.pause`, parts),
    until: checkOneOf(`${key}.until`, until ?? 'resolved', ['resolved', 'operator']),
  };
}

/** n.b. A pattern that fits notifications as well would keep the alert itself back. */
function steeredTopic(value: unknown, key: string, { names, topics }: RuleContext): string {
  let pattern: string;
  try {
    pattern = checkTopicPattern(value);
  } catch {
    throw configError(key, value, 'dot-separated words, * for one word, # for any number');
  }
  if (names.some((name) => topicMatches(pattern, topicOf(name)))) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(pattern)} as "${key}": notifications have topics that fit it, ` +
        `${ALERT_TOPIC}.…, and would wait as well; name the topics, such as "mail.#"`,
    );
  }
  checkReached(pattern, key, topics);
  return pattern;
}

/** A topic that no route can take is a typing error; without routes it cannot be checked. */
function checkReached(pattern: string, key: string, topics: readonly string[]): void {
  if (topics.length === 0 || topics.some((one) => patternsOverlap(one, pattern))) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(pattern)} as a topic in "${key}": no route takes any such topic; known ` +
      `are ${topics.join(', ')}`,
  );
}

function refuseUnknown(
  key: string,
  name: string,
  texts: readonly string[] | undefined,
  what: string,
): void {
  if (texts === undefined || texts.includes(name)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${key}": there is no such ${what}${didYouMean(name, texts)}; ` +
      `known are ${texts.join(', ') || 'none'}`,
  );
}
