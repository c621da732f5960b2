/**
 * ground — what everybody who fills rows stands on: families, and labels that are bounded once for
 * all sources together.
 */

import type { CoreFamilies } from './core-families.ts';
import type { Families } from './families.ts';
import type { MetricAlias } from './types.ts';

/** The label of a name: itself, or `other`. */
export type LabelOf = (name: string) => string;

/** Made by `createMetrics`, given to whoever watches. */
export interface Ground {
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
}
