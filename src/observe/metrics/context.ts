/**
 * context — what everybody who fills rows stands on: families, and labels that are bounded once for
 * all sources together.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { CoreFamilies } from './core-families.ts';
import type { Families } from './families.ts';
import type { MetricAlias } from './types.ts';

/** The label of a name: itself, or `other`. */
export type LabelOf = (name: string) => string;

/** Made by `createMetrics`, given to all that watch. */
export interface MetricsContext {
  readonly families: Families;
  readonly core: CoreFamilies;
  /** At most `topicsMax`. */
  readonly topicOf: LabelOf;
  /** At most `queuesMax`. */
  readonly queueOf: LabelOf;
  /** Codes of bounces, at most 50. */
  readonly codeOf: LabelOf;
  /** Words that others choose: actions of operators, rules of alerts; at most 200. */
  readonly wordOf: LabelOf;
  readonly aliases: readonly MetricAlias[];
  /** By which the course of a backlog is seen. */
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Refuses a name that somebody else tells its gauges under; returns the way to give it back. */
  readonly takeSource: (what: 'spool' | 'relay', name: string) => () => void;
}

/** Two of one name would overwrite each other's gauges. */
export function createSources(): MetricsContext['takeSource'] {
  const taken = new Set<string>();
  return (what, name) => {
    if (taken.has(name)) {
      throw new RespoolError(
        'config.invalid',
        `cannot watch a ${what} as "${name}": another is watched by that name; ` +
          'give it a "source" of its own, or stop watching the other',
      );
    }
    taken.add(name);
    return () => void taken.delete(name);
  };
}

// The values that a label may take: a name that somebody else chooses must not make series
// without end.

/** Stands for every name beyond the first ones. */
const OTHER = 'other';

/** The label of each name: itself for the first `max` names, then `other`. */
export function createLabels(max: number): (name: string) => string {
  const known = new Set<string>();
  return (name) => {
    if (known.has(name)) return name;
    if (known.size >= max) return OTHER;
    known.add(name);
    return name;
  };
}
