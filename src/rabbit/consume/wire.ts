/**
 * wire — how the past of a message is written into its headers: our own names, or those of another
 * system that shares the queues (compat/).
 */

import type { Headers } from '../../core/entry.ts';
import type { Failure } from '../../core/failure.ts';
import type { AmqpMessage, Properties, Table } from '../connection/amqp.ts';

/** What a message tells of its past. */
export interface Past {
  /** Attempts that were made and counted before this delivery. */
  readonly attempts: number;
  /** Deliveries in a row that ended with their consumer, as far as headers tell. */
  readonly lost: number;
  readonly postponed: number;
  /** Where it was first published. */
  readonly exchange: string;
  readonly routingKey: string;
  /** When it was first published or seen, in milliseconds since the epoch; 0: not known. */
  readonly firstAt: number;
  /** How long it still has to wait before a handler may see it. */
  readonly restMs: number;
  readonly firstFailedAt: number | undefined;
  readonly lastFailure: Failure | undefined;
  readonly lastFailedAt: number | undefined;
  /** Milliseconds from `firstAt` on, after which nobody wants it any more; undefined: never. */
  readonly expiresAfterMs: number | undefined;
  /** The policy that it asks for by name. */
  readonly policy: string | undefined;
  readonly notes: Headers;
}

/** Why a message is in a dead or parked queue. */
export interface Ending {
  readonly kind: 'dead' | 'parked';
  readonly code: string;
  readonly reason: string;
  readonly at: number;
  readonly by: string;
}

/** What a successor of a message has to tell. */
export interface Successor {
  readonly past: Past;
  /** The queue that it comes from. */
  readonly queue: string;
  /** The id it gets where it has none. */
  readonly id: string;
  readonly ending?: Ending;
  /** Headers that routing needs. */
  readonly routing: Table | undefined;
}

/** One way to write it. */
export interface Wire {
  readonly name: 'respool' | 'goqueue' | 'spring' | 'outbox';
  read(message: AmqpMessage, queue: string): Past;
  /** The properties, headers included, that a successor is published with. */
  write(message: AmqpMessage, successor: Successor): Properties;
  /** The payload, where the body is an envelope of its own around it. */
  unwrap?(message: AmqpMessage): Buffer;
  /** The message's id, where it is not only among the properties. */
  id?(message: AmqpMessage): string | undefined;
}
