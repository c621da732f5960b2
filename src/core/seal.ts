/**
 * seal — how an entry that is stored under a seal is recognised.
 *
 * `$` is not allowed in the name of a header or note, so no other name is mistaken for one of
 * these.
 */

import type { Because, Entry, Status } from './entry.ts';

/** The header and the note that hold what is sealed. */
export const SEALED_NAME = '$sealed';
/** The note that says: `because` is newer than what is sealed, and in the clear. */
export const SEALED_HERE_NAME = '$held';

/** Why a sealed entry is held where there is no seal: a handler would get it without headers. */
export const SEAL_MISSING: Because = {
  code: 'transform.missing',
  text:
    'the message was stored under a seal, and this spool has none: its headers cannot be read; ' +
    'wrap the entry store in seal(), or set "seal" in the configuration, then release it',
  by: 'engine',
};

/** Whether a seal wrote any part of it. */
export function isSealed({ envelope, status }: Entry): boolean {
  return Object.hasOwn(envelope.headers, SEALED_NAME) || Object.hasOwn(status.notes, SEALED_NAME);
}

/** A held status whose reason is still shown once its sealed half can be read. */
export function markSealedHere(status: Status): Status {
  if (!Object.hasOwn(status.notes, SEALED_NAME)) return status;
  return { ...status, notes: { ...status.notes, [SEALED_HERE_NAME]: '' } };
}
