/** node-order — what a fleet and its nodes agree on. */
import { fixed, type SpoolOptions } from 'respool';
import type { Place } from '../torture/places.ts';

/** What a node is told when it starts. */
export interface NodeOrder {
  readonly place: Place;
  readonly path: string;
  /** Of the ledger, on loopback. */
  readonly port: number;
  readonly seed: number;
  /** Its messages are named after it. */
  readonly name: string;
  /** How many producers it has; with none it only handles. */
  readonly producers: number;
  /** The time between two messages of a producer, on average. */
  readonly paceMs: number;
  /** Whether its servers are mistreated: then a store may be away, and messages kill no process. */
  readonly isRough: boolean;
  readonly settle: 'lazy' | 'durable';
  readonly leaseMs: number;
}

export const CONCURRENCY = 8;
/** High, and far apart: an outage must not use up what a message has. */
export const ATTEMPTS_MAX = 400;
export const LEASE_MS = 2_000;

/** How the spool of a node is made. */
export const NODE_OPTIONS: SpoolOptions = {
  policies: { default: fixed('50ms', { attempts: ATTEMPTS_MAX, jitter: 1 }) },
  concurrency: CONCURRENCY,
  retention: { dedupeWindow: '1h', bounced: { archive: '1s' }, removed: '1s' },
};
