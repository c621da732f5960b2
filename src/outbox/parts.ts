/**
 * parts — what an outbox hands to its relays: a store over its tables, and the words they share;
 * and a spool over the same tables, to look at messages and to steer them.
 */

import type { Duration } from '../core/duration.ts';
import type { BackoffFunction, RetryPolicy } from '../core/policy.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Logger } from '../ports/logger.ts';
import type { Tracer } from '../ports/tracer.ts';
import { createSpool, type Spool } from '../spool/spool.ts';

/** What is special about the store of a relay. */
export interface RelayStoreOptions {
  /** Sent messages move to parts that are dropped as a whole. */
  readonly partition?: { readonly partition: Duration; readonly keep: Duration };
}

/** What a relay is made of. */
export interface OutboxParts {
  /** How texts name the outbox, such as `the outbox in schema "outbox"`. */
  readonly name: string;
  /**
   * A new store over the tables of the outbox; the caller opens and closes it. Its `open()`
   * never makes tables: where they are missing it says how they are made. `wake()` of the outbox
   * calls its watchers at once.
   */
  readonly makeStore: (options?: RelayStoreOptions) => EntryStore;
  /** A store of bodies for a spool over it: nothing is ever in it, bodies ride with entries. */
  readonly makeBodies: () => BodyStore;
  /** Always with `default`. */
  readonly policies: Readonly<Record<string, RetryPolicy>>;
  readonly backoffs: Readonly<Record<string, BackoffFunction>>;
  /** The largest body that an emit takes. */
  readonly maxBytes: number;
  /** Forgets keys of the inbox that are over, a bite; how many. Nothing where there is no inbox. */
  readonly forgetKeys: () => Promise<number>;
  readonly logger: Logger | undefined;
  /** Writes spans; none by default. */
  readonly tracer?: Tracer | undefined;
  readonly clock: Clock;
  readonly dice: Dice;
}

/** A spool that delivers nothing by itself; bodies ride with their entries. */
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
