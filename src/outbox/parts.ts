/**
 * parts — what an outbox gives to its relays (`OutboxParts`: a store over its tables, policies, …),
 * and a spool over the same tables, by which operators look at messages and act on them.
 */

import type { Duration } from '../core/duration.ts';
import type { BackoffFunction, RetryPolicy } from '../core/policy.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Logger } from '../ports/logger.ts';
import type { Tracer } from '../ports/tracer.ts';
import { createSpool, type Spool } from '../spool/spool.ts';

/** Options of the store of a relay. */
export interface RelayStoreOptions {
  /** Sent messages move to partitions that are dropped as a whole. */
  readonly partition?: { readonly partition: Duration; readonly keep: Duration };
}

/** What a relay needs of its outbox. */
export interface OutboxParts {
  /** How texts name the outbox, such as `the outbox in schema "outbox"`. */
  readonly name: string;
  /**
   * A new store over the tables of the outbox; the caller opens and closes it. Its `open()`
   * never makes tables: where they are missing it says how they are made. `wake()` of the outbox
   * calls its watchers at once.
   */
  readonly makeStore: (options?: RelayStoreOptions) => EntryStore;
  /** The body store of a spool over the outbox: always empty, because bodies are inline. */
  readonly makeBodies: () => BodyStore;
  /** Always with `default`. */
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  /** The largest body that an emit takes. */
  readonly maxBytes: number;
  /** Deletes a batch of expired keys of the inbox, if there is one; returns how many. */
  readonly deleteExpiredKeys: () => Promise<number>;
  readonly logger: Logger | undefined;
  /** Writes spans; none by default. */
  readonly tracer?: Tracer | undefined;
  readonly clock: Clock;
  readonly dice: Dice;
}

/** A spool over the outbox that delivers nothing by itself. */
export function spoolOf(parts: OutboxParts): Spool {
  const { policies, backoffs, maxBytes, logger, clock, dice } = parts;
  return createSpool({
    entries: parts.makeStore(),
    bodies: parts.makeBodies(),
    policies,
    backoffs,
    limits: { inlineBodyBytes: maxBytes, bodyBytes: maxBytes },
    unhandled: 'leave',
    ...(logger === undefined ? {} : { logger }),
    clock,
    dice,
  });
}
