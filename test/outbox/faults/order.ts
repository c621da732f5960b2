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

/** Messages of one send, and all that are on their way at once: what a kill can double. */
export const BATCH = 20;
/** Short: what a killed relay had claimed waits for its end. */
export const LEASE_MS = 2_000;
