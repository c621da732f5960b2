/** alerts — what a configuration says of alerts. Checked here; nothing is connected. */

import type { Duration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf, checkTopicPattern, isPlainObject } from '../../core/limits.ts';
import { topicMatches, topicsMeet } from '../../core/topic.ts';
import type { ReadyHandler } from '../../deliver/index.ts';
import { type Condition, printCondition } from '../../observe/alerts/condition.ts';
import { ALERT_TOPIC, topicOf } from '../../observe/alerts/notice.ts';
import { parseCondition } from '../../observe/alerts/parse.ts';
import type { AlertAction, AlertRule } from '../../observe/alerts/types.ts';
import type { Handler } from '../../ports/handler.ts';
import { checkKeys, configError, didYouMean, inSection } from './config-errors.ts';
import { describeHandler, handlerOf } from './routes.ts';

/** Who is told, with the handler made. */
export interface EffectiveReceiver {
  readonly kind: 'http' | 'exec' | 'log';
  /** None for `log`: who runs the rules prints. */
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
export interface AlertsParts {
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

const RULES_MAX = 200;
const RECEIVERS_MAX = 50;
const LEVELS = ['error', 'warn', 'info'] as const;
const NAME = /^[A-Za-z0-9._-]{1,64}$/;
const NAME_ALLOWED = '1 to 64 letters, digits, . _ -';
const RECEIVER_NAME = /^[A-Za-z0-9_-]{1,64}$/;
const RECEIVER_NAME_ALLOWED = 'a name of 1 to 64 letters, digits, _ -';
const RECEIVER_ALLOWED =
  "{ http: { url: … } }, { exec: [command, …] } or { log: 'error' | 'warn' | 'info' }";
const ACTION_ALLOWED =
  "{ pause: 'mail.#' }, { hold: 'mail.#' } or { replay: 'a rule of deadLetters.rules' }";

/** Checks what a configuration says of alerts, and fills in the defaults. */
export function alertsOf(given: unknown, parts: AlertsParts): EffectiveAlerts {
  const { every, to, rules } = (given ?? {}) as Data;
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

function receiversOf(given: unknown, parts: AlertsParts): EffectiveAlerts['to'] {
  const key = 'alerts.to';
  if (given === undefined) return {};
  if (!isPlainObject(given) || Object.keys(given).length > RECEIVERS_MAX) {
    throw configError(key, Array.isArray(given) ? 'a list' : typeof given, 'receivers by name');
  }
  const pairs = Object.entries(given).map(([name, one]) => {
    if (!RECEIVER_NAME.test(name)) throw configError(key, name, RECEIVER_NAME_ALLOWED);
    return [name, receiverOf(one, `${key}.${name}`, parts)] as const;
  });
  return Object.fromEntries(pairs);
}

function receiverOf(given: unknown, key: string, { folder }: AlertsParts): EffectiveReceiver {
  // n.b. Values are not shown: a URL or a command may hold a secret.
  if (!isPlainObject(given)) throw configError(key, typeof given, RECEIVER_ALLOWED);
  checkKeys(key, given, ['http', 'exec', 'log']);
  const kinds = Object.keys(given);
  const [kind] = kinds;
  if (kinds.length !== 1 || kind === undefined) throw configError(key, kinds, RECEIVER_ALLOWED);
  if (kind === 'log') {
    return { kind, level: checkOneOf(`${key}.log`, given['log'], LEVELS) };
  }
  return { kind: kind as 'http' | 'exec', deliver: handlerOf(given, key, { folder }) };
}

interface RuleParts extends AlertsParts {
  /** Of receivers. */
  readonly names: readonly string[];
}

function rulesOf(given: unknown, parts: RuleParts): readonly AlertRule[] {
  const key = 'alerts.rules';
  if (given === undefined) return [];
  if (!Array.isArray(given) || given.length > RULES_MAX) {
    throw configError(key, given, `a list of at most ${RULES_MAX} rules`);
  }
  const rules = given.map((one: unknown, at) => ruleOf(one, `${key}[${at}]`, parts));
  for (const [at, { name }] of rules.entries()) {
    const before = rules.findIndex((one) => one.name === name);
    if (before === at) continue;
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(name)} as "${key}[${at}].name": ${key}[${before}] has it already; give ` +
        'each rule a name of its own',
    );
  }
  return rules;
}

function ruleOf(given: unknown, key: string, parts: RuleParts): AlertRule {
  if (!isPlainObject(given)) throw configError(key, given, '{ name, when, … }');
  checkKeys(key, given, ['name', 'when', 'to', 'then']);
  const { name } = given;
  if (typeof name !== 'string' || !NAME.test(name))
    throw configError(`${key}.name`, name, NAME_ALLOWED);
  return {
    name,
    when: whenOf(given['when'], `${key}.when`, parts),
    to: toOf(given['to'], `${key}.to`, parts),
    actions: actionsOf(given['then'], `${key}.then`, parts),
  };
}

function whenOf(given: unknown, key: string, { queues, topics }: RuleParts): Condition {
  const condition = inSection(key, () => parseCondition(given));
  const { name, of } = condition.measure;
  if (of?.kind === 'topic') checkReached(of.pattern, key, topics);
  if (name === 'consumer' && of?.kind === 'queue') {
    refuseUnknown(key, of.queue, queues, 'consumer of a queue');
  }
  return condition;
}

function toOf(given: unknown, key: string, { names }: RuleParts): readonly string[] {
  if (names.length === 0) {
    throw new RespoolError(
      'config.invalid',
      `cannot use "${key}": there are no receivers; name some as "alerts.to", such as ` +
        "{ ops: { http: { url: 'https://…' } } }",
    );
  }
  if (given === undefined) return names;
  const wanted: unknown[] = Array.isArray(given) ? given : [given];
  if (wanted.length === 0)
    throw configError(key, given, 'the name of a receiver, or a list of them');
  for (const one of wanted) {
    if (typeof one !== 'string') throw configError(key, one, 'the name of a receiver');
    refuseUnknown(key, one, names, 'receiver');
  }
  return [...new Set(wanted as string[])];
}

function actionsOf(given: unknown, key: string, parts: RuleParts): readonly AlertAction[] {
  if (given === undefined) return [];
  if (!Array.isArray(given)) return [actionOf(given, key, parts)];
  return given.map((one: unknown, at) => actionOf(one, `${key}[${at}]`, parts));
}

function actionOf(given: unknown, key: string, parts: RuleParts): AlertAction {
  if (!isPlainObject(given)) throw configError(key, given, ACTION_ALLOWED);
  checkKeys(key, given, ['pause', 'hold', 'replay', 'until']);
  const { pause, hold, replay, until } = given;
  const said = [pause, hold, replay].filter((one) => one !== undefined);
  if (said.length !== 1) throw configError(key, Object.keys(given), ACTION_ALLOWED);
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
function steeredTopic(given: unknown, key: string, { names, topics }: RuleParts): string {
  let pattern: string;
  try {
    pattern = checkTopicPattern(given);
  } catch {
    throw configError(key, given, 'dot-separated words, * for one word, # for any number');
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
  if (topics.length === 0 || topics.some((one) => topicsMeet(one, pattern))) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(pattern)} as a topic in "${key}": no route takes any such topic; known ` +
      `are ${topics.join(', ')}`,
  );
}

function refuseUnknown(
  key: string,
  name: string,
  known: readonly string[] | undefined,
  what: string,
): void {
  if (known === undefined || known.includes(name)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${key}": there is no such ${what}${didYouMean(name, known)}; ` +
      `known are ${known.join(', ') || 'none'}`,
  );
}
