/**
 * http — delivers a message as one HTTP request.
 *
 *   deliver() ─ choose the URL ─ sign ─ send ─ read the start of the response ─ Outcome
 *
 * Promise: 2xx is delivered, what is not positively final is tried again or held, no redirect is
 * followed, and no request goes to an address that is not public unless the options name its host.
 *
 * Also here: the headers and the signature of a request, what network errors mean, and hiding its
 * secrets where a response repeats them. What statuses mean: answer.ts; where requests may go:
 * destination.ts.
 */

import { createHmac, type Hmac } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Agent, Dispatcher } from 'undici';
import { formatDuration, SECOND_MS } from '../../core/duration.ts';
import type { Headers } from '../../core/entry.ts';
import { asError, RespoolError, show, textOf } from '../../core/errors.ts';
import { failure, type Failure } from '../../core/failure.ts';
import { hideKnownSecrets, mayBeSecretName, urlSecrets } from '../../core/redact.ts';
import { failed, held, type Outcome } from '../../core/verdict.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Delivery } from '../../ports/handler.ts';
import { systemClock } from '../../system/clock.ts';
import { TimeLimit } from '../../system/wait.ts';
import { type ReadyHandler, oneBehind, plainText } from '../ready-handler.ts';
import type { Agents } from './agent.ts';
import { type Answer, outcomeOfAnswer } from './answer.ts';
import { AddressRefused, type Resolve, whyRefused } from './destination.ts';
import { checkHttpOptions, describeHttp, type HttpOptions, type HttpSettings } from './options.ts';

/**
 * Bodies up to this are read whole, verified and sent in one go; larger ones are streamed. Also in
 * docs/how-to/deliver-over-http.md.
 */
const WHOLE_MAX_BYTES = 256 * 2 ** 10;
/**
 * Maximum length of the part of a response that is stored with the message. Also in
 * docs/how-to/deliver-over-http.md.
 */
const NOTE_RESPONSE_BYTES = 256;
/** Maximum time in which a connection that was closed while idle fails: about a round trip. */
const LOST_WITHIN_MS = 1_000;
const SECRET_MISSING =
  'cannot sign: "secret" has no value; set the variable it comes from, or omit the option to ' +
  'send unsigned requests';

/** Delivers by HTTP request. Options are checked at once, connections are opened on demand. */
export function http(options: HttpOptions): ReadyHandler {
  return makeHttp(options, {});
}

/** What tests replace. */
interface HttpInternals {
  readonly clock?: Clock;
  readonly resolve?: Resolve;
  readonly whyRefused?: (address: string) => string | undefined;
}

/** `http()`, with replaceable internals. */
export function makeHttp(options: HttpOptions, internals: HttpInternals): ReadyHandler {
  const settings = checkHttpOptions(options);
  const clock = internals.clock ?? systemClock;
  let agents: Promise<Agents> | undefined;
  const open = async (): Promise<Agents> => {
    // Loaded with the first delivery, so that importing and configuring stay cheap.
    const { makeAgents } = await import('./agent.ts');
    return makeAgents({
      connections: settings.connections,
      timeoutMs: settings.timeoutMs,
      ca: settings.ca,
      isAllowed: (hostname, port) => settings.allow.has(hostname, port),
      whyRefused: internals.whyRefused ?? whyRefused,
      resolve: internals.resolve,
    });
  };
  const deliver = async (delivery: Delivery): Promise<Outcome> => {
    if (settings.isSecretMissing) return held(SECRET_MISSING, 'http.secret');
    const url = urlOf(settings, delivery);
    if (url === undefined) return unknownDestination(delivery);
    agents ??= open().catch((error: unknown) => {
      // The next delivery tries again.
      agents = undefined;
      throw error;
    });
    return request(await agents, { delivery, url, settings, clock });
  };
  return Object.assign(deliver, {
    describe: () => describeHttp(settings),
    check: () => {
      if (settings.isSecretMissing) throw new RespoolError('config.invalid', SECRET_MISSING);
    },
    close: async () => {
      const closing = agents;
      agents = undefined;
      const open = await closing;
      await Promise.all([open?.pooled.close(), open?.fresh.close()]);
    },
  });
}

function urlOf({ url, urls }: HttpSettings, { envelope }: Delivery): URL | undefined {
  return url ?? (envelope.destination === undefined ? undefined : urls.get(envelope.destination));
}

function unknownDestination({ envelope }: Delivery): Outcome {
  const { destination } = envelope;
  const what =
    destination === undefined
      ? 'the message has no destination'
      : `there is no URL for the destination ${show(destination)}`;
  return held(`${what}; name it in the option "urls"`, 'destination.unknown');
}

/** What one request depends on. */
interface Sending {
  readonly delivery: Delivery;
  readonly url: URL;
  readonly settings: HttpSettings;
  readonly clock: Clock;
}

async function request(
  { pooled, fresh, isLostOnReuse }: Agents,
  sending: Sending,
): Promise<Outcome> {
  const { delivery, settings, clock } = sending;
  const { size } = delivery.envelope.body;
  const whole = size <= WHOLE_MAX_BYTES ? await delivery.body() : undefined;
  let headers: Record<string, string>;
  try {
    headers = requestHeaders(delivery, settings);
  } catch (error) {
    if (!(error instanceof HeaderIllegal)) throw error;
    return failed(failure('permanent', 'http.header', error.message));
  }
  Object.assign(headers, await sign(sending, whole));
  // From here on: reading our own disk for the signature does not count.
  const limit = new TimeLimit(clock, settings.timeoutMs, delivery.signal);
  let broken: { readonly error: unknown } | undefined;
  const send = async (agent: Agent): Promise<Answer> => {
    const body = whole ?? streamOf(delivery, (error) => (broken = { error }));
    try {
      return await exchange(agent, { sending, headers, body, signal: limit.signal });
    } finally {
      if (body instanceof Readable) body.destroy();
    }
  };
  try {
    const sentAt = clock.monotonic();
    const answer = await send(pooled).catch((error: unknown) => {
      // A receiver that closed later may have processed the request.
      const isLate = clock.monotonic() - sentAt > LOST_WITHIN_MS;
      const isOver = broken !== undefined || limit.signal.aborted;
      if (isOver || isLate || !isLostOnReuse(error)) throw error;
      return send(fresh);
    });
    return outcomeOf(sending, answer);
  } catch (error) {
    // The body could not be read, which is not a failure of the receiver.
    if (broken !== undefined) throw broken.error;
    const { url } = sending;
    const hide = (text: string) => hideEchoes(text, { url, headers, keys: settings.keys });
    return outcomeOfError(error, limit, { ...sending, hide });
  } finally {
    limit.stop();
  }
}

/** The headers of a signature; none without a secret. */
async function sign(
  { delivery, settings, clock }: Sending,
  whole: Uint8Array | undefined,
): Promise<Record<string, string>> {
  if (settings.keys.length === 0) return {};
  const id = requestKey(delivery);
  const seconds = Math.floor(clock.now() / SECOND_MS);
  const signer = new Signer(settings.keys, id, seconds);
  if (whole === undefined) {
    // The signature is sent before the body, so a large body is read twice.
    for await (const part of delivery.stream()) {
      delivery.signal.throwIfAborted();
      signer.update(part);
    }
  } else signer.update(whole);
  return {
    'webhook-id': id,
    'webhook-timestamp': String(seconds),
    'webhook-signature': signer.done(),
  };
}

function streamOf(delivery: Delivery, onError: (error: unknown) => void): Readable {
  const body = Readable.from(oneBehind(delivery.stream(), onError), { objectMode: false });
  // Reported by the request; without a listener it would also end the process.
  body.on('error', () => undefined);
  return body;
}

/** Sends the request and reads the start of the response. */
async function exchange(
  agent: Agent,
  {
    sending: { url, settings },
    headers,
    body,
    signal,
  }: {
    readonly sending: Sending;
    readonly headers: Record<string, string>;
    readonly body: Uint8Array | Readable;
    readonly signal: AbortSignal;
  },
): Promise<Answer> {
  const response = await agent.request({
    origin: url.origin,
    path: `${url.pathname}${url.search}`,
    method: settings.method,
    headers,
    body,
    signal,
  });
  const retryAfter = response.headers['retry-after'];
  const start = new TextDecoder().decode(await startOf(response.body, settings.responseMaxBytes));
  return {
    status: response.statusCode,
    retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
    start: hideEchoes(start, { url, headers, keys: settings.keys }),
  };
}

/**
 * The first bytes of a response. It is read to its end so that the connection can be reused; a
 * response beyond the limit closes the connection.
 */
async function startOf(
  body: Dispatcher.ResponseData['body'],
  maxBytes: number,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let kept = 0;
  let total = 0;
  try {
    for await (const part of body as AsyncIterable<Uint8Array>) {
      if (kept < NOTE_RESPONSE_BYTES) {
        parts.push(part.subarray(0, NOTE_RESPONSE_BYTES - kept));
        kept += parts.at(-1)?.length ?? 0;
      }
      total += part.length;
      // Leaving the loop destroys the body and closes its connection.
      if (total > maxBytes) break;
    }
  } catch {
    // The status counts, even if the receiver then hangs or breaks off.
  }
  return Buffer.concat(parts);
}

function outcomeOf({ delivery, url, settings, clock }: Sending, answer: Answer): Outcome {
  delivery.note('http-status', String(answer.status));
  const start = plainText(answer.start, NOTE_RESPONSE_BYTES);
  if (start !== '') delivery.note('http-response', start);
  const { rules, retryAfterMaxMs } = settings;
  return outcomeOfAnswer(answer, { host: url.host, rules, retryAfterMaxMs, now: clock.now() });
}

function outcomeOfError(
  error: unknown,
  limit: TimeLimit,
  { url, settings, hide }: Sending & { readonly hide: (text: string) => string },
): Outcome {
  if (error instanceof AddressRefused) return held(error.message, 'http.address');
  if (limit.isOver) {
    const text = `no answer from ${url.host} within ${formatDuration(settings.timeoutMs)}`;
    return failed(failure('transient', 'http.timeout', text));
  }
  if (limit.signal.aborted) {
    const text = `the request to ${url.host} was cancelled before there was an answer`;
    return failed(failure('transient', 'http.aborted', text));
  }
  return failed(networkFailure(error, url.host, hide));
}

// A request without a response is a transient failure, unless its address was refused.

const REASON_MAX_CHARS = 200;

/** Error codes of Node, OpenSSL and undici; the first pattern that matches decides. */
const CODES: readonly (readonly [RegExp, string])[] = [
  [
    /^(?:UND_ERR_CONNECT_TIMEOUT|ETIMEDOUT|ECONNREFUSED|EHOST|ENET|EADDR|EAI_|E?NOTFOUND|ENODATA)/,
    'http.unreachable',
  ],
  [
    /^(?:ECONNRESET|ECONNABORTED|EPIPE|UND_ERR_SOCKET|UND_ERR_CLOSED|UND_ERR_DESTROYED)/,
    'http.reset',
  ],
  [/^(?:ERR_TLS|ERR_SSL|EPROTO|CERT_|UNABLE_TO_|HOSTNAME_)|SELF_SIGNED|_CERT|_CRL/, 'http.tls'],
  [/^(?:HPE_|UND_ERR_HEADERS_OVERFLOW|UND_ERR_RES)/, 'http.protocol'],
];

/** The failure for a network error; it names the host and no other part of the URL. */
function networkFailure(thrown: unknown, host: string, hide: (text: string) => string): Failure {
  const error = innermost(asError(thrown));
  const own = (error as { code?: unknown }).code;
  const text = typeof own === 'string' ? own : '';
  // n.b. In some releases of undici, errors of the parser have no code, and an unexpected response
  // such as "100 Continue" has the code of a broken socket.
  const isUnasked = text === 'UND_ERR_SOCKET' && /^bad (?:response|upgrade)$/.test(error.message);
  const isParser = text === '' && error.name === 'HTTPParserError';
  const mark = isParser || isUnasked ? 'HPE_' : text;
  const code = CODES.find(([pattern]) => pattern.test(mark))?.[1] ?? 'http.error';
  const reason = plainText(hide(textOf(error)), REASON_MAX_CHARS);
  const aside = text === '' || reason.includes(text) ? '' : ` (${text})`;
  return failure('transient', code, `no answer from ${host}: ${reason}${aside}`);
}

/** The first of the errors, if several addresses were tried. */
function innermost(error: Error): Error {
  const first: unknown = error instanceof AggregateError ? error.errors[0] : undefined;
  return first === undefined ? error : asError(first);
}

// What one request carries: its headers, its signature by Standard Webhooks, and the secrets that
// must not come back in a response.

/** A message header with control characters, which HTTP cannot carry. */
class HeaderIllegal extends Error {
  override readonly name = 'HeaderIllegal';
}

/** By which a receiver recognises a repeated request; a notice is not the delivery. */
function requestKey({ id, lane }: Delivery): string {
  return lane === 'notice' ? `${id}-notice` : id;
}

/** All headers of the request except for its signature. */
function requestHeaders(delivery: Delivery, settings: HttpSettings): Record<string, string> {
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
class Signer {
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
function hideEchoes(text: string, request: RequestSecrets): string {
  return hideKnownSecrets(text, secretsOf(request), 'end');
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
