/**
 * client — an operator over HTTP, for commands and programs that talk to a running service: the
 * same interface as the one over a spool. From top to bottom: reading and actions, bulk actions,
 * the check, events, sending messages, dead letters, records, rekeying.
 *
 * Answers are not checked field by field: http.ts checks that they come from a service with the
 * same version of the API. Promise: an error of an action that takes several requests says how much
 * had been done by then. Called by cli/session.ts, and by users.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { ERROR_CODES, isRespoolError, RespoolError, show } from '../../core/errors.ts';
import { LISTENER_KINDS } from '../../core/event.ts';
import {
  checkHeaders,
  checkKey,
  checkRecordKind,
  checkTopicPattern,
  ID_PATTERN,
} from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { KeptCopy } from '../../ports/dead-letters.ts';
import type { KeyHead, TallyRow } from '../../ports/entry-store.ts';
import type { KeyedRecord, LogRecord, RecordStore } from '../../ports/record-store.ts';
import type { ActionResult, AuditRecord } from '../../spool/actions.ts';
import { encodedParts, ownBody } from '../../spool/body.ts';
import type { CleanupResult } from '../../spool/caretaker.ts';
import type { CheckProgress, CheckReport } from '../../spool/check.ts';
import type { EnqueueResult } from '../../spool/enqueue.ts';
import { type ListFilter, listAll, type PageOptions } from '../../spool/list.ts';
import type { Message } from '../../spool/message.ts';
import { addProgress, bulkActions, NO_PROGRESS } from '../../spool/operator/bulk-actions.ts';
import type {
  Bulk,
  BulkAction,
  BulkProgress,
  MessagePage,
  MessageView,
  NamedPolicy,
  Operator,
  SerializedEvent,
  Shape,
  Stats,
} from '../../spool/operator/operator.ts';
import type { Pause } from '../../spool/pauses.ts';
import type { RekeyProgress } from '../../spool/rekey.ts';
import type { ReplayOrder } from '../../spool/replay.ts';
import { queryOfFilter } from '../filter-query.ts';
import type { RekeyState } from '../routes/bulk.ts';
import { headerOfText } from '../http-values.ts';
import { type ClientOptions, ServiceClient } from './http.ts';

export type { ClientOptions } from './http.ts';

/** An operator over a running service. Connects at the first request. */
export function connectOperator(options: ClientOptions): Operator {
  const client = new ServiceClient(options);
  const { by = 'local' } = options;
  return { by, ...reads(client), ...actions(client), ...deadLetters(client) };
}

type Reads = Pick<
  Operator,
  | 'audit'
  | 'body'
  | 'count'
  | 'events'
  | 'get'
  | 'keyHeads'
  | 'list'
  | 'page'
  | 'pauses'
  | 'policies'
  | 'shape'
  | 'stats'
  | 'tally'
>;

function reads(client: ServiceClient): Reads {
  return {
    get: async (id) => {
      try {
        return messageOf(await client.ask<MessageView>(`/v1/messages/${pathSegment(id)}`));
      } catch (error) {
        if (isRespoolError(error, 'message.unknown')) return undefined;
        throw error;
      }
    },
    body: async (id) => {
      const accept = 'application/octet-stream';
      return client.parts(await client.send(`/v1/messages/${pathSegment(id)}/body`, { accept }));
    },
    page: (options) => askPage(client, options),
    list: (options = {}) => listAll((page) => askPage(client, page), options),
    count: async () => {
      const { states } = await client.ask<Stats>('/v1/stats');
      return Object.fromEntries(STATES.map((state) => [state, states[state].count])) as Awaited<
        ReturnType<Operator['count']>
      >;
    },
    tally: async (what, filter = {}) => {
      const query = queryOfFilter(filter);
      if (query === undefined) return [];
      query.set('by', what);
      return (await client.ask<{ rows: TallyRow[] }>('/v1/tally', { query })).rows;
    },
    keyHeads: async (max) => {
      const query = new URLSearchParams(max === undefined ? {} : { max: String(max) });
      return (await client.ask<{ heads: KeyHead[] }>('/v1/order-keys', { query })).heads;
    },
    policies: async () => (await client.ask<{ policies: NamedPolicy[] }>('/v1/policies')).policies,
    pauses: async () => (await client.ask<{ pauses: Pause[] }>('/v1/pauses')).pauses,
    audit: async (after = 0, max = 100) => {
      const query = new URLSearchParams({ after: String(after), max: String(max) });
      return (await client.ask<{ records: Recorded[] }>('/v1/audit', { query })).records;
    },
    stats: () => client.ask<Stats>('/v1/stats'),
    shape: async ({ by: what = 'topic', filter = {} } = {}) => {
      const query = queryOfFilter(filter);
      const asked = query ?? new URLSearchParams();
      asked.set('by', what);
      const shape = await client.ask<Shape>('/v1/shape', { query: asked });
      // A query cannot say "none of them": its time and bounds are those of the service.
      return query === undefined ? emptied(shape) : shape;
    },
    events: (options) => eventsOf(client, options),
  };
}

function emptied(shape: Shape): Shape {
  const { key, counts } = shape.total;
  return { ...shape, rows: [], total: { key, total: 0, counts: counts.map(() => 0) } };
}

type Recorded = AuditRecord & { readonly sequence: number };

type PageAnswer = Omit<MessagePage, 'entries'> & { readonly messages: readonly MessageView[] };

async function askPage(client: ServiceClient, options: PageOptions = {}): Promise<MessagePage> {
  const query = queryOfFilter(options);
  if (query === undefined) return { entries: [], corrupt: [] };
  const { messages, corrupt, next } = await client.ask<PageAnswer>('/v1/messages', { query });
  return { entries: messages.map(messageOf), corrupt, ...(next === undefined ? {} : { next }) };
}

/** The message without its id, which the answer repeats. */
function messageOf({ envelope, status, unhandled }: MessageView): MessageView {
  return { envelope, status, ...(unhandled === undefined ? {} : { unhandled }) };
}

function actions(
  client: ServiceClient,
): Omit<Operator, 'by' | keyof Reads | keyof ReturnType<typeof deadLetters>> {
  return {
    enqueue: (message) => sendMessage(client, message),
    enqueueMany: (messages): Promise<EnqueueResult[]> => sendMany(client, messages),
    ...bulkActions({
      onIds: (ids, action) => byIds(client, ids, { path: '/v1/bulk', json: { action } }),
      prepare: (action, filter) => prepare(client, action, filter),
    }),
    move: async (id, json) => {
      await client.ask(`/v1/messages/${pathSegment(id)}/move`, { method: 'POST', json });
    },
    setHeaders: async (id, headers, { revision } = {}) => {
      const asking = { method: 'POST', json: { headers, revision } } as const;
      const path = `/v1/messages/${pathSegment(id)}/headers`;
      return (await client.ask<GuardedWrite>(path, asking)).result;
    },
    cleanUp: () => client.ask<CleanupResult>('/v1/cleanup', { method: 'POST', json: {} }),
    pause: async (pattern) => {
      const topic = checkTopicPattern(pattern);
      await client.ask('/v1/pause', { method: 'POST', json: { topic } });
    },
    resume: async (pattern) => {
      const topic = checkTopicPattern(pattern);
      await client.ask('/v1/resume', { method: 'POST', json: { topic } });
    },
    check: (options) => askCheck(client, options),
    rekey: createRekey(client),
  };
}

interface DryRun {
  readonly count: number;
  readonly confirm: string;
  /** As it stood at the count. */
  readonly filter: ListFilter;
}

async function prepare(
  client: ServiceClient,
  action: BulkAction,
  filter: ListFilter,
): Promise<Bulk> {
  // In the library no filter means all messages; over HTTP that must be explicit.
  const json = { action, filter, all: true };
  // Steps send `filter` as well, not `fixed`: the confirmation is for what was asked
  // (routes/confirmations.ts).
  const dry = await client.ask<DryRun>('/v1/bulk', { method: 'POST', json });
  const { count, confirm, filter: fixed } = dry;
  return {
    count,
    filter: fixed,
    async *run({ signal } = {}) {
      let progress = NO_PROGRESS;
      let after: string | undefined;
      do {
        signal?.throwIfAborted();
        const step = { method: 'POST', json: { ...json, confirm, after } } as const;
        const { seen } = progress;
        const asking = client.ask<BulkProgress & { next?: string }>('/v1/bulk', step);
        const { next, ...more } = await asking.catch((error: unknown) => {
          throw withDone(error, seen, `of ${count} messages were gone through before`);
        });
        progress = addProgress(progress, more);
        after = next;
        yield progress;
      } while (after !== undefined);
    },
  };
}

/** An id in a path. What cannot be an id is not asked for: there is no message under it. */
function pathSegment(id: string): string {
  if (ID_PATTERN.test(id)) return id;
  throw new RespoolError('message.unknown', `there is no message ${show(id)}`);
}

// A check: one request for its report, and one every second for its progress.

type CheckOptions = NonNullable<Parameters<Operator['check']>[0]>;

/** Runs a check in the service, and reports its progress. */
async function askCheck(
  client: ServiceClient,
  { repair = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  const over = new AbortController();
  const report = client.ask<CheckReport>('/v1/check', { method: 'POST', json: { repair } });
  // Progress is optional: the report comes without it.
  if (onProgress !== undefined) void follow(client, onProgress, over.signal).catch(() => undefined);
  return report.finally(() => over.abort());
}

async function follow(
  client: ServiceClient,
  onProgress: NonNullable<CheckOptions['onProgress']>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    // Tests of the check advance by it.
    await client.wait(SECOND_MS, signal);
    const { running } = await client.ask<{ running: readonly CheckProgress[] }>('/v1/check', {
      signal,
    });
    // Of several, the latest is most likely ours.
    const own = running.at(-1);
    if (own !== undefined && !signal.aborted) onProgress(own);
  }
}

// Events, for as long as they are read.

const DATA = 'data: ';
/** A newer service may have more kinds: those are left out. */
const KNOWN_KINDS: ReadonlySet<string> = new Set([...LISTENER_KINDS, 'missed']);
/**
 * Silence of an event stream after which `/healthz` is asked; a service sends a heartbeat every
 * 15 s (HEARTBEAT_MS of web/routes/events.ts).
 */
const QUIET_MS: number = 30 * SECOND_MS;
/** Longest line of an event; the longest events have the ids of one action. */
const LINE_MAX_CHARS = 16_777_216;

/** Events until the signal fires. A stream that ends by itself is an error. */
async function* eventsOf(
  client: ServiceClient,
  { signal, kinds }: Parameters<Operator['events']>[0],
): AsyncGenerator<SerializedEvent> {
  const query = new URLSearchParams(kinds === undefined ? {} : { kinds: kinds.join(',') });
  try {
    const answer = await client.send('/v1/events', {
      query,
      signal,
      accept: 'text/event-stream',
    });
    for await (const line of linesOf(client, client.parts(answer, QUIET_MS))) {
      if (!line.startsWith(DATA)) continue;
      const event = eventOf(client, line.slice(DATA.length));
      if (KNOWN_KINDS.has(event.kind)) yield event;
    }
  } catch (error) {
    // The caller that fired the signal expects the end.
    if (signal.aborted) return;
    throw error;
  }
  if (!signal.aborted) {
    throw client.gone('ended the events: it stopped, or the connection broke');
  }
}

async function* linesOf(
  client: ServiceClient,
  parts: AsyncIterable<Uint8Array>,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of parts) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_MAX_CHARS) throw client.strange('an event without an end');
    yield* lines;
  }
}

function eventOf(client: ServiceClient, data: string): SerializedEvent {
  try {
    return JSON.parse(data) as SerializedEvent;
  } catch {
    throw client.strange('an event is no JSON');
  }
}

// Messages: small ones as JSON, which keeps every header as it is written; streams and large
// bodies as raw bytes.

/** Largest body of a message sent alone as JSON; a longer one is posted as raw bytes. */
const JSON_BODY_MAX_BYTES = 1_048_576;
/**
 * Messages, and bytes of their bodies, in one request. Both as web/routes/messages.ts takes them:
 * its MESSAGES_MAX, and in Base64 and with headers its JSON_MAX_BYTES.
 */
const MESSAGES_MAX = 1_000;
const MESSAGES_MAX_BYTES = 8_388_608;

/** Sends one message. */
async function sendMessage(client: ServiceClient, message: Message): Promise<EnqueueResult> {
  const body = ownBody(message.body);
  if ('bytes' in body && body.bytes.byteLength <= JSON_BODY_MAX_BYTES) {
    const json = jsonOf(message, body.bytes);
    return client.ask<EnqueueResult>('/v1/messages', { method: 'POST', json });
  }
  return client.ask<EnqueueResult>(`/v1/topics/${encodeURIComponent(message.topic)}/messages`, {
    method: 'POST',
    headers: headersOf(message),
    ...('bytes' in body ? { bytes: ownBytes(body.bytes) } : { stream: bytesOf(body.stream) }),
  });
}

/** Sends many in one write; what does not fit into one request is refused. */
async function sendMany(
  client: ServiceClient,
  messages: readonly Message[],
): Promise<EnqueueResult[]> {
  if (messages.length === 0) return [];
  let totalBytes = 0;
  const json = messages.map((message) => {
    const body = ownBody(message.body);
    if (!('bytes' in body)) throw tooMany('bodies that are streams');
    totalBytes += body.bytes.byteLength;
    return jsonOf(message, body.bytes);
  });
  if (messages.length > MESSAGES_MAX) throw tooMany(`more than ${MESSAGES_MAX} messages`);
  if (totalBytes > MESSAGES_MAX_BYTES) {
    throw tooMany(`bodies of more than ${MESSAGES_MAX_BYTES} bytes`);
  }
  return client.ask<EnqueueResult[]>('/v1/messages', { method: 'POST', json });
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

/** As OPTIONS of web/routes/post.ts reads them; each has its name here, but for `respool-by`. */
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

// Dead letters: replays, kept copies, lines of the audit record and records. Bodies are sent as
// Base64 within JSON, which bounds them.

/**
 * Largest body that is changed or kept; in Base64 below JSON_MAX_BYTES of routes/letters.ts. Also
 * in docs/reference/http-api.md.
 */
const BODY_MAX_BYTES = 12_000_000;
/** Copies (web/routes/letters.ts), and bytes of their bodies, in one request; one may be longer. */
const COPIES_MAX = 500;
const COPIES_MAX_BYTES = 4_194_304;

/** The part of an operator that is about dead letters. */
function deadLetters(
  client: ServiceClient,
): Pick<Operator, 'keep' | 'recordAction' | 'records' | 'replay' | 'tellSweep'> {
  return {
    replay: async (ids, order) =>
      byIds(client, ids, { path: '/v1/replay', json: orderJson(order) }),
    keep: (copies) => sendCopies(client, copies),
    recordAction: async (action, details) => {
      const json = { action, details };
      await client.ask('/v1/audit', { method: 'POST', json });
    },
    records: recordsOf(client),
    tellSweep: async (json) => {
      await client.ask('/v1/sweeps', { method: 'POST', json });
    },
  };
}

function orderJson({ change, ...order }: ReplayOrder): object {
  if (change === undefined) return order;
  const { body, ...rest } = change;
  if (body === undefined) return { ...order, change: rest };
  return { ...order, change: { ...rest, bodyBase64: base64Of(body) } };
}

async function sendCopies(client: ServiceClient, copies: readonly KeptCopy[]): Promise<void> {
  const all = copies.map(({ body, ...copy }) => ({ ...copy, bodyBase64: base64Of(body) }));
  let from = 0;
  while (from < all.length) {
    let end = from + 1;
    let bytes = copies[from]?.body.byteLength ?? 0;
    while (end < all.length && end - from < COPIES_MAX) {
      bytes += copies[end]?.body.byteLength ?? 0;
      if (bytes > COPIES_MAX_BYTES) break;
      end += 1;
    }
    const json = { copies: all.slice(from, end) };
    const done = from;
    const asking = client.ask('/v1/copies', { method: 'POST', json });
    await asking.catch((error: unknown) => {
      throw withDone(error, done, `of ${all.length} copies were kept before`);
    });
    from = end;
  }
}

function base64Of(body: Uint8Array): string {
  if (body.byteLength > BODY_MAX_BYTES) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot send a body of ${body.byteLength} bytes to a service in JSON: allowed are ` +
        `${BODY_MAX_BYTES}; do it at the store itself`,
    );
  }
  return Buffer.from(body).toString('base64');
}

interface LogPage {
  readonly records: readonly LogRecord[];
  readonly next?: number;
}

interface ValuePage {
  readonly values: readonly KeyedRecord[];
  readonly next?: string;
}

/** The result of a write that names the revision it expects. */
interface GuardedWrite {
  readonly result: 'done' | 'stale';
}

function recordsOf(client: ServiceClient): RecordStore {
  const values = (kind: string): string => `${pathOf(kind)}/values`;
  return {
    append: async (kind, record) => {
      const sending = { method: 'POST', json: { record } } as const;
      return (await client.ask<{ sequence: number }>(pathOf(kind), sending)).sequence;
    },
    read: (kind, after, max) => readLog(client, kind, after, max),
    trim: async (kind, upTo) => {
      const query = new URLSearchParams({ upTo: String(upTo) });
      await client.ask(pathOf(kind), { method: 'DELETE', query });
    },
    put: async (kind, key, value, revision) => {
      const sending = { method: 'POST', json: { key, value, revision } } as const;
      return (await client.ask<GuardedWrite>(values(kind), sending)).result;
    },
    get: async (kind, key) => {
      const query = new URLSearchParams({ key });
      return (await client.ask<ValuePage>(values(kind), { query })).values[0];
    },
    list: async (kind) => {
      const all: KeyedRecord[] = [];
      let after: string | undefined;
      do {
        const query = new URLSearchParams(after === undefined ? {} : { after });
        const page = await client.ask<ValuePage>(values(kind), { query });
        all.push(...page.values);
        after = page.next;
      } while (after !== undefined);
      return all;
    },
    remove: async (kind, key) => {
      const query = new URLSearchParams({ key });
      await client.ask(values(kind), { method: 'DELETE', query });
    },
  };
}

/** Up to `max` records, in as many requests as it takes. */
async function readLog(
  client: ServiceClient,
  kind: string,
  after: number,
  max: number,
): Promise<readonly LogRecord[]> {
  const all: LogRecord[] = [];
  let from: number | undefined = after;
  while (from !== undefined && all.length < max) {
    const query = new URLSearchParams({ after: String(from), max: String(max - all.length) });
    const page: LogPage = await client.ask<LogPage>(pathOf(kind), { query });
    all.push(...page.records);
    from = page.next;
  }
  return all;
}

function pathOf(kind: string): string {
  checkRecordKind(kind);
  return `/v1/records/${encodeURIComponent(kind)}`;
}

// An action on messages by their ids, in as many requests as it takes.

/**
 * Ids in one request, as in web/routes/schemas.ts, LIST_MAX of web/server/json.ts and
 * docs/reference/http-api.md.
 */
const IDS_MAX = 5_000;

/** The result of each, in their order; `json` is sent with the ids. */
async function byIds(
  client: ServiceClient,
  ids: readonly string[],
  { path, json: about }: { readonly path: string; readonly json: object },
): Promise<ActionResult[]> {
  const results = new Map<string, ActionResult>();
  const possible = ids.filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += IDS_MAX) {
    const some = possible.slice(from, from + IDS_MAX);
    const json = { ...about, ids: some };
    const asking = client.ask<{ results: ActionResult[] }>(path, { method: 'POST', json });
    const answer = await asking.catch((error: unknown) => {
      throw withDone(error, from, `of ${possible.length} messages were done before`);
    });
    for (const result of answer.results) results.set(result.id, result);
  }
  // An invalid id is no reason to refuse the others.
  return ids.map((id) => results.get(id) ?? { id, result: 'unknown' });
}

/** The same error, with what was done before it. */
function withDone(error: unknown, done: number, what: string): unknown {
  if (done === 0 || !isRespoolError(error)) return error;
  return new RespoolError(error.code, `${error.message}; ${done} ${what}`, { cause: error });
}

// A rekeying: counted, confirmed, begun, and then followed until it has ended.

type RekeyOptions = NonNullable<Parameters<Operator['rekey']>[0]>;

const REKEY_PATH = '/v1/rekey';
/** Interval at which progress is asked for; its tests advance by it. */
const REKEY_POLL_MS = 500;

type RekeyCount = Pick<DryRun, 'count' | 'confirm'>;

/** Rekeying over HTTP. The last count is confirmed, so that nothing is counted twice. */
function createRekey(client: ServiceClient): Operator['rekey'] {
  let counted: (RekeyCount & { readonly about: string }) | undefined;
  const count = async (filter: RekeyOptions['filter'] = {}): Promise<RekeyCount> => {
    const json = { filter, dryRun: true };
    const dry = await client.ask<RekeyCount>(REKEY_PATH, { method: 'POST', json });
    counted = { ...dry, about: JSON.stringify(filter) };
    return dry;
  };
  return async ({ filter = {}, dryRun = false, signal, onProgress } = {}) => {
    if (dryRun) {
      const { count: all } = await count(filter);
      return { count: all, done: 0, left: all, unreadable: 0, troubles: [] };
    }
    const isKnown = counted?.about === JSON.stringify(filter);
    const { confirm } = counted !== undefined && isKnown ? counted : await count(filter);
    // A confirmation begins once.
    counted = undefined;
    signal?.throwIfAborted();
    const sending = { method: 'POST', json: { filter, confirm } } as const;
    const begun = await client.ask<RekeyState>(REKEY_PATH, sending);
    return followRekey(client, begun, { signal, onProgress });
  };
}

interface Follow {
  readonly signal: RekeyOptions['signal'] | undefined;
  readonly onProgress: RekeyOptions['onProgress'] | undefined;
}

async function followRekey(
  client: ServiceClient,
  begun: RekeyState,
  { signal, onProgress }: Follow,
): Promise<RekeyProgress> {
  let state = begun;
  while (state.isRunning) {
    onProgress?.(state);
    // The wait ends at once when the signal fires.
    await client.wait(REKEY_POLL_MS, signal).catch(() => undefined);
    const method = signal?.aborted === true ? 'DELETE' : 'GET';
    state = await client.ask<RekeyState>(REKEY_PATH, { method });
  }
  const { count, done, left, unreadable, troubles, error } = state;
  const progress = { count, done, left, unreadable, troubles };
  onProgress?.(progress);
  if (error === undefined) return progress;
  signal?.throwIfAborted();
  const code = ERROR_CODES.find((item) => item === error.code);
  throw new RespoolError(code ?? 'store.unavailable', error.message);
}
