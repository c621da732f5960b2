/**
 * post — `POST /v1/topics/{topic}/messages`: the bytes of the request are the message.
 *
 * The path for fast producers, so it goes by hand: no schema, no framework, one look at each
 * header. `describeRawPost` of messages.ts puts it into the OpenAPI document. Promise: a body
 * that is cut off or too long leaves nothing behind.
 *
 * Why: docs/decisions/0013-the-api-listens-on-nodes-own-server.md
 */

import type { Operator } from '../../spool/operator/operator.ts';
import { RespoolError, show } from '../../core/errors.ts';
import type { EnqueueResult } from '../../spool/enqueue.ts';
import type { Message } from '../../spool/message.ts';
import type { ByteLimit, Inlet } from '../server/inlet.ts';
import { isJson } from '../server/json.ts';
import { HttpRefusal } from '../server/refusal.ts';
import { checkEncoding, momentOf, spanOf, textOfHeader, wholeOf } from '../http-values.ts';
import { JSON_TYPE } from '../server/writing.ts';

/**
 * Largest body that is read whole before it is enqueued; others are streams. Also in
 * docs/reference/http-api.md.
 */
const ONE_PIECE_MAX_BYTES = 65_536;
const BEFORE = '/v1/topics/';
const AFTER = '/messages';
const OPTION = 'respool-';
const HEADER = 'respool-header-';

/**
 * Headers that say something about the message, by what they become. `headersOf` of
 * web/client/client.ts writes them, web/client/http.ts `respool-by`.
 */
const OPTIONS: Readonly<Record<string, (value: string) => Partial<Message>>> = {
  'respool-id': (id) => ({ id }),
  'respool-policy': (policy) => ({ policy }),
  'respool-priority': (priority) => ({ priority: wholeOf('respool-priority', priority) }),
  'respool-delay': (delay) => ({ delay: spanOf(delay) }),
  'respool-due-at': (dueAt) => ({ dueAt: momentOf('respool-due-at', dueAt) }),
  'respool-expires': (expires) => ({ expires: spanOf(expires) }),
  'respool-destination': (destination) => ({ destination }),
  'respool-dedupe-key': (dedupeKey) => ({ dedupeKey }),
  'respool-order-key': (orderKey) => ({ orderKey }),
  // Whose name it is, not what the message is.
  'respool-by': () => ({}),
};

/** The names of those headers. */
export const OPTION_HEADERS: readonly string[] = Object.keys(OPTIONS);

/** The topic in the path, or undefined for another path. */
export function rawTopic({ method, path }: Inlet): string | undefined {
  if (method !== 'POST' || !path.startsWith(BEFORE) || !path.endsWith(AFTER)) return undefined;
  const topic = path.slice(BEFORE.length, -AFTER.length);
  return topic === '' || topic.includes('/') ? undefined : topic;
}

/** Puts the bytes of a request down. */
export function postRaw(
  inlet: Inlet,
  topic: string,
  { operator, limit }: { readonly operator: Operator; readonly limit: ByteLimit },
): Promise<EnqueueResult> {
  if (inlet.query !== '') throw new RespoolError('message.invalid', NO_QUERY);
  const message = messageOf(inlet, decoded(topic));
  if (inlet.length === 0 && inlet.isUnframed) throw withoutLength();
  if (!isOnePiece(inlet)) return operator.enqueue({ ...message, body: inlet.stream(limit) });
  const isForm =
    message.headers['content-type'] === FORM_TYPE &&
    inlet.header('respool-header-content-type') === undefined;
  return inlet.read(limit).then((body) => {
    // What curl -d says of everything. A form never begins like this.
    if (isForm && isJson(body)) message.headers['content-type'] = JSON_TYPE;
    return operator.enqueue({ ...message, body });
  });
}

/** Whether the body is read whole before the spool hears of it. */
export function isOnePiece({ length }: Inlet): boolean {
  return length !== undefined && length <= ONE_PIECE_MAX_BYTES;
}

const FORM_TYPE = 'application/x-www-form-urlencoded';

function withoutLength(): HttpRefusal {
  return new HttpRefusal(
    411,
    'length.missing',
    'send content-length, also for an empty body, or transfer-encoding: chunked',
    { code: 'message.invalid', headers: { connection: 'close' } },
  );
}

const NO_QUERY =
  'there are no query parameters of this path: options of the message go into respool-* headers';

function messageOf(inlet: Inlet, topic: string): RawMessage {
  const { rawHeaders } = inlet;
  const headers: Record<string, string> = {};
  const message: RawMessage = { topic, headers };
  let type: string | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const given = rawHeaders[at] ?? '';
    // Most headers are none of ours, and their first letter tells.
    const first = given.charCodeAt(0) | LOWER_CASE_BIT;
    if (first !== LETTER_R && first !== LETTER_C && first !== LETTER_I) continue;
    const name = given.toLowerCase();
    const value = rawHeaders[at + 1] ?? '';
    if (name.startsWith(OPTION)) takeOwn(message, headers, name, textOfHeader(name, value));
    else if (name === 'content-type') type = textOfHeader(name, value);
    else if (name === 'content-encoding') checkEncoding(value);
    else if (name === 'idempotency-key') takeKey(message, textOfHeader(name, value));
  }
  // What the message says of its type itself goes before what the request says.
  if (type !== undefined) headers['content-type'] ??= type;
  return message;
}

/** A message that is being put together. */
interface RawMessage {
  [name: string]: unknown;
  topic: string;
  headers: Record<string, string>;
}

const LOWER_CASE_BIT = 0x20;
const LETTER_C = 0x63;
const LETTER_I = 0x69;
const LETTER_R = 0x72;

function takeOwn(
  message: { [name: string]: unknown },
  headers: Record<string, string>,
  name: string,
  value: string,
): void {
  if (name.startsWith(HEADER)) {
    const short = name.slice(HEADER.length);
    if (Object.hasOwn(headers, short)) throw twice(name);
    // Defined, not assigned: "__proto__" must arrive as a name, to be refused as one.
    Object.defineProperty(headers, short, { value, enumerable: true, writable: true });
    return;
  }
  const option = Object.hasOwn(OPTIONS, name) ? OPTIONS[name] : undefined;
  if (option === undefined) {
    throw new RespoolError(
      'message.invalid',
      `there is no header ${show(name)}: known are ${OPTION_HEADERS.join(', ')}, respool-header-*`,
    );
  }
  for (const [key, one] of Object.entries(option(value))) {
    if (key === 'dedupeKey') takeKey(message, String(one));
    else if (Object.hasOwn(message, key)) throw twice(name);
    else message[key] = one;
  }
}

/** Also under the name that other services know it by; two names, one key. */
function takeKey(message: { [name: string]: unknown }, key: string): void {
  if (message['dedupeKey'] !== undefined && message['dedupeKey'] !== key) throw keysDiffer();
  message['dedupeKey'] = key;
}

/** One message cannot have two dedupe keys. */
export function keysDiffer(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot use two dedupe keys: the header idempotency-key and the dedupe key must be the same',
  );
}

function twice(name: string): RespoolError {
  return new RespoolError('message.invalid', `cannot use the header "${name}" twice: give one`);
}

function decoded(topic: string): string {
  if (!topic.includes('%')) return topic;
  try {
    return decodeURIComponent(topic);
  } catch {
    throw new RespoolError('message.invalid', `cannot read ${show(topic)} as topic: it is no URL`);
  }
}
