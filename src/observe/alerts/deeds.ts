/**
 * deeds — what a rule does when it fires and when it is resolved.
 *
 * On record a deed is its key, so that it is done also when its rule is gone meanwhile.
 */

import type { AlertDeed, AlertRule } from './types.ts';

/** What is to be done when it fires, in the order of the actions. */
export function deedsOfFiring({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'replay' ? [] : [`${action.kind} ${action.topic}`],
  );
}

/** What is to be done at its end: the topics it has paused are resumed, whatever it says now. */
export function deedsOfEnd({ actions }: AlertRule, paused: readonly string[]): readonly string[] {
  const replays = actions.flatMap((one) => (one.kind === 'replay' ? [`replay ${one.rule}`] : []));
  return [...paused.map((topic) => `resume ${topic}`), ...replays];
}

/** The topics that it pauses until it is resolved. */
export function pausedBy({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'pause' && action.until === 'resolved' ? [action.topic] : [],
  );
}

/** The deed of a key, of one of these rules. */
export function deedOf(key: string, name: string, rules: readonly AlertRule[]): AlertDeed {
  const [kind = ''] = key.split(' ', 1);
  const of = key.slice(kind.length + 1);
  if (kind === 'replay') return { kind, rule: of };
  if (kind !== 'resume') return { kind: kind as 'pause' | 'hold', topic: of };
  // A pause that another rule made was also this one's, which found it made already.
  const makers = rules.filter((rule) => pausedBy(rule).includes(of)).map((rule) => rule.name);
  const madeBy = [...new Set([name, ...makers])].map((one) => `alert:${one}`);
  return { kind, topic: of, madeBy };
}

/** Whether a rule says so still; a pause it has made ends in any case. */
export function isStillSaid(key: string, rule: AlertRule): boolean {
  if (key.startsWith('resume ')) return true;
  return [...deedsOfFiring(rule), ...deedsOfEnd(rule, [])].includes(key);
}

/** Deeds that keep out of each other's way: a pause that is slow does not outlast its end. */
export function laneOf(rule: string, deed: AlertDeed): string {
  if (deed.kind === 'replay') return `${rule} replay ${deed.rule}`;
  return `${rule} ${deed.kind === 'hold' ? 'hold' : 'pause'} ${deed.topic}`;
}
