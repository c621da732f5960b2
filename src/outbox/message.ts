/**
 * message — from the arguments of an emit to an entry, checked before anything is written.
 *
 * Everything the relay needs is in the entry: it may run in another process. Bodies always ride
 * with their entry, in the same transaction. So does what carries the span of an emit: the trace
 * of an emit that is rolled back ends with the emit.
 */

import { DURATION_MAX_MS, durationMs, type Millis } from '../core/duration.ts';
import type { Entry, Headers } from '../core/entry.ts';
import { assert, RespoolError, show } from '../core/errors.ts';
import {
  checkFields,
  checkHeaders,
  checkKey,
  checkTopic,
  HEADERS_MAX,
  HEADERS_MAX_BYTES,
} from '../core/limits.ts';
import { initialStatus } from '../core/next-status.ts';
import { carrying } from '../engine/tracing.ts';
import type { BodyStore, StoredBody } from '../ports/body-store.ts';
import type { Duplicate } from '../ports/entry-store.ts';
import type { SendSpan, Tracer } from '../ports/tracer.ts';
import { type ContentCodec, encodersOf } from '../rabbit/publish/codecs.ts';
import { badKeyList } from '../rabbit/publish/message.ts';
import { keepBody, type OwnBody, ownBody } from '../spool/body.ts';
import { Chain } from '../spool/chain.ts';
import { checkMessage, type MessageOptions, withBody } from '../spool/message.ts';
import { beginSend, beginSends, type TracedMessage, type TracedSends } from '../spool/tracing.ts';
import { TRACKING_HEADER, trackingHeader } from './tracking.ts';
import type { EmitMessage, EmitOptions, EmitResult } from './types.ts';

// The store of bodies of a spool over an outbox: there are none beside the entries.

/** Holds nothing, and takes nothing. */
export function noBodies(): BodyStore {
  return {
    name: 'none',
    // Promises no less than the entries do.
    traits: { durability: 'node-loss' },
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    put: () =>
      Promise.reject(
        new RespoolError(
          'limit.exceeded',
          'cannot keep a body beside its entry in an outbox: it has to ride with it; keep large ' +
            'bodies elsewhere and send where they are',
        ),
      ),
    get: (ref) => missing(ref),
    remove: () => Promise.resolve(),
    refs: () => nothing(),
  };
}

// oxlint-disable-next-line require-yield -- it throws before there is anything to yield.
async function* missing(ref: string): AsyncGenerator<Uint8Array> {
  throw new RespoolError('body.missing', `there is no body "${ref}": an outbox keeps none`);
}

async function* nothing(): AsyncGenerator<StoredBody> {
  // Nothing is ever here.
}

/** What all messages of one outbox go by. */
export interface EmitSettings {
  readonly expiresMs: number | undefined;
  readonly maxBytes: number;
  readonly policies: ReadonlySet<string>;
  readonly encoders: readonly ContentCodec[];
  readonly makeId: (now: Millis) => string;
}

/** A message that the caller can no longer change. */
export interface OwnMessage {
  readonly message: EmitMessage;
  readonly bytes: Uint8Array;
  readonly headers: Headers;
  readonly tracking: (id: string) => string;
  /** What carries its trace, where it fits. */
  readonly trace?: Headers;
}

const NAMES = [
  'routingKey',
  'body',
  'headers',
  'eta',
  'expires',
  'key',
  'policy',
  'dedupeKey',
  'id',
] as const satisfies readonly (keyof EmitMessage)[];

const OPTION_NAMES: readonly string[] = NAMES.filter(
  (name) => name !== 'routingKey' && name !== 'body',
);

const CONTENT_TYPE = 'content-type';
/** A short string of AMQP. */
const CONTENT_TYPE_MAX_BYTES = 255;
/** A number before this is hardly a time, in 1973: it is meant as a span. */
const ETA_MIN: Millis = 100_000_000_000;

/** Makes entries of messages. */
export class Messages {
  readonly #settings: EmitSettings;
  readonly #encode: ReturnType<typeof encodersOf>;
  readonly #own: ReadonlySet<string>;

  constructor(settings: EmitSettings) {
    this.#settings = settings;
    this.#encode = encodersOf(settings.encoders);
    this.#own = new Set(settings.encoders.map(({ contentType }) => essence(contentType)));
  }

  /** Takes over what the caller gave. Called before anything is awaited: buffers are used again. */
  own(emitMessage: EmitMessage): OwnMessage {
    if (typeof emitMessage !== 'object' || emitMessage === null) {
      throw new RespoolError(
        'message.invalid',
        `cannot emit ${show(emitMessage)}: a message is an object with routingKey and body`,
      );
    }
    checkFields(emitMessage, NAMES);
    const { body, ...message } = emitMessage;
    checkTopic(emitMessage.routingKey, 'routing key');
    if (emitMessage.expires !== undefined) durationMs(emitMessage.expires, 'expires', { minMs: 1 });
    const headers = lowered(checkHeaders(emitMessage.headers, HEADERS_MAX_BYTES));
    const { bytes, contentType } = this.#bytesOf(body, headers[CONTENT_TYPE]);
    const { maxBytes, policies } = this.#settings;
    if (bytes.byteLength > maxBytes)
      throw tooLarge(emitMessage.routingKey, bytes.byteLength, maxBytes);
    const { policy } = message;
    if (policy !== undefined && !policies.has(policy)) throw unknownPolicy(policy, policies);
    const typed = contentType === undefined ? headers : { ...headers, [CONTENT_TYPE]: contentType };
    // The scope is that of the call: by the time an id is made, we may be in another.
    const chain = headers[TRACKING_HEADER];
    const tracking = chain === undefined ? trackingHeader() : () => chain;
    refuseHeaders(headers, typed);
    return { message, bytes, headers: typed, tracking };
  }

  /** The entry of a message that is emitted now. */
  entry({ message, bytes, headers, tracking, trace }: OwnMessage, now: Millis): Entry {
    const { routingKey, eta, key, id: ownId, policy, dedupeKey } = message;
    const id = ownId ?? this.#settings.makeId(now);
    const expires = message.expires ?? this.#settings.expiresMs;
    const tracked = { ...headers, [TRACKING_HEADER]: tracking(id) };
    const options: MessageOptions = {
      topic: routingKey,
      headers: trace === undefined ? tracked : carrying(tracked, trace, HEADERS_MAX_BYTES),
      ...(ownId === undefined ? {} : { id: ownId }),
      ...(policy === undefined ? {} : { policy }),
      ...(dedupeKey === undefined ? {} : { dedupeKey }),
      ...(expires === undefined ? {} : { expires }),
      ...(eta === undefined ? {} : { dueAt: etaOf(eta, now) }),
    };
    const context = { now, headerMaxBytes: HEADERS_MAX_BYTES, makeId: () => id };
    const checked = checkMessage(options, context);
    refuseLateEta(checked.envelope.expiresAt, options.dueAt, routingKey);
    const order = key === undefined ? {} : { orderKey: checkKey('key', key) };
    // Its due time is overwritten by the first claim; the relay goes by this.
    const late = checked.dueAt > now ? { eta: checked.dueAt } : {};
    const body = keepInline(bytes, id);
    return {
      envelope: withBody({ ...checked.envelope, ...late, ...order }, body.info),
      status: initialStatus({ now, dueAt: checked.dueAt, policy: checked.policy }),
      inlineBody: bytes,
    };
  }

  /** Bytes and what they are; a text stays as it is, unless an encoder of the user's takes it. */
  #bytesOf(
    body: unknown,
    contentType: string | undefined,
  ): { readonly bytes: Uint8Array; readonly contentType: string | undefined } {
    const isBytes = ArrayBuffer.isView(body) || body instanceof ArrayBuffer;
    const isRaw = body === undefined || isBytes;
    const isEncoded = !isRaw && contentType !== undefined && this.#isEncoded(contentType, body);
    // Encoders may give back what they were given; and what says nothing is refused.
    const own = taken(isEncoded ? this.#encode(contentType, body) : body);
    if ('stream' in own) throw streamed();
    return { bytes: own.bytes, contentType: contentType ?? typeOf(body, isBytes) };
  }

  #isEncoded(contentType: string, body: unknown): boolean {
    const name = essence(contentType);
    if (this.#own.has(name)) return true;
    const isJson = name === 'application/json' || name.endsWith('+json');
    return typeof body !== 'string' && !isJson;
  }
}

/** Refuses what is no option of an emit, such as a routing key that is said twice. */
export function checkEmitOptions(options: unknown): EmitOptions {
  const isObject = typeof options === 'object' && options !== null && !Array.isArray(options);
  if (!isObject) {
    throw new RespoolError(
      'message.invalid',
      `cannot emit with options ${show(options)}: allowed is { ${OPTION_NAMES.join(', ')} }`,
    );
  }
  checkFields(options, OPTION_NAMES);
  return options;
}

/** What became of an entry, as the caller is told. */
export function emittedOf(
  { envelope }: Entry,
  result: 'stored' | Duplicate | undefined,
): EmitResult {
  return typeof result === 'object'
    ? { id: result.duplicateOf, duplicate: true }
    : { id: envelope.id, duplicate: false };
}

function typeOf(body: unknown, isBytes: boolean): string | undefined {
  if (body === undefined) return undefined;
  if (typeof body === 'string') return 'text/plain; charset=utf-8';
  return isBytes ? 'application/octet-stream' : 'application/json';
}

/** Names of headers have no case elsewhere; this one is looked for by everybody. */
function lowered(headers: Headers): Headers {
  const name = Object.keys(headers).find((value) => value.toLowerCase() === CONTENT_TYPE);
  if (name === undefined || name === CONTENT_TYPE) return headers;
  const { [name]: contentType = '', ...rest } = headers;
  return { ...rest, [CONTENT_TYPE]: contentType };
}

/** Refuses what the broker would refuse, while the caller can still be told. */
function refuseHeaders(headers: Headers, typed: Headers): void {
  const all = new Set([...Object.keys(typed), TRACKING_HEADER]).size;
  const count = Object.keys(headers).length;
  if (all > HEADERS_MAX) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot emit with ${count} headers: allowed are ${HEADERS_MAX - (all - count)}; with those ` +
        `an outbox adds, a message has up to ${HEADERS_MAX}`,
    );
  }
  const bytes = Buffer.byteLength(headers[CONTENT_TYPE] ?? '');
  if (bytes > CONTENT_TYPE_MAX_BYTES) {
    throw new RespoolError(
      'message.invalid',
      `cannot emit with a "${CONTENT_TYPE}" of ${bytes} bytes: allowed are ` +
        `${CONTENT_TYPE_MAX_BYTES}`,
    );
  }
  const badList = badKeyList(headers);
  if (badList === undefined) return;
  throw new RespoolError(
    'message.invalid',
    `${badList}, and headers of an outbox are texts; emit once for each routing key`,
  );
}

function essence(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

const PLAIN = new Chain([]);

function keepInline(bytes: Uint8Array, id: string): Awaited<ReturnType<typeof keepBody>> {
  const limit = bytes.byteLength;
  const kept = keepBody({ bytes }, id, {
    bodies: noBodies(),
    chain: PLAIN,
    inlineMaxBytes: limit,
    encodedInlineMaxBytes: limit,
    bodyMaxBytes: limit,
    newRef: () => id,
  });
  assert(!(kept instanceof Promise), 'a body without transforms is kept at once');
  return kept;
}

function etaOf(eta: NonNullable<EmitMessage['eta']>, now: Millis): Millis {
  if (typeof eta === 'string') return now + durationMs(eta, 'eta');
  const at = eta instanceof Date ? eta.getTime() : eta;
  if (Number.isSafeInteger(at) && at >= ETA_MIN && at <= now + DURATION_MAX_MS) return at;
  throw new RespoolError(
    'message.invalid',
    `cannot use ${show(eta)} as eta: allowed is a Date, milliseconds since 1970 up to 100 years ` +
      "from now, or a text like '5m' for so much later",
  );
}

/** It would be given up before it may be sent. */
function refuseLateEta(
  expiresAt: Millis | undefined,
  dueAt: Millis | Date | undefined,
  routingKey: string,
): void {
  if (expiresAt === undefined || dueAt === undefined || Number(dueAt) < expiresAt) return;
  throw new RespoolError(
    'message.invalid',
    `cannot emit "${routingKey}": it expires before its eta; give a longer "expires"`,
  );
}

function tooLarge(routingKey: string, bytes: number, maxBytes: number): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot emit ${show(routingKey)}: its body has ${bytes} bytes, allowed are ${maxBytes} ` +
      '("maxBytes" of the outbox); keep large bodies elsewhere and emit where they are',
  );
}

function unknownPolicy(policy: unknown, names: ReadonlySet<string>): RespoolError {
  return new RespoolError(
    'policy.unknown',
    `cannot emit with policy ${show(policy)}: known are ${[...names].join(', ')}; ` +
      'name it in "policies" of the outbox',
  );
}

function taken(body: unknown): OwnBody {
  try {
    return ownBody(body);
  } catch (cause) {
    throw new RespoolError(
      'message.invalid',
      'cannot emit this value as body: allowed is text, bytes or a JSON value; a promise has to ' +
        'be awaited first',
      { cause },
    );
  }
}

function streamed(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot emit a stream: a transaction does not wait for one; give text, bytes or a JSON value',
  );
}

/** Emits on their way, with what carries their traces. */
export interface TracedEmits {
  readonly own: readonly OwnMessage[];
  end(emitted: readonly EmitResult[]): void;
  fail(error: unknown): void;
}

/** The span of one emit; undefined: tracing is off. */
export function traceEmit(tracer: Tracer | undefined, own: OwnMessage): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const span = beginSend(tracer, sendableOf(own));
  return span === undefined ? undefined : traced([own], alone(span));
}

/** The spans of many emits in one call; undefined: tracing is off. */
export function traceEmits(
  tracer: Tracer | undefined,
  own: readonly OwnMessage[],
): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const sends = beginSends(tracer, own.map(sendableOf));
  return sends === undefined ? undefined : traced(own, sends);
}

function traced(own: readonly OwnMessage[], sends: TracedSends): TracedEmits {
  return {
    own: own.map((message, at) => ({ ...message, trace: sends.headers(at) })),
    end: (emitted) => sends.end(emitted),
    fail: (error) => sends.fail(error),
  };
}

function alone(span: SendSpan): TracedSends {
  return {
    headers: () => span.headers,
    end: ([emitted = {}]) => span.end(emitted),
    fail: (error) => span.end({ error }),
  };
}

function sendableOf({ message, headers }: OwnMessage): TracedMessage {
  return { topic: message.routingKey, id: message.id, headers };
}
