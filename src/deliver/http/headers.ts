/** headers — the headers of a request: ours, the fixed ones, and those of the message. */

import type { Headers } from '../../core/entry.ts';
import type { Delivery } from '../../ports/handler.ts';
import type { HttpSettings } from './options.ts';

/** A message header cannot be sent: it would end the header it is written into. */
export class HeaderIllegal extends Error {
  override readonly name = 'HeaderIllegal';
}

/** What a receiver tells repeated requests by; the notice of a bounce is not the delivery. */
export function requestKey({ id, lane }: Delivery): string {
  return lane === 'notice' ? `${id}-notice` : id;
}

/** All headers of the request except for its signature. */
export function requestHeaders(delivery: Delivery, settings: HttpSettings): Record<string, string> {
  const { headers, id, attempt, topic, lane, lastFailure, envelope } = delivery;
  const forwarded = settings.forward.flatMap((name) => {
    const value = valueOf(headers, name);
    return value === undefined ? [] : [[name, legal(name, value)] as const];
  });
  const contentType = valueOf(headers, 'content-type') ?? settings.contentType;
  const isNotice = lane === 'notice';
  const lastCode = isNotice ? lastFailure?.code : undefined;
  return {
    'user-agent': 'respool',
    ...settings.headers,
    ...Object.fromEntries(forwarded),
    ...traceHeaders(delivery),
    'content-type': legal('content-type', contentType),
    // Said even for streams: a receiver that gets less knows that the request was cut off.
    'content-length': String(envelope.body.size),
    'idempotency-key': requestKey(delivery),
    'respool-id': id,
    'respool-attempt': String(attempt),
    'respool-topic': topic,
    ...(isNotice ? { 'respool-lane': lane } : {}),
    ...(lastCode === undefined ? {} : { 'respool-last-code': legal('last code', lastCode) }),
  };
}

/** The trace of this attempt, so that what the receiver does is a part of it. */
function traceHeaders({ trace = {} }: Delivery): Record<string, string> {
  const named = Object.entries(trace).map(
    ([name, value]) => [name.toLowerCase(), legal(name, value)] as const,
  );
  return Object.fromEntries(named);
}

/** Message headers keep their case, HTTP has none: the same spelling first, then any other. */
function valueOf(headers: Headers, name: string): string | undefined {
  if (Object.hasOwn(headers, name)) return headers[name];
  const other = Object.keys(headers)
    .filter((one) => one.toLowerCase() === name)
    .sort()[0];
  return other === undefined ? undefined : headers[other];
}

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is refused.
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/;

/** A value as bytes of UTF-8, which HTTP carries as they are. */
function legal(name: string, value: string): string {
  if (!CONTROL.test(value)) return Buffer.from(value, 'utf8').toString('latin1');
  throw new HeaderIllegal(
    `the message header "${name}" cannot be sent: it has control characters in its value`,
  );
}
