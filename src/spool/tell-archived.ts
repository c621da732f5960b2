/**
 * tell-archived — the event of a message that has come to its end and is kept for a while.
 * Built only when somebody hears it.
 *
 * Promise: told after it is on record, and only by whoever wrote it.
 */

import type { Envelope, Status } from '../core/entry.ts';
import type { Events } from '../engine/events.ts';

/** Tells that a message has come to be archived, if that is what it has come to. */
export function tellArchived(
  events: Events,
  { id, topic }: Pick<Envelope, 'id' | 'topic'>,
  to: Status | 'remove',
): void {
  if (to === 'remove' || to.state !== 'archived' || !events.hears('archived')) return;
  const { updatedAt: at, ending = 'removed' } = to;
  events.emit({ at, kind: 'archived', id, topic, ending });
}
