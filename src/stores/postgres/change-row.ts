/**
 * change-row — a change as it is sent: checked, with the columns it writes.
 */

import type { Change } from '../../ports/entry-store.ts';
import { checkInline } from '../shared/sql-row.ts';
import { checkColumns } from './arrays.ts';
import { type EnvelopeColumns, envelopeColumns, type StatusColumns, statusColumns } from './row.ts';

/** A change, ready to go. */
export interface ChangeRow {
  readonly id: string;
  readonly revision: number;
  readonly holder: string;
  readonly isDurable: boolean;
  /** Null: remove it. */
  readonly status: StatusColumns | null;
  readonly envelope: EnvelopeColumns | undefined;
  /** New bytes; null: let go of them; undefined: as they are. */
  readonly body: Uint8Array | null | undefined;
  /** The body that goes with it, if that is in the tables beside ours. */
  readonly bodyRef: string | null;
  /** From then on somebody else may have removed it. */
  readonly leaseEndsAt: number;
}

export function changeRow(change: Change, isDurable: boolean): ChangeRow {
  const { id, revision, holder = '', to, envelope, inlineBody, bodyRef = null } = change;
  const { leaseEndsAt = Number.POSITIVE_INFINITY } = change;
  if (bodyRef !== null) checkColumns(id, { counts: [], times: [], texts: [bodyRef] });
  const isInline = envelope?.body.place === 'inline';
  const body = isInline ? checkInline(inlineBody, id) : null;
  return {
    id,
    revision,
    holder,
    isDurable,
    status: to === 'remove' ? null : statusColumns(to, id),
    envelope: envelope === undefined ? undefined : envelopeColumns(envelope),
    body: envelope === undefined ? undefined : body,
    bodyRef,
    leaseEndsAt,
  };
}

/** A change, and its place in the batch. */
export type Numbered = readonly [row: ChangeRow, index: number];

/** One with a new envelope that lets go of inline bytes, if there are any. */
export type Shrinking = readonly [
  row: ChangeRow & { readonly envelope: EnvelopeColumns },
  index: number,
];

export function isShrinking(item: Numbered): item is Shrinking {
  const [{ envelope, body, status }] = item;
  return envelope !== undefined && body === null && status !== null;
}
