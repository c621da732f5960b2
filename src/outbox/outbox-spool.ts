/**
 * outbox-spool — a spool over the tables of an outbox, to look at messages and to steer them.
 */

import { createSpool, type Spool } from '../spool/spool.ts';
import type { OutboxParts } from './parts.ts';

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
