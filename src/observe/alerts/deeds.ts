/** deeds — what a rule does when it fires and when it is resolved, from its actions. Pure. */

import type { AlertDeed, AlertRule } from './types.ts';

/** What is to be done at this moment, in the order of the actions. */
export function deedsAt(
  { actions }: Pick<AlertRule, 'actions'>,
  phase: 'fired' | 'resolved',
): readonly AlertDeed[] {
  return actions.flatMap((action): readonly AlertDeed[] => {
    if (phase === 'fired') {
      if (action.kind === 'replay') return [];
      return [{ kind: action.kind, topic: action.topic }];
    }
    if (action.kind === 'replay') return [{ kind: 'replay', rule: action.rule }];
    const isResumed = action.kind === 'pause' && action.until === 'resolved';
    return isResumed ? [{ kind: 'resume', topic: action.topic }] : [];
  });
}

/** A deed as it is on record. */
export function deedKey(deed: AlertDeed): string {
  return `${deed.kind} ${deed.kind === 'replay' ? deed.rule : deed.topic}`;
}
