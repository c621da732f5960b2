/**
 * json — the body of a request as JSON, without names that could change what objects are.
 */

import { isRespoolError, RespoolError } from '../core/errors.ts';
import { Refusal } from './refusal.ts';

const RESERVED = new Set(['__proto__', 'constructor', 'prototype']);
/** The one name below which everything is the caller's own data, kept as text. */
const OPAQUE = 'body';
const DEPTH_MAX = 16;

/** Reads JSON; refuses other content types, other encodings and reserved names. */
export function jsonOf(bytes: Uint8Array, request: Request): unknown {
  const type = request.headers.get('content-type') ?? '';
  if (!/^application\/json *(?:;|$)/i.test(type)) {
    const text = 'send JSON with the header "content-type: application/json"';
    throw new Refusal(415, 'content-type', text);
  }
  let value: unknown;
  try {
    value = JSON.parse(UTF8.decode(bytes));
    refuseReserved(value, 0);
  } catch (error) {
    if (isRespoolError(error)) throw error;
    throw new Refusal(400, 'json.invalid', 'cannot read the body of the request as JSON in UTF-8');
  }
  return value;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

function refuseReserved(value: unknown, depth: number): void {
  if (typeof value !== 'object' || value === null) return;
  if (depth > DEPTH_MAX) {
    throw new RespoolError('config.invalid', `cannot use JSON of more than ${DEPTH_MAX} levels`);
  }
  if (Array.isArray(value)) {
    for (const one of value) refuseReserved(one, depth + 1);
    return;
  }
  for (const name of Object.keys(value)) {
    if (RESERVED.has(name)) {
      throw new RespoolError('config.invalid', `cannot use the name "${name}" in JSON`);
    }
    if (name !== OPAQUE) refuseReserved((value as Record<string, unknown>)[name], depth + 1);
  }
}
