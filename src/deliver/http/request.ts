/**
 * request — what one HTTP request carries: its headers, its signature by Standard Webhooks, and the
 * secrets that must not come back in a response.
 */

import { type Hmac, createHmac } from 'node:crypto';
import type { Headers } from '../../core/entry.ts';
import { hideKnown, mayBeSecretName, urlSecrets } from '../../core/redact.ts';
import type { HttpSettings } from './options.ts';
import type { Delivery } from '../../ports/handler.ts';

/** A message header with control characters, which HTTP cannot carry. */
export class HeaderIllegal extends Error {
  override readonly name = 'HeaderIllegal';
}

/** By which a receiver recognises a repeated request; a notice is not the delivery. */
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
    // Set for streams too: a receiver that gets fewer bytes knows that the request was cut off.
    'content-length': String(envelope.body.size),
    'idempotency-key': requestKey(delivery),
    'respool-id': id,
    'respool-attempt': String(attempt),
    'respool-topic': topic,
    ...(isNotice ? { 'respool-lane': lane } : {}),
    ...(lastCode === undefined ? {} : { 'respool-last-code': legal('last code', lastCode) }),
  };
}

/** The trace context of this attempt, so that the receiver continues the trace. */
function traceHeaders({ trace = {} }: Delivery): Record<string, string> {
  const named = Object.entries(trace).map(
    ([name, value]) => [name.toLowerCase(), legal(name, value)] as const,
  );
  return Object.fromEntries(named);
}

/** A message header by its name: the exact spelling first, then any other case. */
function valueOf(headers: Headers, name: string): string | undefined {
  if (Object.hasOwn(headers, name)) return headers[name];
  const other = Object.keys(headers)
    .filter((one) => one.toLowerCase() === name)
    .sort()[0];
  return other === undefined ? undefined : headers[other];
}

// oxlint-disable-next-line no-control-regex -- control characters are exactly what is refused.
const CONTROL = /[\u0000-\u0008\u000a-\u001f\u007f]/;

/** A value as UTF-8 bytes, which HTTP carries unchanged. */
function legal(name: string, value: string): string {
  if (!CONTROL.test(value)) return Buffer.from(value, 'utf8').toString('latin1');
  throw new HeaderIllegal(
    `the message header "${name}" cannot be sent: it has control characters in its value`,
  );
}

/** Signs a body, part by part, with every key. */
export class Signer {
  readonly #macs: readonly Hmac[];

  constructor(keys: readonly Buffer[], id: string, seconds: number) {
    this.#macs = keys.map((key) => createHmac('sha256', key).update(`${id}.${seconds}.`));
  }

  update(part: Uint8Array): void {
    for (const mac of this.#macs) mac.update(part);
  }

  /** The value of `webhook-signature`: one signature for each key, separated by blanks. */
  done(): string {
    return this.#macs.map((mac) => `v1,${mac.digest('base64')}`).join(' ');
  }
}

/** Headers whose names look secret and whose values are not. */
const OPEN_HEADERS: ReadonlySet<string> = new Set(['idempotency-key']);

/** What a request carries that a receiver may quote. */
interface RequestSecrets {
  readonly url: URL;
  /** Names in lower case, values as they are sent. */
  readonly headers: Readonly<Record<string, string>>;
  readonly keys: readonly Buffer[];
}

/**
 * A response without the secrets of its request. Receivers quote what they received, and the start
 * of the response is stored with the message and shown; it may end in the middle of a secret.
 */
export function hideEchoes(text: string, request: RequestSecrets): string {
  return hideKnown(text, secretsOf(request), 'end');
}

function secretsOf({ url, headers, keys }: RequestSecrets): readonly string[] {
  const named = Object.entries(headers).filter(
    ([name]) => mayBeSecretName(name) && !OPEN_HEADERS.has(name),
  );
  return [
    ...named.flatMap(([, value]) => partsOf(value)),
    ...keys.flatMap((key) => [key.toString(), key.toString('base64'), key.toString('hex')]),
    ...urlSecrets(url),
  ];
}

/** The secrets in the value of a header: credentials without their scheme, each cookie. */
function partsOf(value: string): readonly string[] {
  const [, scheme = '', bare = value] = /^([a-z-]{1,20}) +(.+)$/i.exec(value) ?? [];
  const values = bare.split(/[\s;,]+/).map((part) => part.slice(part.indexOf('=') + 1));
  const plain = scheme.toLowerCase() === 'basic' ? Buffer.from(bare, 'base64').toString() : '';
  return [value, bare, ...values, plain, plain.slice(plain.indexOf(':') + 1)];
}
