/** order — what a run and its relay processes agree on. */

/** What a relay process is told when it starts. */
export interface RelayOrder {
  readonly url: string;
  readonly schema: string;
  readonly amqp: string;
  readonly exchange: string;
  /** The first pause when the broker is away, in milliseconds. */
  readonly pauseMs: number;
}

/** What a relay process has done since it was started. */
export interface RelayWork {
  /** Statements that it sent. */
  readonly queries: number;
  /** Turns of its event loop: a process that spins makes thousands in a second. */
  readonly turns: number;
  /** When it was asked, by its own clock, in milliseconds. */
  readonly atMs: number;
}

/** Messages of one send, and all that are on their way at once: what a kill can double. */
export const BATCH = 20;
/** Short: what a killed relay had claimed waits for its end. */
export const LEASE_MS = 2_000;
