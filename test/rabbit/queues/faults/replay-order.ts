/** replay-order — what a fault test and the processes that replay for it agree on. */
import type { Replay, ReplayOptions } from 'respool/dead-letters';

/** What a process is told when it starts. */
export interface ReplayOrder {
  readonly url: string;
  readonly managementUrl: string;
  readonly queue: string;
  /** Where the record of the replay is. */
  readonly folder: string;
  readonly options: ReplayOptions;
  /** The replay to go on with; without it, one is planned first. */
  readonly id?: string;
  /** Its clock is so much ahead: a lease of who was killed has run out by then. */
  readonly aheadMs: number;
}

/** What it tells at its end. */
export interface Ended {
  readonly replay: Replay;
  /** Ids that the report calls unsure. */
  readonly unsure: readonly string[];
}
