/**
 * body-record — what an envelope says of its body, looked at before it is believed.
 *
 * A store proves that an envelope is JSON, or that its bytes are those that were written; it does
 * not know what a body's record has to look like. One damaged record must not stop anything else.
 */

import type { BodyInfo, Envelope } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { REF_PATTERN } from '../core/limits.ts';
import type { Change } from '../ports/entry-store.ts';

/** The record of a body that can be read by it; `body.corrupt` otherwise. */
export function checkRecord({ id, body }: Envelope): BodyInfo {
  const damage = damageIn(body);
  if (damage === undefined) return body;
  throw new RespoolError(
    'body.corrupt',
    `cannot read the body of message "${id}": what is recorded of it is damaged: ${damage}`,
  );
}

/** Whether nobody can read a body by this record. */
export function isDamaged({ body }: Envelope): boolean {
  return damageIn(body) !== undefined;
}

function damageIn(body: unknown): string | undefined {
  if (typeof body !== 'object' || body === null) return `it is ${show(body)}`;
  const { ref, place, size, storedSize, digest, encodings } = body as Record<string, unknown>;
  if (place === 'none') return undefined;
  if (place !== 'inline' && place !== 'store') return `its place is ${show(place)}`;
  if (!isSize(size)) return `its size is ${show(size)}`;
  if (!isSize(storedSize)) return `its stored size is ${show(storedSize)}`;
  if (typeof digest !== 'string') return `its digest is ${show(digest)}`;
  const isList = Array.isArray(encodings) && encodings.every((one) => typeof one === 'string');
  if (!isList) return `its encodings are ${show(encodings)}`;
  if (encodings.length === 0 && size !== storedSize) {
    return `it has ${size} bytes, is stored as it is, and yet in ${storedSize} bytes`;
  }
  return place === 'inline' || isRef(ref) ? undefined : `its ref is ${show(ref)}`;
}

/** What a change says of the body that goes with it; nothing where no store could have it. */
export function goingBody({ body }: Envelope): Pick<Change, 'bodyRef'> {
  const { place, ref } = (body as BodyInfo | null | undefined) ?? {};
  return place === 'store' && isRef(ref) ? { bodyRef: ref } : {};
}

/** Whether a store could have a body under this. */
export function isRef(ref: unknown): ref is string {
  return typeof ref === 'string' && REF_PATTERN.test(ref);
}

function isSize(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
