/**
 * sweep — takes what died too often out of dead queues and puts it where a person looks at it.
 *
 * One connection consumes and one publishes for all queues, some of which are swept at once; each
 * has a channel and a lock of its own. What happens to one queue is in its report, and stops no
 * other.
 */

import { RespoolError } from '../../core/errors.ts';
import type { EventOf } from '../../core/event.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import { type AnyConnection, connectionOf, type TlsOptions } from '../connection/connection.ts';
import type { Management } from '../management/management.ts';
import { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { createDeathCounter } from './letter.ts';
import { findPairs, type SweepPair, type SweepProblem } from './discover.ts';
import type { SweepJournal } from './sweep-dedupe-file.ts';
import {
  type QueueSweep,
  type SweepDetails,
  sweepOne,
  type SweepProgress,
  type SweepRule,
} from './sweep-queue.ts';

export type { SweepPair, SweepProblem } from './discover.ts';
export type { QueueSweep, SweepDetails, SweepEnd, SweepProgress } from './sweep-queue.ts';
export { type SweepJournal, sweepJournal, type SweepJournalOptions } from './sweep-dedupe-file.ts';

/** How a sweep goes, whichever queues it is for. */
export interface SweepSettings {
  /** Either this or `url`. One that was passed in is not closed. */
  readonly connection?: AnyConnection | undefined;
  readonly url?: string | readonly string[] | undefined;
  readonly tls?: TlsOptions | undefined;
  /** Finds queues by patterns, and tells what looking costs. */
  readonly management?: Management | undefined;
  /** How often a message may die; it is moved when it did more often. Default 3. */
  readonly max?: number | undefined;
  /** Messages moved, at the most; default: all. */
  readonly limit?: number | undefined;
  /** Messages of a queue in hand at once, 1 to 10,000; default 100. A kill copies as many twice. */
  readonly window?: number | undefined;
  /**
   * Makes a target that is not there, a durable quorum queue, when the first message goes to it; or
   * requires it. Default true.
   */
  readonly createsTarget?: boolean | undefined;
  /** Only deaths for these reasons count, and in queues that fit these patterns; default: all. */
  readonly reasons?: readonly string[] | undefined;
  readonly queues?: readonly string[] | undefined;
  /** Says what would be moved, and changes nothing; default false. */
  readonly dryRun?: boolean | undefined;
  /** Looks into queues whose delivery limit is unknown; default false. */
  readonly isTrusted?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: SweepProgress) => void) | undefined;
  /**
   * Hears of each queue that was swept, also of one that failed; not in a dry run. What it throws
   * is its own affair.
   */
  readonly onEvent?: ((event: EventOf<'sweep'>) => void) | undefined;
  readonly clock?: Clock | undefined;
  /** Called before anything of a queue is moved or made; what it throws ends that queue. */
  readonly audit?: ((details: SweepDetails) => Promise<void>) | undefined;
  /** Remembers over a kill what was moved and not yet acked; see `sweepJournal`. */
  readonly dedupe?: SweepJournal | undefined;
}

/** Options of `sweepQueue`: one queue and its target. */
export interface SweepQueueOptions extends SweepSettings {
  readonly queue: string;
  readonly target: string;
}

/** Options of `sweepQueues`: queues by pattern, and their target. */
export interface SweepOptions extends SweepSettings {
  /** Names of queues, or patterns with `*` and `?`, which need the management API. */
  readonly patterns: readonly string[];
  /** A name, or as many `*` and `?` as each pattern has: they carry over what those stood for. */
  readonly target: string;
  /** Queues at once, 1 to 64; default 4. */
  readonly parallel?: number | undefined;
}

/** What came of all queues. */
export interface SweepTotal {
  readonly queues: readonly QueueSweep[];
  /** Patterns and queues that were not swept. */
  readonly problems: readonly SweepProblem[];
  readonly total: number;
  readonly seen: number;
  readonly moved: number;
  readonly left: number;
  readonly already: number;
  /** Whether no queue failed and every pattern could be used. */
  readonly isWell: boolean;
  readonly tookMs: number;
}

const MAX_DEFAULT = 3;
const WINDOW_DEFAULT = 100;
const PARALLEL_DEFAULT = 4;
/** Messages in hand of one queue, and queues at once. */
export const SWEEP_RANGES = {
  window: { min: 1, max: 10_000 },
  parallel: { min: 1, max: 64 },
} as const;

const NAMES = [
  'connection',
  'url',
  'tls',
  'management',
  'max',
  'limit',
  'window',
  'createsTarget',
  'reasons',
  'queues',
  'dryRun',
  'isTrusted',
  'signal',
  'onProgress',
  'onEvent',
  'clock',
  'audit',
  'dedupe',
  'target',
];

/**
 * Sweeps one queue.
 *
 * @example
 * import { sweepJournal, sweepQueue } from 'respool/rabbit';
 * const { moved, left } = await sweepQueue({
 *   connection,
 *   queue: 'orders.dead',
 *   target: 'orders.archive',
 *   dedupe: sweepJournal('orders.sweep.jsonl'),
 * });
 */
export async function sweepQueue(options: SweepQueueOptions): Promise<QueueSweep> {
  checkNames('sweepQueue', options, [...NAMES, 'queue']);
  const { queue, target } = options;
  const [report] = await sweepPairs([{ queue, target }], options, 1);
  if (report !== undefined) return report;
  throw new RespoolError('engine.stopping', 'cannot sweep: it was stopped before it began');
}

/** Sweeps all queues that fit. */
export async function sweepQueues(options: SweepOptions): Promise<SweepTotal> {
  checkNames('sweepQueues', options, [...NAMES, 'patterns', 'parallel']);
  const { patterns, target, parallel = PARALLEL_DEFAULT, management } = options;
  const { clock = systemClock } = options;
  checkNumber('parallel', parallel, SWEEP_RANGES.parallel);
  if (!Array.isArray(patterns) || patterns.length === 0) {
    throw new RespoolError('config.invalid', 'cannot sweep: "patterns" names no queue; give one');
  }
  checkSettings(options);
  const startedAt = clock.monotonic();
  const { pairs, problems } = await findPairs(management, { patterns, target });
  const queues = pairs.length === 0 ? [] : await sweepPairs(pairs, options, parallel);
  const sum = (count: (queue: QueueSweep) => number): number =>
    queues.reduce((all, queue) => all + count(queue), 0);
  return {
    queues,
    problems,
    total: sum((queue) => queue.total),
    seen: sum((queue) => queue.seen),
    moved: sum((queue) => queue.moved),
    left: sum((queue) => queue.left),
    already: sum((queue) => queue.already),
    isWell:
      queues.every(({ error }) => error === undefined) &&
      problems.every(({ isSkipped }) => isSkipped),
    tookMs: Math.round(clock.monotonic() - startedAt),
  };
}

async function sweepPairs(
  pairs: readonly SweepPair[],
  options: SweepSettings,
  parallel: number,
): Promise<QueueSweep[]> {
  const rule = checkSettings(options);
  const { url, tls, management, clock = systemClock } = options;
  // What moves nothing has nothing to remember, and leaves the file alone.
  const journal = rule.dryRun ? undefined : options.dedupe;
  const given = { url, connection: options.connection, tls, clock, name: 'respool sweep' };
  const { connection, isOwned } = connectionOf(given, 'a sweep');
  const windowMax = rule.window * Math.min(parallel, pairs.length);
  const outlet = new ConfirmPublisher(connection.publishing, clock, {
    windowMax,
    // No more is ever handed over: the windows of the queues are the bound.
    waitingMax: windowMax,
    waitingMaxBytes: Number.MAX_SAFE_INTEGER,
  });
  const budget = { left: options.limit ?? Number.POSITIVE_INFINITY };
  try {
    const connect = (): Promise<AmqpConnection> => connection.consuming.tryConnect();
    // A broker that cannot be reached at all is no failure of one queue.
    await connect();
    await journal?.open();
    const tools = { connect, outlet, management, clock, journal, budget };
    const reports = new Map<string, QueueSweep>();
    const waiting = pairs.values();
    // n.b. All workers take from one list: a slow queue delays no other.
    const sweepOn = async (): Promise<void> => {
      for (const pair of waiting) {
        if (rule.signal?.aborted === true && reports.size > 0) return;
        const report = await sweepOne(pair, rule, tools);
        reports.set(pair.queue, report);
        if (!rule.dryRun) tellSwept(report, clock, options.onEvent);
      }
    };
    await Promise.all(Array.from({ length: Math.min(parallel, pairs.length) }, sweepOn));
    return pairs.flatMap(({ queue }) => reports.get(queue) ?? []);
  } finally {
    await journal?.close();
    await outlet.close();
    if (isOwned) await connection.close();
  }
}

function tellSwept(
  { queue, target, moved, left, error }: QueueSweep,
  clock: Clock,
  tell: SweepSettings['onEvent'],
): void {
  const why = error === undefined ? {} : { error };
  try {
    tell?.({ at: clock.now(), kind: 'sweep', queue, target, moved, left, ...why });
  } catch {
    // Swallowed on purpose: who listens has no say in what happens to messages.
  }
}

/** Refuses invalid sweep options, before the broker is queried. */
function checkSettings(options: SweepSettings): SweepRule {
  const { max = MAX_DEFAULT, limit, window = WINDOW_DEFAULT, reasons = [], queues = [] } = options;
  checkNumber('max', max, { min: 0, max: Number.MAX_SAFE_INTEGER });
  checkNumber('window', window, SWEEP_RANGES.window);
  if (limit !== undefined) checkNumber('limit', limit, { min: 1, max: Number.MAX_SAFE_INTEGER });
  // Reads the patterns.
  createDeathCounter({ sweptQueue: '', reasons, queues });
  const { createsTarget = true, dryRun = false, isTrusted = false } = options;
  const { signal, onProgress, audit } = options;
  return {
    max,
    window,
    createsTarget,
    reasons,
    queues,
    dryRun,
    isTrusted,
    signal,
    onProgress,
    audit,
  };
}
