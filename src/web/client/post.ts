/**
 * post — messages on their way to a service: small ones as JSON, which keeps every header
 * as it is written; streams and large bodies as the bytes of a raw post.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkHeaders, checkKey } from '../../core/limits.ts';
import type { Enqueued } from '../../spool/enqueue.ts';
import { encodedParts, ownBody } from '../../spool/body.ts';
import type { Message } from '../../spool/message.ts';
import { enqueuedForm, listForm } from './answers.ts';
import type { OutgoingRequest, ServiceClient } from './http.ts';
import { headerOfText } from '../wire-texts.ts';

/** What is longer goes as bytes of its own. */
const JSON_BODY_MAX_BYTES = 1_048_576;
/** Messages and bytes of bodies in one request, at the most. */
const BATCH_MAX = 1_000;
const BATCH_MAX_BYTES = 8_388_608;

/** Sends one message. */
export async function sendMessage(client: ServiceClient, message: Message): Promise<Enqueued> {
  const body = ownBody(message.body);
  if ('bytes' in body && body.bytes.byteLength <= JSON_BODY_MAX_BYTES) {
    const json = jsonOf(message, body.bytes);
    return postOne(client, '/v1/messages', { json });
  }
  return postOne(client, `/v1/topics/${encodeURIComponent(message.topic)}/messages`, {
    headers: headersOf(message),
    ...('bytes' in body ? { bytes: ownBytes(body.bytes) } : { stream: bytesOf(body.stream) }),
  });
}

/** Only the status of a message that was put down is taken for one. */
async function postOne(
  client: ServiceClient,
  path: string,
  sending: OutgoingRequest,
): Promise<Enqueued> {
  const { status, value } = await client.askWhole(path, enqueuedForm, {
    ...sending,
    method: 'POST',
  });
  if (status === (value.duplicate ? 200 : 201)) return value;
  throw client.strange(`status ${status} for a message that was put down`);
}

/** Sends many in one write; what does not fit into one request is refused. */
export async function sendMany(
  client: ServiceClient,
  messages: readonly Message[],
): Promise<Enqueued[]> {
  if (messages.length === 0) return [];
  let totalBytes = 0;
  const json = messages.map((message) => {
    const body = ownBody(message.body);
    if (!('bytes' in body)) throw tooMany('bodies that are streams');
    totalBytes += body.bytes.byteLength;
    return jsonOf(message, body.bytes);
  });
  if (messages.length > BATCH_MAX) throw tooMany(`more than ${BATCH_MAX} messages`);
  if (totalBytes > BATCH_MAX_BYTES) throw tooMany(`bodies of more than ${BATCH_MAX_BYTES} bytes`);
  const { status, value } = await client.askWhole('/v1/messages', listForm(enqueuedForm), {
    method: 'POST',
    json,
  });
  const isKnown = value.every(({ duplicate }) => duplicate);
  if (status === (isKnown ? 200 : 201) && value.length === messages.length) return value;
  throw client.strange(`status ${status} and ${value.length} ids for ${messages.length} messages`);
}

function tooMany(what: string): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot send ${what} in one request to a service: send fewer at once, or one by one`,
  );
}

function jsonOf(message: Message, bytes: Uint8Array): object {
  const { dueAt } = message;
  return {
    ...message,
    body: undefined,
    ...(dueAt === undefined ? {} : { dueAt: Number(dueAt) }),
    ...(bytes.byteLength === 0 ? {} : { bodyBase64: Buffer.from(bytes).toString('base64') }),
  };
}

function headersOf(message: Message): Record<string, string> {
  const { id, policy, priority, delay, dueAt, expires, destination } = message;
  const { dedupeKey, orderKey } = message;
  const options = {
    id,
    policy,
    priority,
    delay,
    'due-at': dueAt === undefined ? undefined : Number(dueAt),
    expires,
    destination,
    'dedupe-key': dedupeKey,
    'order-key': orderKey,
  };
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    headers[`respool-${name}`] = headerOfText(checkKey(name, String(value)));
  }
  // Checked before they are sent: HTTP would refuse them with words of its own.
  const own = checkHeaders(message.headers, Number.POSITIVE_INFINITY);
  for (const [name, value] of Object.entries(own)) {
    headers[`respool-header-${name}`] = headerOfText(value);
  }
  return headers;
}

/** The same bytes, as fetch takes them. */
function ownBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer, byteOffset, byteLength } = bytes;
  return buffer instanceof ArrayBuffer
    ? new Uint8Array(buffer, byteOffset, byteLength)
    : new Uint8Array(bytes);
}

async function* bytesOf(stream: AsyncIterable<Uint8Array | string>): AsyncGenerator<Uint8Array> {
  for await (const { bytes } of encodedParts(stream)) yield bytes;
}
