/**
 * model — a topology as data: exchanges, queues, bindings and policies, and where a message of a
 * queue goes by each verdict. Built by styles (pure), carried out by declare.ts.
 */

import type { RetryPolicy } from '../../core/policy.ts';
import type { Table } from '../connection/amqp.ts';

/** Replicated and safe (`quorum`, the default), or plain (`classic`). */
export type QueueType = 'quorum' | 'classic';

export interface ExchangeSpec {
  readonly name: string;
  readonly type: 'direct' | 'topic' | 'fanout' | 'headers';
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: Table;
}

/** What a queue is there for. */
export type QueueRole = 'main' | 'wait' | 'dead' | 'parked' | 'unrouted';

export interface QueueSpec {
  readonly name: string;
  readonly role: QueueRole;
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly arguments: Table;
}

export interface BindingSpec {
  readonly queue: string;
  readonly exchange: string;
  readonly key: string;
  readonly arguments: Table;
}

/** A policy of the broker: how safety is added to queues whose arguments are somebody else's. */
export interface PolicySpec {
  readonly name: string;
  /** A regular expression over queue names. */
  readonly pattern: string;
  readonly definition: Table;
  readonly priority: number;
}

/** Everything that has to be at the broker. */
export interface Topology {
  readonly exchanges: readonly ExchangeSpec[];
  readonly queues: readonly QueueSpec[];
  readonly bindings: readonly BindingSpec[];
  /** Needs the management API; without it they are named by `doctor` and exported. */
  readonly policies: readonly PolicySpec[];
}

/** A binding of a user's exchange to the queue. */
export interface UserBinding {
  readonly exchange: string;
  /** A routing key, with `*` and `#` at a topic exchange; default `#`. */
  readonly key?: string;
  /** Declares the exchange with this type; default: `topic`. `false`: it is there already. */
  readonly type?: ExchangeSpec['type'] | false;
  readonly arguments?: Table;
}

/** What a style is asked to build for. */
export interface QueueOrder {
  readonly queue: string;
  readonly type: QueueType;
  readonly policy: RetryPolicy;
  /** Delays that need a wait queue beyond those of the policy, in milliseconds. */
  readonly extraWaitsMs: readonly number[];
  readonly bindings: readonly UserBinding[];
  /** Options of the main queue itself. */
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly queueArguments: Table;
}

/** Where a message is published to. */
export interface Route {
  readonly exchange: string;
  readonly key: string;
  /** Headers that routing needs; they are taken off again when the message comes back. */
  readonly headers?: Table;
}

/** A wait queue, by the road that leads into it. */
export interface WaitRoute extends Route {
  /**
   * How long it waits there before it comes back. May be shorter than what was asked for: then
   * the rest is waited for in another round.
   */
  readonly waitMs: number;
}

/** What is asked of the wait queues. */
export interface WaitRequest {
  readonly delayMs: number;
  /** The attempt that just ended, 1 for the first; 0 for a message that was not tried. */
  readonly attempt: number;
  /** The routing key that the message first came with. */
  readonly routingKey: string;
}

/** The topology of one queue, and the roads in it. */
export interface QueuePlan {
  readonly queue: string;
  readonly type: QueueType;
  readonly topology: Topology;
  /** The wait queues' delays, ascending. */
  readonly waitsMs: readonly number[];
  /** The shortest wait that is long enough, or the longest there is. */
  wait(request: WaitRequest): WaitRoute;
  /** To the end of the queue, without waiting. */
  readonly again: Route;
  readonly dead: Route;
  readonly parked: Route;
}

/** A way to build wait queues: `perAttempt()`, `perDelay()`, `shared()`. */
export interface TopologyStyle {
  readonly name: string;
  plan(order: QueueOrder): QueuePlan;
}
