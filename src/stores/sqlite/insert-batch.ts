/**
 * insert-batch — entries and changes as operations for the file: encoded and checked before they go
 * into a batch, since a wrong one must not fail the others in it.
 */

import type { Entry } from '../../core/entry.ts';
import type { Change } from '../../ports/entry-store.ts';
import { checkInline } from '../shared/sql-row.ts';
import type { Bytes, ChangeOp, InsertOp } from './protocol.ts';
import { envelopeColumns, newColumns, statusColumns } from './row.ts';

/** An operation and the bytes that go with it. */
interface Encoded<Op> {
  readonly op: Op;
  readonly bytes?: Bytes;
}

export function insertItem({ envelope, status, inlineBody }: Entry): Encoded<InsertOp> {
  const { id } = envelope;
  const op: InsertOp = {
    kind: 'insert',
    id,
    status: newColumns(status, id) ?? statusColumns(status, id),
    envelope: envelopeColumns(envelope),
  };
  return { op, bytes: checkInline(inlineBody, id) };
}

export function changeItem(change: Change, isDurable: boolean): Encoded<ChangeOp> {
  const { id, revision, holder = null, to, envelope, inlineBody } = change;
  const op: ChangeOp = {
    kind: 'change',
    id,
    revision,
    holder,
    isDurable,
    status: to === 'remove' ? null : statusColumns(to, id),
    envelope: envelope === undefined ? null : envelopeColumns(envelope),
  };
  if (envelope === undefined) return { op };
  return { op, bytes: envelope.body.place === 'inline' ? checkInline(inlineBody, id) : null };
}
