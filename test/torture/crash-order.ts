/** crash-order — what crash.ts and the program it kills agree on. */
import { fixed, type SpoolOptions } from 'respool';
import type { Place } from './places.ts';

/** What the parent passes. */
export interface CrashOrder {
  readonly place: Place;
  readonly path: string;
  /** Of the ledger, on loopback. */
  readonly port: number;
  readonly seed: number;
  readonly round: number;
  /** `endless` is work without messages that kill their process, and without an end. */
  readonly mode: 'work' | 'endless' | 'drain';
}

export const CONCURRENCY = 8;
export const ATTEMPTS_MAX = 40;

/** How the spool under test is made; short waits, so that much happens between two kills. */
export const SPOOL_OPTIONS: SpoolOptions = {
  policies: { default: fixed('20ms', { attempts: ATTEMPTS_MAX, jitter: 1 }) },
  concurrency: CONCURRENCY,
  lease: '2s',
  retention: { dedupeWindow: '30s', bounced: { archive: '1s' }, removed: '1s' },
  caretaker: { orphanGrace: '0ms' },
};
