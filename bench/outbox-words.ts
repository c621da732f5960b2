/** outbox-words — what the outbox bench and its child processes agree on. */

/** Who does the work: we, a bare loop over our tables, or pg-transactional-outbox. */
export type SideName = 'ours' | 'raw' | 'peer';

/** Where one run happens; everything in it is its own. */
export interface Place {
  readonly url: string;
  readonly schema: string;
  readonly amqp: string;
  readonly exchange: string;
  readonly queue: string;
}

/** What a relay process is told. */
export interface RelayOrder extends Place {
  readonly side: SideName;
  /** The most messages of one send; for the others, of one claim. */
  readonly batch: number;
  /** Messages on their way at once. */
  readonly inFlight: number;
}

/** What a consumer process is told. */
export interface ConsumerOrder extends Place {
  /** Our `listen`, or amqplib by hand. */
  readonly by: 'listen' | 'amqplib';
  readonly prefetch: number;
}

/** What a consumer process saw: ids, and when each came, in milliseconds since the epoch. */
export interface Seen {
  readonly ids: readonly string[];
  readonly at: readonly number[];
}

/** Puts messages down, this many in a transaction. */
export interface Writer {
  /** Resolves when they are committed: their ids, and when the commit was asked for. */
  write(count: number): Promise<{ readonly ids: readonly string[]; readonly at: number }>;
  close(): Promise<void>;
}

/** The routing key of every message. */
export const ROUTING_KEY = 'bench.done';

/** Finer than Date.now(), and the same for all processes of one machine. */
export function now(): number {
  return performance.timeOrigin + performance.now();
}

/** As the published workload has it. */
export function bodyOf(bytes: number): string {
  return '*'.repeat(bytes);
}
