/**
 * reports — what operators can see and what they can do: the data behind `stats`, `doctor`,
 * `drain`, `migrate` and `dump`, for anyone who prints it.
 */

import type { Clock } from '../../ports/clock.ts';
import type { AmqpMessage, AmqpTable } from '../connection/amqp.ts';
import type { AnyConnection } from '../connection/connection.ts';
import type { HistoryWire } from '../message-history.ts';
import type { QueuePlan, QueueRole, Route, Topology } from '../topology/model.ts';
import type { Management } from '../management/management.ts';

/** Whom to ask. */
export interface BrokerLookOptions {
  /** Tells depths and consumers; without it only the management API is asked. */
  readonly connection?: AnyConnection | undefined;
  /** Tells everything else; without it much stays unknown, and the report says so. */
  readonly management?: Management | undefined;
  readonly plans: readonly QueuePlan[];
  readonly clock?: Clock;
}

/** One queue of a plan as it is now. undefined: the broker does not tell. */
export interface QueueStats {
  readonly name: string;
  readonly role: QueueRole;
  /** The main queues that it serves; several for shared wait queues. */
  readonly of: readonly string[];
  /** The time that messages wait in it; wait queues only. */
  readonly waitMs: number | undefined;
  readonly isThere: boolean;
  readonly type: string | undefined;
  readonly ready: number | undefined;
  readonly unacked: number | undefined;
  /** Dead-lettered, and not yet confirmed by the queue they go to. */
  readonly deadLettering: number | undefined;
  readonly consumers: number | undefined;
  /** Messages per second. */
  readonly publishRate: number | undefined;
  readonly deliverRate: number | undefined;
  readonly ackRate: number | undefined;
  /** Published into it since the broker counts. */
  readonly published: number | undefined;
  /** The age of the message at its head, by the timestamp that its publisher gave. */
  readonly oldestAgeMs: number | undefined;
}

/** What a hint is about. */
export type StatsHintKind = 'missing' | 'stalled' | 'deep-wait' | 'unrouted' | 'dead-growing';

/** Something in the numbers that an operator should know. */
export interface StatsHint {
  readonly kind: StatsHintKind;
  readonly level: 'warn' | 'bad';
  readonly queue: string;
  readonly text: string;
  readonly todo: string;
}

/** Options of `queueStats`. */
export interface StatsOptions extends BrokerLookOptions {
  /** The previous report: shows what grows and what does not leave its wait queue. */
  readonly previous?: StatsReport | undefined;
}

/** All queues of the plans: main, wait, dead, parked, unrouted, in this order. */
export interface StatsReport {
  readonly at: number;
  /** `passive`: depths and consumers only, asked over AMQP. */
  readonly source: 'management' | 'passive';
  /** What is missing from the report, and why. */
  readonly note: string | undefined;
  readonly queues: readonly QueueStats[];
  readonly hints: readonly StatsHint[];
}

/** One line of the doctor. */
export interface BrokerFinding {
  readonly level: 'ok' | 'warn' | 'bad';
  /** Stable, with dots: `queue.strategy`. */
  readonly name: string;
  readonly text: string;
  /** How to fix it; '' where nothing needs fixing. */
  readonly todo: string;
}

/** Options of `doctor`. */
export interface DoctorOptions extends BrokerLookOptions {
  readonly connection: AnyConnection;
  /** The other systems whose queues these are, and what stays unsafe by their arguments. */
  readonly compat?: SharedWith | readonly SharedWith[] | undefined;
  /** The user who consumes and publishes; default: the user of the management API. */
  readonly user?: string | undefined;
}

/** Another system that consumes the same queues. */
export interface SharedWith {
  readonly name: string;
  readonly unsafe: readonly string[];
}

/** How far something that moves messages has come. */
export interface MoveProgress {
  readonly queue: string;
  readonly moved: number;
  readonly skipped: number;
  /** How many there were at the beginning. */
  readonly total: number;
}

/** Options of `drainQueue`. */
export interface DrainOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker; the connection is left open. */
  readonly connection: AnyConnection;
  /** What to empty: a wait, dead, parked or unrouted queue. */
  readonly queue: string;
  /** Tell whose queue it is, and with that where its messages belong. */
  readonly plans?: readonly QueuePlan[];
  /** Where the messages go. Default the main queue of each message. */
  readonly to?: Route | ((message: AmqpMessage) => Route) | 'discard';
  /** Required to discard: the name of the queue once more. */
  readonly confirm?: string;
  /** At most this many messages. 1 or more; default as many as there were at the beginning. */
  readonly max?: number;
  /** Only these; the others stay where they are. Default all. */
  readonly match?: (message: AmqpMessage) => boolean;
  /** Messages in flight at once. 1 to 1,000; default 100. */
  readonly window?: number;
  /**
   * Whether attempts count from 0 again. Default `fresh` from dead and parked queues, else `keep`.
   */
  readonly attempts?: 'fresh' | 'keep';
  /** How the past of messages is written. Default Respool's headers. */
  readonly wire?: HistoryWire;
  /** Called after every 100 messages and at the end of each queue. */
  readonly onProgress?: (progress: MoveProgress) => void;
  /** Ends it. */
  readonly signal?: AbortSignal;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** Why a drain ended. */
export type DrainEnd =
  /** Everything that was there at the beginning was seen. */
  | 'done'
  | 'max'
  | 'aborted'
  /** There are messages, but none come: another consumer has the queue for itself. */
  | 'quiet'
  /** Too many that do not match stand before the others. */
  | 'held';

/** What a drain has moved, and why it ended. */
export interface DrainReport {
  readonly queue: string;
  /** How many there were at the beginning. */
  readonly total: number;
  readonly moved: number;
  /** Seen, and left where they were: they do not match. */
  readonly skipped: number;
  /** Read, and left where they were: their queue is unknown. */
  readonly unroutable: number;
  readonly end: DrainEnd;
}

/** A queue of the old topology, by what it is there for. */
export interface OldQueue {
  readonly name: string;
  readonly role: QueueRole;
  /** The main queue of the old topology that it belongs to; default: found by its name. */
  readonly of?: string;
  /** Wait queues: how long messages wait there. */
  readonly waitMs?: number;
}

/** Options of `migrateTopology`. */
export interface MigrateOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The broker; the connection is left open. */
  readonly connection: AnyConnection;
  /** Required to remove anything: only it reports bindings and what is being dead-lettered. */
  readonly management?: Management | undefined;
  /** The old queues. */
  readonly from: Topology | readonly OldQueue[];
  /** The new topology. */
  readonly to: QueuePlan | readonly QueuePlan[];
  /** New names of old main queues, where they differ; one of each needs no list. */
  readonly renamed?: Readonly<Record<string, string>>;
  /** Moves waiting messages into the new wait queues, or leaves them to run out. Default `move`. */
  readonly waits?: 'move' | 'leave';
  /**
   * States that no consumer uses the old wait queues any more. Required to remove them while
   * consumers run whose queue has kept its name: their topology cannot be determined. Default
   * false.
   */
  readonly oldConsumersGone?: boolean;
  /**
   * Queues whose messages do not come from the old queues though they are dead-lettered by a key
   * that only each message has. Others of that kind stop a migration while they are not empty.
   */
  readonly unrelated?: readonly string[];
  /** Reports what would be done, and does nothing. Default false. */
  readonly dryRun?: boolean;
  /** Messages in flight at once. 1 to 1,000; default 100. */
  readonly window?: number;
  /**
   * How the past of messages is read, by the name of an old main queue, and written, by that of a
   * new one. Default Respool's headers.
   */
  readonly wire?: HistoryWire;
  /** Called after every 100 messages and at the end of each queue. */
  readonly onProgress?: (progress: MoveProgress) => void;
  /** Ends it. */
  readonly signal?: AbortSignal;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** One thing that was done, or with `dryRun` would be. */
export interface MigrateStep {
  readonly kind: 'declare' | 'unbind' | 'move' | 'remove' | 'keep';
  /** The queue or exchange. */
  readonly name: string;
  /** Messages that were moved, or that are there. */
  readonly messages: number;
  readonly text: string;
}

/** What a migration did, and what is left for the operator. */
export interface MigrateReport {
  readonly isDryRun: boolean;
  /** Nothing of the old topology is left. */
  readonly isDone: boolean;
  readonly steps: readonly MigrateStep[];
  /** What has to happen before the next run can finish. */
  readonly todo: readonly string[];
}

/** A queue as the broker has it. */
export interface DumpedQueue extends QueueStats {
  /** As planned. */
  readonly planned: AmqpTable;
  /** As the broker has them. */
  readonly arguments: AmqpTable | undefined;
  readonly policy: string | undefined;
  readonly operatorPolicy: string | undefined;
  readonly policyDefinition: AmqpTable | undefined;
  readonly state: string | undefined;
  readonly node: string | undefined;
}

/** An exchange as the broker has it. */
export interface DumpedExchange {
  readonly name: string;
  readonly type: string;
  /** undefined: unknown. */
  readonly isThere: boolean | undefined;
  readonly arguments: AmqpTable | undefined;
  readonly policy: string | undefined;
}

/** A binding as the broker has it. */
export interface DumpedBinding {
  readonly exchange: string;
  readonly queue: string;
  readonly key: string;
  readonly arguments: AmqpTable;
  readonly isPlanned: boolean;
  /** undefined: unknown. */
  readonly isThere: boolean | undefined;
}

/** Everything of the plans as the broker has it. */
export interface TopologyDump {
  readonly at: number;
  readonly version: string | undefined;
  readonly note: string | undefined;
  readonly exchanges: readonly DumpedExchange[];
  readonly queues: readonly DumpedQueue[];
  readonly bindings: readonly DumpedBinding[];
  readonly policies: readonly {
    readonly name: string;
    readonly pattern: string;
    readonly definition: AmqpTable;
    readonly priority: number;
  }[];
  readonly hints: readonly StatsHint[];
}

// The lines of the doctor, made in one way.

export function okBroker(name: string, text: string): BrokerFinding {
  return { level: 'ok', name, text, todo: '' };
}

export function warn(name: string, text: string, todo: string): BrokerFinding {
  return { level: 'warn', name, text, todo };
}

export function bad(name: string, text: string, todo: string): BrokerFinding {
  return { level: 'bad', name, text, todo };
}
