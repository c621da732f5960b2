/**
 * writing — answers on their way out through Node's server: the headers every answer has to carry
 * (`SAFE_HEADERS`; service.ts and app.ts add them to answers of the app), streams with
 * back-pressure, a count of what is still unread (answer-memory.ts), and a last word to callers who
 * are still sending.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../ports/clock.ts';
import type { EnqueueResult } from '../../spool/enqueue.ts';
import { countUnreleasedBytes } from '../../system/memory.ts';
import { API_HEADER, API_VERSION } from '../http-values.ts';
import type { AnswerMemory } from './answer-memory.ts';
import { refusedOf } from './refusal.ts';
import { discardRest } from './pipeline.ts';
import { isShared, sharedBytesOf } from './shared-reads.ts';

/** What every answer carries. Nothing we say is a page, and nothing of it is kept. */
export const SAFE_HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
  'cross-origin-resource-policy': 'same-origin',
  // Tells a client that this service answered, and its API version.
  [API_HEADER]: API_VERSION,
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};

export const JSON_TYPE = 'application/json';
/**
 * How long a refused caller may go on sending before the connection is cut. Also in
 * docs/reference/http-api.md.
 */
const LINGER_MS = 2_000;
/**
 * Maximum number of refused callers whose bytes are read at once. Also in
 * docs/reference/http-api.md.
 */
const READING_MAX = 8;
const JSON_PAIRS = Object.entries({ ...SAFE_HEADERS, 'content-type': JSON_TYPE }).flat();

/** The answer to a stored message, as text and status. */
export function enqueuedText({ id, duplicate }: EnqueueResult): { status: number; text: string } {
  // By hand: an id has no character that JSON would escape.
  return { status: duplicate ? 200 : 201, text: `{"id":"${id}","duplicate":${String(duplicate)}}` };
}

/** Writes the answer to a stored message. */
export function writeEnqueued(
  response: ServerResponse,
  enqueued: EnqueueResult,
  isLast: boolean,
): void {
  const { status, text } = enqueuedText(enqueued);
  // An id is ASCII: as many bytes as characters.
  const pairs = [...JSON_PAIRS, 'content-length', String(text.length)];
  if (isLast) pairs.push('connection', 'close');
  response.writeHead(status, pairs);
  response.end(text, 'latin1');
}

/** Writes a refusal. A caller that is still sending gets it before the connection is cut. */
export function writeRefusal(
  request: IncomingMessage,
  response: ServerResponse,
  thrown: unknown,
  lingering: Lingering,
): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, headers, text } = refusedOf(thrown);
  const isCut = isSending(request);
  response.writeHead(status, {
    ...SAFE_HEADERS,
    'content-type': JSON_TYPE,
    'content-length': Buffer.byteLength(text),
    ...headers,
    ...(isCut ? { connection: 'close' } : {}),
  });
  if (isCut && request.method !== 'HEAD') lingering.end(request, response, text);
  else response.end(text);
}

/** Whether bytes of the body are still to come. */
function isSending({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Gives callers that are still sending their answer.
 *
 * n.b. A socket that is closed while bytes wait in it is reset, and the reset overtakes the answer.
 * So the answer goes out whole, what comes in is thrown away for a moment, and then it ends. A few
 * at once: hundreds of callers that send as fast as they can would take all the time there is.
 */
export class Lingering {
  readonly #clock: Clock;
  #reading = 0;
  readonly #waiting = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Writes this last answer, and ends the connection when the caller has ended, or soon. */
  end(request: IncomingMessage, response: ServerResponse, text: string | Uint8Array): void {
    response.write(text);
    let isOver = false;
    const read = (): void => {
      this.#reading += 1;
      discardRest(request, end);
    };
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      callOff();
      request.off('end', end).off('close', end);
      if (!this.#waiting.delete(read)) this.#reading -= 1;
      response.end();
      this.#next();
    };
    const callOff = this.#clock.after(LINGER_MS, end);
    request.on('end', end).on('close', end);
    request.on('error', () => undefined);
    this.#waiting.add(read);
    this.#next();
  }

  #next(): void {
    for (const read of this.#waiting) {
      if (this.#reading >= READING_MAX) return;
      this.#waiting.delete(read);
      read();
    }
  }
}

/** Writes an answer of the fetch API. A body that fails cuts the connection. */
export async function writeAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: Response,
  { isLast, lingering, memory }: Writing,
): Promise<void> {
  // What could not be read to its end was refused already.
  if (response.headersSent || response.destroyed) {
    await answer.body?.cancel();
    return;
  }
  const headers: Record<string, string> = {};
  for (const [name, value] of answer.headers) headers[name] = value;
  const isCut = isSending(request);
  if (isLast || isCut) headers['connection'] = 'close';
  response.on('close', () => memory.release(response));
  const shared = sharedBytesOf(answer);
  if (answer.body === null || headers['content-type'] === JSON_TYPE) {
    // It is in memory anyway, and whole it needs no chunks.
    const bytes = shared ?? (answer.body === null ? undefined : await answer.bytes());
    if (bytes !== undefined) headers['content-length'] = String(bytes.byteLength);
    response.writeHead(answer.status, headers);
    const size = isShared(answer) ? 0 : (bytes?.byteLength ?? 0);
    if (bytes !== undefined && size > PART_BYTES) await writeParts(response, bytes, memory);
    else if (isCut && bytes !== undefined) lingering.end(request, response, bytes);
    else response.end(bytes);
    memory.hold(response, size);
    return;
  }
  response.writeHead(answer.status, headers);
  await writeStream(response, answer.body, { isBody: answer.headers.has(LENGTH), memory });
}

/** What writing an answer needs. */
interface Writing {
  /** The connection is closed behind it. */
  readonly isLast: boolean;
  readonly lingering: Lingering;
  readonly memory: AnswerMemory;
}

const LENGTH = 'content-length';
/** Larger answers are written in parts of this size, so that it is seen whether they are read. */
const PART_BYTES = 65_536;
/** Of a stream: the part on its way, and those that were read ahead of it. */
const PARTS_IN_MEMORY = 4;

async function writeParts(
  response: ServerResponse,
  bytes: Uint8Array,
  memory: AnswerMemory,
): Promise<void> {
  // Most of what made them is garbage by now.
  countUnreleasedBytes(2 * bytes.byteLength);
  for (let at = 0; at < bytes.byteLength && !response.destroyed; at += PART_BYTES) {
    // All of it stays in memory until the last part is taken.
    memory.hold(response, bytes.byteLength);
    if (!response.write(bytes.subarray(at, at + PART_BYTES))) await drained(response);
  }
  response.end();
}

async function writeStream(
  response: ServerResponse,
  body: ReadableStream<Uint8Array>,
  { isBody, memory }: { readonly isBody: boolean; readonly memory: AnswerMemory },
): Promise<void> {
  const reader = body.getReader();
  response.on('close', () => void reader.cancel().catch(() => undefined));
  response.flushHeaders();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (response.destroyed) return;
      countUnreleasedBytes(value.byteLength);
      // n.b. A listener to events has none in memory while none happens.
      const isTaken = response.write(value);
      if (isBody || !isTaken) memory.hold(response, value.byteLength * PARTS_IN_MEMORY);
      if (!isTaken) await drained(response);
      if (isBody) memory.taken(response);
      else if (!isTaken) memory.release(response);
    }
    response.end();
  } catch {
    // The status is out already: only a cut connection can tell the caller that this was no end.
    response.destroy();
  }
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
  });
}
