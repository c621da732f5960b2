/**
 * settled-before — a message whose body is gone because it has ended already.
 *
 * A server that lost its last writes may show an entry again after its removal was acknowledged.
 * Its body was removed only after that (invariant 4), and a ref is used once: what the body store
 * remembers of such a removal proves that the message has ended. Without that proof it is held.
 */

import type { Entry, Status } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import { nextStatus, type SettleContext } from '../core/next-status.ts';
import type { Verdict } from '../core/verdict.ts';
import type { BodyStore, SettledAs } from '../ports/body-store.ts';
import { isDamaged } from './body.ts';

/** How a message ended before, if it would be held now for its missing body. */
export async function settledBefore(
  bodies: BodyStore,
  { envelope }: Pick<Entry, 'envelope'>,
  { because }: Extract<Verdict, { kind: 'hold' }>,
): Promise<SettledAs | undefined> {
  if (because.code !== 'body.missing') return undefined;
  return endingOf(bodies, envelope);
}

/** How the message of a missing body ended, as far as the body store can prove it. */
export async function endingOf(
  bodies: BodyStore,
  envelope: Entry['envelope'],
): Promise<SettledAs | undefined> {
  if (isDamaged(envelope) || envelope.body.place !== 'store') return undefined;
  return bodies.wasSettled?.(envelope.body.ref);
}

/** The status that an active entry had before it came back. */
export function statusBefore(
  entry: Entry,
  settledAs: SettledAs,
  context: SettleContext,
): Status | 'remove' {
  // One that is kept after its delivery still has to be recognised when it is enqueued again.
  return settledAs === 'removed' ? 'remove' : nextStatus(entry, { kind: 'ack' }, context);
}

/** The event for a message that came back. */
export function cameBack(id: string, settledAs: SettledAs): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `message "${id}" had ended before (${settledAs}) and came back without its body: the store ` +
      'lost the write that ended it. It is ended again, not held; look for other messages that ' +
      'are missing or came twice',
  );
}
