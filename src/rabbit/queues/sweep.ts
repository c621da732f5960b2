/**
 * sweep — takes what died too often out of dead queues and puts it where a person looks at it.
 *
 * One connection consumes and one publishes for all queues, some of which are swept at once; each
 * has a channel and a lock of its own. What happens to one queue is in its report, and stops no
 * other.
 *
 * One queue: sweep-queue.ts. Which queues, and their targets: discover.ts.
 */

import { RespoolError } from '../../core/errors.ts';
import type { EventOf } from '../../core/event.ts';
import { checkNames, checkNumber } from '../../core/limits.ts';
import {
  CLOCK_OPTION,
  type Option,
  type OptionTable,
  readOptions,
} from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import {
  type AnyConnection,
  BROKER_OPTIONS,
  connectionOf,
  type TlsOptions,
} from '../connection/connection.ts';
import type { Management } from '../management/management.ts';
import { LETTERS_OPTIONS } from './options.ts';
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

/** Messages in hand of one queue, and queues at once. */
export const SWEEP_RANGES = {
  window: { min: 1, max: 10_000 },
  parallel: { min: 1, max: 64 },
} as const;

/** The options of every sweep, in the order of error texts. */
const SWEEP = {
  connection: { ...LETTERS_OPTIONS.connection, ts: 'AnyConnection | undefined' },
  url: { ...LETTERS_OPTIONS.url, ts: 'string | readonly string[] | undefined' },
  tls: { ...BROKER_OPTIONS.tls, ts: 'TlsOptions | undefined' },
  management: {
    kind: 'code',
    type: 'the result of `createManagement`',
    ts: 'Management | undefined',
    about: 'finds queues by patterns, and tells what looking into a queue costs',
  },
  max: {
    kind: 'number',
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    type: '0 or more',
    ts: 'number | undefined',
    default: 3,
    about: 'deaths that a message may have; it is moved when it died more often',
  },
  limit: {
    kind: 'number',
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    type: '1 or more',
    ts: 'number | undefined',
    defaultText: 'all',
    about: 'messages moved in this run, over all queues',
  },
  window: {
    kind: 'number',
    ...SWEEP_RANGES.window,
    ts: 'number | undefined',
    default: 100,
    about: 'messages of a queue in hand at once; a kill can copy this many twice',
  },
  createsTarget: {
    kind: 'boolean',
    ts: 'boolean | undefined',
    default: true,
    about:
      'declares a missing target with the first message that moves, after its record: a durable ' +
      'quorum queue that refuses when it is full; `false` requires it. An existing one is used ' +
      'as it is',
  },
  reasons: {
    kind: 'data',
    type: 'a list',
    ts: 'readonly string[] | undefined',
    defaultText: 'all',
    about: 'only deaths for these reasons count: [which deaths count](#deaths)',
  },
  queues: {
    kind: 'data',
    type: 'a list of patterns',
    ts: 'readonly string[] | undefined',
    defaultText: 'all',
    about: 'only deaths in queues that match count',
  },
  dryRun: {
    kind: 'boolean',
    ts: 'boolean | undefined',
    default: false,
    about: 'counts, and changes, declares and audits nothing',
  },
  isTrusted: {
    kind: 'boolean',
    ts: 'boolean | undefined',
    default: false,
    about: 'looks into queues whose delivery limit is unknown',
  },
  signal: {
    kind: 'code',
    type: 'an `AbortSignal`',
    ts: 'AbortSignal | undefined',
    about: 'ends it',
  },
  onProgress: {
    kind: 'code',
    type: 'a function',
    ts: '((progress: SweepProgress) => void) | undefined',
    about: 'called with the progress of each queue',
  },
  onEvent: {
    kind: 'code',
    type: 'a function',
    ts: "((event: EventOf<'sweep'>) => void) | undefined",
    about:
      'gets an event [`sweep`](events.md) for each queue, also for one that failed, except in ' +
      'dry runs; what it throws is ignored',
  },
  clock: { ...CLOCK_OPTION, ts: 'Clock | undefined' },
  audit: {
    kind: 'code',
    type: 'a function',
    ts: '((details: SweepDetails) => Promise<void>) | undefined',
    about:
      'called before the first message of a queue is moved or its target made; if it throws, ' +
      'that queue ends',
  },
  dedupe: {
    kind: 'code',
    type: '`sweepJournal(file)`',
    ts: 'SweepJournal | undefined',
    about: 'messages recorded there are not copied again after a kill: see below',
  },
} as const;

/** Every option that the two functions share. */
export const SWEEP_OPTIONS: Readonly<Record<keyof SweepSettings, Option>> = SWEEP;

/** Queues at once. */
const PARALLEL = {
  kind: 'number',
  ...SWEEP_RANGES.parallel,
  ts: 'number | undefined',
  default: 4,
  about: 'queues at once; `sweepQueues` only',
} as const;

/** What `sweepQueues` takes beside. */
export const SWEEP_QUEUES_OPTIONS: OptionTable = {
  patterns: {
    kind: 'data',
    type: 'names with `*` and `?`',
    ts: 'readonly string[]',
    required: true,
    about: 'the queues; wildcards need `management`. `sweepQueue` takes one `queue` instead',
  },
  target: {
    kind: 'text',
    type: 'a name with `*` and `?`',
    required: true,
    about:
      'has as many wildcards as each pattern, and gets what they matched; without any it is used ' +
      'for all',
  },
  parallel: PARALLEL,
};

/** How a sweep goes, whichever queues it is for. */
export interface SweepSettings {
  // Written by `npm run options`: edit the table of options instead.
  /** Either this or `url`; it is left open. */
  readonly connection?: AnyConnection | undefined;
  /** The broker; of a list one that answers. */
  readonly url?: string | readonly string[] | undefined;
  /** For `amqps://`. Default Node's certificate authorities. */
  readonly tls?: TlsOptions | undefined;
  /** Finds queues by patterns, and tells what looking into a queue costs. */
  readonly management?: Management | undefined;
  /** Deaths that a message may have; it is moved when it died more often. 0 or more; default 3. */
  readonly max?: number | undefined;
  /** Messages moved in this run, over all queues. 1 or more; default all. */
  readonly limit?: number | undefined;
  /**
   * Messages of a queue in hand at once; a kill can copy this many twice. 1 to 10,000; default 100.
   */
  readonly window?: number | undefined;
  /**
   * Declares a missing target with the first message that moves, after its record: a durable quorum
   * queue that refuses when it is full; `false` requires it. An existing one is used as it is.
   * Default true.
   */
  readonly createsTarget?: boolean | undefined;
  /** Only deaths for these reasons count: which deaths count. Default all. */
  readonly reasons?: readonly string[] | undefined;
  /** Only deaths in queues that match count. Default all. */
  readonly queues?: readonly string[] | undefined;
  /** Counts, and changes, declares and audits nothing. Default false. */
  readonly dryRun?: boolean | undefined;
  /** Looks into queues whose delivery limit is unknown. Default false. */
  readonly isTrusted?: boolean | undefined;
  /** Ends it. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the progress of each queue. */
  readonly onProgress?: ((progress: SweepProgress) => void) | undefined;
  /**
   * Gets an event `sweep` for each queue, also for one that failed, except in dry runs; what it
   * throws is ignored.
   */
  readonly onEvent?: ((event: EventOf<'sweep'>) => void) | undefined;
  /** For tests. Default the system clock. */
  readonly clock?: Clock | undefined;
  /**
   * Called before the first message of a queue is moved or its target made; if it throws, that
   * queue ends.
   */
  readonly audit?: ((details: SweepDetails) => Promise<void>) | undefined;
  /** Messages recorded there are not copied again after a kill: see below. */
  readonly dedupe?: SweepJournal | undefined;
}

/** Options of `sweepQueue`: one queue and its target. */
export interface SweepQueueOptions extends SweepSettings {
  readonly queue: string;
  readonly target: string;
}

/** Options of `sweepQueues`: queues by pattern, and their target. */
export interface SweepOptions extends SweepSettings {
  // Written by `npm run options`: edit the table of options instead.
  /** The queues; wildcards need `management`. `sweepQueue` takes one `queue` instead. */
  readonly patterns: readonly string[];
  /**
   * Has as many wildcards as each pattern, and gets what they matched; without any it is used for
   * all.
   */
  readonly target: string;
  /** Queues at once; `sweepQueues` only. 1 to 64; default 4. */
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
  /** Whether no queue has an `error`, and all `problems` are queues left out on purpose. */
  readonly isWell: boolean;
  readonly tookMs: number;
}

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
  checkNames('sweepQueue', options, [...Object.keys(SWEEP), 'target', 'queue']);
  const { queue, target } = options;
  const [report] = await sweepPairs([{ queue, target }], options, 1);
  if (report !== undefined) return report;
  throw new RespoolError('engine.stopping', 'cannot sweep: it was stopped before it began');
}

/** Sweeps all queues that fit. */
export async function sweepQueues(options: SweepOptions): Promise<SweepTotal> {
  const names = [...Object.keys(SWEEP), 'target', 'patterns', 'parallel'];
  checkNames('sweepQueues', options, names);
  const { patterns, target, parallel = PARALLEL.default, management } = options;
  const { clock = systemClock } = options;
  checkNumber('parallel', parallel, PARALLEL);
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
  const publisher = new ConfirmPublisher(connection.publishing, clock, {
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
    const tools = { connect, publisher, management, clock, journal, budget };
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
    await publisher.close();
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
    // Swallowed on purpose: a listener has no say in what happens to messages.
  }
}

/** Refuses invalid sweep options, before the broker is queried. */
function checkSettings(options: SweepSettings): SweepRule {
  const { reasons = [], queues = [], signal, onProgress, audit } = options;
  const shared = Object.keys(SWEEP).map((name) => [name, Reflect.get(options, name)] as const);
  const values = readOptions({ what: 'sweep' }, Object.fromEntries(shared), SWEEP);
  const { max, window, createsTarget, dryRun, isTrusted } = values;
  // Reads the patterns.
  createDeathCounter({ sweptQueue: '', reasons, queues });
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
