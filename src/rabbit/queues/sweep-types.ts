/** sweep-types — what a sweep is told, and what it tells: the words that its parts share. */

import type { Clock } from '../../ports/clock.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import type { Management } from '../admin/management/index.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import type { SweepPair } from './discover.ts';
import type { SweepJournal } from './sweep-dedupe-file.ts';
import type { PassEnd } from './queue-pass.ts';

/**
 * How the sweep of a queue ended: as a pass does, with the limit of the run, with somebody else
 * at work on it, because looking could drop messages, or with another error.
 */
export type SweepEnd = PassEnd | 'limit' | 'locked' | 'refused' | 'failed';

/** What came of one queue. */
export interface QueueSweep {
  readonly queue: string;
  readonly target: string;
  /** Messages that were there at the beginning. */
  readonly total: number;
  readonly seen: number;
  /** Gone to the target; in a dry run: would have. */
  readonly moved: number;
  /** Seen and not moved, within the limit or because of an error. */
  readonly left: number;
  /** Taken out without a copy: a run that was killed had made it. */
  readonly already: number;
  readonly end: SweepEnd;
  /** Why it did not go as it should. */
  readonly error?: string;
  readonly tookMs: number;
}

/** What is told while a queue is swept. */
export interface SweepProgress {
  readonly queue: string;
  readonly total: number;
  readonly seen: number;
  readonly moved: number;
}

/** What an audit record says of a queue, before its first message is moved. */
export interface SweepDetails extends SweepPair {
  readonly total: number;
  readonly max: number;
}

/** What is the same for all queues of a run. */
export interface SweepRule {
  /** A message that died more often is moved. */
  readonly max: number;
  readonly window: number;
  readonly createsTarget: boolean;
  readonly reasons: readonly string[];
  readonly queues: readonly string[];
  readonly dryRun: boolean;
  readonly isTrusted: boolean;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: SweepProgress) => void) | undefined;
  readonly audit: ((details: SweepDetails) => Promise<void>) | undefined;
}

export interface SweepTools {
  /** The connection that consumes, as it is now. */
  connect(): Promise<AmqpConnection>;
  readonly outlet: ConfirmPublisher;
  readonly management: Management | undefined;
  readonly clock: Clock;
  readonly journal: SweepJournal | undefined;
  /** How many may still be moved in this run. */
  readonly budget: { left: number };
}
