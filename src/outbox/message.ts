/**
 * message — makes an entry from the arguments of an emit, and checks them before anything is
 * written; also the spans of emits, and the empty body store of an outbox.
 *
 * Everything that the relay needs is in the entry, because the relay may run in another process.
 * Bodies are always inline, so that they are written in the same transaction. Trace headers are
 * stored with the message: the trace of an emit that is rolled back ends with the emit.
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
import { TRACKING_HEADER } from '../core/reserved-headers.ts';
import { initialStatus } from '../core/next-status.ts';
import { withTraceHeaders } from '../engine/tracing.ts';
import type { BodyStore, StoredBody } from '../ports/body-store.ts';
import type { Duplicate } from '../ports/entry-store.ts';
import type { SendSpan, Tracer } from '../ports/tracer.ts';
import { type ContentCodec, encodersOf } from '../rabbit/publish/codecs.ts';
import { badKeyList } from '../rabbit/publish/message.ts';
import { keepBody, type OwnBody, ownBody } from '../spool/body.ts';
import { Chain } from '../spool/chain.ts';
import { checkMessage, type MessageOptions, withBody } from '../spool/message.ts';
import { beginSend, beginSends, type TracedMessage, type TracedSends } from '../spool/tracing.ts';
import { trackingHeader } from './tracking.ts';
import type { EmitMessage, EmitOptions, EmitResult } from './types.ts';

// The body store of a spool over an outbox: all bodies are inline.
/** A body store that is always empty and refuses bodies. */
export function noBodies(): BodyStore {
  return {
    name: 'none',
    // At least the durability of the entries.
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
  // It is always empty.
}

/** The settings of all messages of one outbox. */
export interface EmitSettings {
  readonly expiresMs: number | undefined;
  readonly maxBytes: number;
  readonly policies: ReadonlySet<string>;
  readonly encoders: readonly ContentCodec[];
  readonly makeId: (now: Millis) => string;
}

/** A message that the caller can no longer change. */
export interface CapturedMessage {
  readonly message: EmitMessage;
  readonly bytes: Uint8Array;
  readonly headers: Headers;
  readonly tracking: (id: string) => string;
  /** Headers with its trace context; added if they fit. */
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

/** Of the entry; rabbit/publish/sink.ts makes the property of AMQP of it. */
const CONTENT_TYPE = 'content-type';
/** A short string of AMQP. Also in docs/reference/outbox.md. */
const CONTENT_TYPE_MAX_BYTES = 255;
/** A smaller number, a time before 1973, was probably meant as a span, and is refused. */
const ETA_MIN: Millis = 100_000_000_000;

/** Makes entries of messages. */
export class Messages {
  readonly #settings: EmitSettings;
  readonly #encode: ReturnType<typeof encodersOf>;
  readonly #ownMediaTypes: ReadonlySet<string>;

  constructor(settings: EmitSettings) {
    this.#settings = settings;
    this.#encode = encodersOf(settings.encoders);
    this.#ownMediaTypes = new Set(
      settings.encoders.map(({ contentType }) => mediaTypeOf(contentType)),
    );
  }

  /** Checks and copies a message. Called before anything is awaited: callers may reuse buffers. */
  capture(emitMessage: EmitMessage): CapturedMessage {
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
    const headers = withLowerCaseContentType(checkHeaders(emitMessage.headers, HEADERS_MAX_BYTES));
    const { bytes, contentType } = this.#bytesOf(body, headers[CONTENT_TYPE]);
    const { maxBytes, policies } = this.#settings;
    if (bytes.byteLength > maxBytes)
      throw tooLargeError(emitMessage.routingKey, bytes.byteLength, maxBytes);
    const { policy } = message;
    if (policy !== undefined && !policies.has(policy)) throw unknownPolicyError(policy, policies);
    const typed = contentType === undefined ? headers : { ...headers, [CONTENT_TYPE]: contentType };
    // The tracking scope of this call: when the id is made, another scope may be active.
    const chain = headers[TRACKING_HEADER];
    const tracking = chain === undefined ? trackingHeader() : () => chain;
    refuseHeaders(headers, typed);
    return { message, bytes, headers: typed, tracking };
  }

  /** The entry of a message that is emitted now. */
  entry({ message, bytes, headers, tracking, trace }: CapturedMessage, now: Millis): Entry {
    const { routingKey, eta, key, id: ownId, policy, dedupeKey } = message;
    const id = ownId ?? this.#settings.makeId(now);
    const expires = message.expires ?? this.#settings.expiresMs;
    const tracked = { ...headers, [TRACKING_HEADER]: tracking(id) };
    const options: MessageOptions = {
      topic: routingKey,
      headers: trace === undefined ? tracked : withTraceHeaders(tracked, trace, HEADERS_MAX_BYTES),
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
    // The first claim overwrites the due time; the relay uses this one.
    const late = checked.dueAt > now ? { eta: checked.dueAt } : {};
    const body = keepInline(bytes, id);
    return {
      envelope: withBody({ ...checked.envelope, ...late, ...order }, body.info),
      status: initialStatus({ now, dueAt: checked.dueAt, policy: checked.policy }),
      inlineBody: bytes,
    };
  }

  /** The bytes and their content type; a text is not encoded unless a user's encoder takes it. */
  #bytesOf(
    body: unknown,
    contentType: string | undefined,
  ): { readonly bytes: Uint8Array; readonly contentType: string | undefined } {
    const isBytes = ArrayBuffer.isView(body) || body instanceof ArrayBuffer;
    const isRaw = body === undefined || isBytes;
    const isEncoded = !isRaw && contentType !== undefined && this.#isEncoded(contentType, body);
    // A copy: encoders may return their argument. Values that are no JSON are refused.
    const own = ownBodyOf(isEncoded ? this.#encode(contentType, body) : body);
    if ('stream' in own) throw streamError();
    return { bytes: own.bytes, contentType: contentType ?? typeOf(body, isBytes) };
  }

  #isEncoded(contentType: string, body: unknown): boolean {
    const name = mediaTypeOf(contentType);
    if (this.#ownMediaTypes.has(name)) return true;
    const isJson = name === 'application/json' || name.endsWith('+json');
    return typeof body !== 'string' && !isJson;
  }
}

/** Refuses unknown options of an emit, such as a second routing key. */
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

/** The result of an emit, from the result of the insert. */
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

/** Other systems ignore the case of header names, and read this header. */
function withLowerCaseContentType(headers: Headers): Headers {
  const name = Object.keys(headers).find((value) => value.toLowerCase() === CONTENT_TYPE);
  if (name === undefined || name === CONTENT_TYPE) return headers;
  const { [name]: contentType = '', ...rest } = headers;
  return { ...rest, [CONTENT_TYPE]: contentType };
}

/** Refuses headers that the broker would refuse, while the caller still gets the error. */
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

function mediaTypeOf(contentType: string): string {
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

/** Refuses a message that would expire before it may be sent. */
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

function tooLargeError(routingKey: string, bytes: number, maxBytes: number): RespoolError {
  return new RespoolError(
    'limit.exceeded',
    `cannot emit ${show(routingKey)}: its body has ${bytes} bytes, allowed are ${maxBytes} ` +
      '("maxBytes" of the outbox); keep large bodies elsewhere and emit where they are',
  );
}

function unknownPolicyError(policy: unknown, names: ReadonlySet<string>): RespoolError {
  return new RespoolError(
    'policy.unknown',
    `cannot emit with policy ${show(policy)}: known are ${[...names].join(', ')}; ` +
      'name it in "policies" of the outbox',
  );
}

function ownBodyOf(body: unknown): OwnBody {
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

function streamError(): RespoolError {
  return new RespoolError(
    'message.invalid',
    'cannot emit a stream: a transaction does not wait for one; give text, bytes or a JSON value',
  );
}

/** Emits inside their spans. */
export interface TracedEmits {
  readonly own: readonly CapturedMessage[];
  end(emitted: readonly EmitResult[]): void;
  fail(error: unknown): void;
}

/** The span of one emit; undefined: tracing is off. */
export function traceEmit(
  tracer: Tracer | undefined,
  own: CapturedMessage,
): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const span = beginSend(tracer, sendableOf(own));
  return span === undefined ? undefined : traced([own], singleSend(span));
}

/** The spans of many emits in one call; undefined: tracing is off. */
export function traceEmits(
  tracer: Tracer | undefined,
  own: readonly CapturedMessage[],
): TracedEmits | undefined {
  if (tracer === undefined) return undefined;
  const sends = beginSends(tracer, own.map(sendableOf));
  return sends === undefined ? undefined : traced(own, sends);
}

function traced(own: readonly CapturedMessage[], sends: TracedSends): TracedEmits {
  return {
    own: own.map((message, at) => ({ ...message, trace: sends.headers(at) })),
    end: (emitted) => sends.end(emitted),
    fail: (error) => sends.fail(error),
  };
}

function singleSend(span: SendSpan): TracedSends {
  return {
    headers: () => span.headers,
    end: ([emitted = {}]) => span.end(emitted),
    fail: (error) => span.end({ error }),
  };
}

function sendableOf({ message, headers }: CapturedMessage): TracedMessage {
  return { topic: message.routingKey, id: message.id, headers };
}
