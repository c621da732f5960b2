/** sweep-order — what a fault test and the processes that sweep for it agree on. */

/** What a process is told when it starts. */
export interface SweepOrder {
  readonly url: string;
  readonly managementUrl: string;
  readonly queue: string;
  readonly target: string;
  readonly window: number;
  /** The file in which it is remembered what was sent. */
  readonly journal?: string;
  readonly rounds: number;
}

/** What it tells of each sweep. */
export interface Swept {
  readonly moved: number;
  /** Acked only: they had been moved by one that was killed. */
  readonly already: number;
  readonly left: number;
}
