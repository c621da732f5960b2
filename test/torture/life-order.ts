/** life-order — what pause.ts, poison.ts and shutdown.ts agree on with the program they start. */
import { fixed, type SpoolOptions } from 'respool';
import type { Place } from './places.ts';

/** How a handler ends its process, or tries to. */
export type Poison = 'kill' | 'exit' | 'loop' | 'undefined' | 'huge' | 'hang';

/** Those that take their process with them. */
export const DEADLY: readonly Poison[] = ['kill', 'exit', 'loop'];

/** What the parent passes. */
export interface LifeOrder {
  readonly place: Place;
  readonly path: string;
  /** Of the ledger, on loopback. */
  readonly port: number;
  /** How long a handler of topic `slow` takes. */
  readonly slowMs: number;
  /** Whether the program ends when nothing is left to do. */
  readonly endsWhenQuiet: boolean;
}

export const CONCURRENCY = 8;
export const ATTEMPTS_MAX = 6;
export const LEASE_MS = 1_000;
export const STOP_WITHIN_MS = 500;

export const SPOOL_OPTIONS: SpoolOptions = {
  policies: { default: fixed('10ms', { attempts: ATTEMPTS_MAX }) },
  concurrency: CONCURRENCY,
  lease: LEASE_MS,
};
