/**
 * client — an operator over HTTP: the same interface as the one over a spool, for commands
 * and programs that talk to a running service.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { ERROR_CODES, isRespoolError, RespoolError, show } from '../../core/errors.ts';
import type { Forecast } from '../../core/forecast.ts';
import { checkTopicPattern, ID_PATTERN } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { EngineLoad } from '../../engine/parts.ts';
import { addProgress, bulkActions, NO_PROGRESS } from '../../spool/operator/bulk-actions.ts';
import type {
  Bulk,
  BulkAction,
  Operator,
  Throughput,
  MessagePage,
  MessageView,
  Spread,
  StateStats,
  Stats,
} from '../../spool/operator/operator.ts';
import type { KeyHead } from '../../ports/entry-store.ts';
import type { Enqueued } from '../../spool/enqueue.ts';
import type { CheckReport } from '../../spool/check.ts';
import { type ListFilter, listAll, type PageOptions } from '../../spool/list.ts';
import type { RekeyProgress, RekeyTrouble } from '../../spool/rekey.ts';
import { queryOfFilter } from '../filter-query.ts';
import * as forms from './answers.ts';
import {
  fields,
  flagForm,
  type AnswerForm,
  idForm,
  listForm,
  numberForm,
  optional,
  orNull,
  pauseForm,
  stateForm,
  textForm,
  yesForm,
} from './answers.ts';
import { eventsOf } from './events.ts';
import { type ClientOptions, ServiceClient } from './http.ts';
import { byIds, letters, inParts } from './letters.ts';
import { sendMany, sendMessage } from './post.ts';

export type { ClientOptions } from './http.ts';

/** An operator over a running service. Connects at the first request. */
export function connectOperator(options: ClientOptions): Operator {
  const client = new ServiceClient(options);
  const { by = 'local' } = options;
  return { by, ...looks(client), ...steers(client), ...letters(client) };
}

type Looks = Pick<
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

function looks(client: ServiceClient): Looks {
  return {
    get: async (id) => {
      try {
        return messageOf(await client.ask(`/v1/messages/${part(id)}`, forms.viewForm));
      } catch (error) {
        if (isRespoolError(error, 'message.unknown')) return undefined;
        throw error;
      }
    },
    body: async (id) => {
      const accept = 'application/octet-stream';
      return client.parts(await client.send(`/v1/messages/${part(id)}/body`, { accept }));
    },
    page: (options) => askPage(client, options),
    list: (options = {}) => listAll((page) => askPage(client, page), options),
    count: async () => {
      const { states } = await client.ask('/v1/stats', stats);
      return Object.fromEntries(STATES.map((state) => [state, states[state].count])) as Awaited<
        ReturnType<Operator['count']>
      >;
    },
    tally: async (what, filter = {}) => {
      const query = queryOfFilter(filter);
      if (query === undefined) return [];
      query.set('by', what);
      return (await client.ask('/v1/tally', forms.tallyForm, { query })).rows;
    },
    keyHeads: (max) => askHeads(client, max),
    policies: async () => (await client.ask('/v1/policies', forms.policiesForm)).policies,
    pauses: async () => (await client.ask('/v1/pauses', forms.pausesForm)).pauses,
    audit: async (after = 0, max = 100) => {
      const query = new URLSearchParams({ after: String(after), max: String(max) });
      return (await client.ask('/v1/audit', forms.auditForm, { query })).records;
    },
    stats: () => client.ask('/v1/stats', stats),
    shape: ({ by: what = 'topic', filter = {} } = {}) => {
      const query = queryOfFilter(filter) ?? new URLSearchParams();
      query.set('by', what);
      return client.ask('/v1/shape', forms.shapeForm, { query });
    },
    events: (options) => eventsOf(client, options),
  };
}

async function askPage(client: ServiceClient, options: PageOptions = {}): Promise<MessagePage> {
  const query = queryOfFilter(options);
  if (query === undefined) return { entries: [], corrupt: [] };
  const { messages, corrupt, next } = await client.ask('/v1/messages', forms.pageForm, { query });
  return { entries: messages.map(messageOf), corrupt, ...(next === undefined ? {} : { next }) };
}

/** Only what is known of a message here: a later service may say more. */
function messageOf({ envelope, status, unhandled }: MessageView): MessageView {
  return { envelope, status, ...(unhandled === undefined ? {} : { unhandled }) };
}

function steers(
  client: ServiceClient,
): Omit<Operator, 'by' | keyof Looks | keyof ReturnType<typeof letters>> {
  return {
    enqueue: (message) => sendMessage(client, message),
    enqueueMany: (messages): Promise<Enqueued[]> => sendMany(client, messages),
    ...bulkActions({
      onIds: (ids, action) => byIds(client, ids, { path: '/v1/bulk', json: { action } }),
      prepare: (action, filter) => prepare(client, action, filter),
    }),
    move: async (id, json) => {
      await client.ask(`/v1/messages/${part(id)}/move`, forms.okForm, { method: 'POST', json });
    },
    setHeaders: async (id, headers, { revision } = {}) => {
      const asking = { method: 'POST', json: { headers, revision } } as const;
      const path = `/v1/messages/${part(id)}/headers`;
      return (await client.ask(path, forms.doneOrStaleForm, asking)).result;
    },
    sweep: () => client.ask('/v1/sweep', forms.cleanupForm, { method: 'POST', json: {} }),
    pause: async (given) => {
      const topic = checkTopicPattern(given);
      await client.ask('/v1/pause', forms.okForm, { method: 'POST', json: { topic } });
    },
    resume: async (given) => {
      const topic = checkTopicPattern(given);
      await client.ask('/v1/resume', forms.okForm, { method: 'POST', json: { topic } });
    },
    check: (options) => askCheck(client, options),
    rekey: createRekey(client),
  };
}

async function prepare(
  client: ServiceClient,
  action: BulkAction,
  filter: ListFilter,
): Promise<Bulk> {
  // In the library no filter means all messages; over HTTP that must be explicit.
  const json = { action, filter, all: true };
  const dry = await client.ask('/v1/bulk', forms.dryRunForm, { method: 'POST', json });
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
        const asking = client.ask('/v1/bulk', forms.progressForm, step);
        const { next, ...more } = await asking.catch((error: unknown) => {
          throw inParts(error, seen, `of ${count} messages were gone through before`);
        });
        progress = addProgress(progress, more);
        after = next;
        yield progress;
      } while (after !== undefined);
    },
  };
}

/** A part of a path. What cannot be an id is not asked for: there is no message under it. */
function part(id: string): string {
  if (ID_PATTERN.test(id)) return id;
  throw new RespoolError('message.unknown', `there is no message ${show(id)}`);
}

// A check through a service: one request for the report, and a look every second at
// how far it is for the caller that wants to know.

type CheckOptions = NonNullable<Parameters<Operator['check']>[0]>;

/** Asks for a check, and tells how far it is. */
async function askCheck(
  client: ServiceClient,
  { repair = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  const over = new AbortController();
  const report = client.ask('/v1/check', forms.reportForm, { method: 'POST', json: { repair } });
  // How far it is, is a comfort: where it cannot be told, the report still comes.
  if (onProgress !== undefined) void follow(client, onProgress, over.signal).catch(() => undefined);
  return report.finally(() => over.abort());
}

async function follow(
  client: ServiceClient,
  onProgress: NonNullable<CheckOptions['onProgress']>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await client.wait(SECOND_MS, signal);
    const { running } = await client.ask('/v1/check', forms.checksForm, { signal });
    // Of several the youngest is the likeliest to be ours.
    const own = running.at(-1);
    if (own !== undefined && !signal.aborted) onProgress(own);
  }
}

// The first ones of order keys, as a service tells them.

const headsForm: AnswerForm<{ heads: KeyHead[] }> = fields<{ heads: KeyHead[] }>({
  heads: listForm(
    fields<KeyHead>({
      orderKey: textForm,
      id: idForm,
      state: stateForm,
      dueAt: orNull(numberForm),
      behind: numberForm,
    }),
  ),
});

/** Asks for this many, or for as many as the service tells unasked. */
async function askHeads(
  client: ServiceClient,
  max: number | undefined,
): Promise<readonly KeyHead[]> {
  const query = new URLSearchParams(max === undefined ? {} : { max: String(max) });
  return (await client.ask('/v1/order-keys', headsForm, { query })).heads;
}

// The spool in numbers, as a service answers.

const stateStats = fields<StateStats>({
  count: numberForm,
  oldestAt: orNull(numberForm),
  approximate: optional(yesForm),
});
const spread = fields<Spread>({
  p50: numberForm,
  p95: numberForm,
  p99: numberForm,
  max: numberForm,
});
const flow = fields<Throughput>({
  windowMs: numberForm,
  accepted: numberForm,
  delivered: numberForm,
  deferred: numberForm,
  bounced: numberForm,
  held: numberForm,
  tookMs: orNull(spread),
  ageMs: orNull(spread),
});
const forecast = fields<Forecast>({
  backlog: numberForm,
  inPerSecond: numberForm,
  outPerSecond: numberForm,
  drainsInMs: orNull(numberForm),
  fullInMs: orNull(numberForm),
});
const load = fields<EngineLoad>({
  isRunning: flagForm,
  concurrency: numberForm,
  running: numberForm,
  waiting: numberForm,
  settling: numberForm,
  settled: numberForm,
});

/** The spool in numbers. */
const stats: AnswerForm<Stats> = fields<Stats>({
  at: numberForm,
  states: fields<Stats['states']>({
    incoming: stateStats,
    active: stateStats,
    deferred: stateStats,
    hold: stateStats,
    bounce: stateStats,
    archived: stateStats,
  }),
  nextDueAt: orNull(numberForm),
  paused: listForm(pauseForm),
  load: optional(load),
  flow: optional(flow),
  forecast: optional(forecast),
});

// A rekeying through a service: counted, confirmed, begun, and then looked at until
// it has ended.

type RekeyOptions = NonNullable<Parameters<Operator['rekey']>[0]>;

interface Dry {
  readonly count: number;
  readonly confirm: string;
}

interface State extends RekeyProgress {
  readonly isRunning: boolean;
  readonly error?: { readonly code: string; readonly message: string } | undefined;
}

const dryForm: AnswerForm<Dry> = fields<Dry>({ count: numberForm, confirm: textForm });
const rekeyStateForm: AnswerForm<State> = fields<State>({
  isRunning: flagForm,
  count: numberForm,
  done: numberForm,
  left: numberForm,
  unreadable: numberForm,
  troubles: listForm(fields<RekeyTrouble>({ id: textForm, code: textForm, text: textForm })),
  error: optional(fields({ code: textForm, message: textForm })),
});

const PATH = '/v1/rekey';
/** How often the service is asked how far it is. */
const LOOK_EVERY_MS = 500;

/** Rekeying over HTTP. The last count is what is confirmed: nothing is counted twice. */
function createRekey(client: ServiceClient): Operator['rekey'] {
  let counted: (Dry & { readonly about: string }) | undefined;
  const count = async (filter: RekeyOptions['filter'] = {}): Promise<Dry> => {
    const json = { filter, dryRun: true };
    const dry = await client.ask(PATH, dryForm, { method: 'POST', json });
    counted = { ...dry, about: JSON.stringify(filter) };
    return dry;
  };
  return async ({ filter = {}, dryRun = false, signal, onProgress } = {}) => {
    if (dryRun) {
      const { count: found } = await count(filter);
      return { count: found, done: 0, left: found, unreadable: 0, troubles: [] };
    }
    const isKnown = counted?.about === JSON.stringify(filter);
    const { confirm } = counted !== undefined && isKnown ? counted : await count(filter);
    // A confirmation begins once.
    counted = undefined;
    signal?.throwIfAborted();
    const sending = { method: 'POST', json: { filter, confirm } } as const;
    const begun = await client.ask(PATH, rekeyStateForm, sending);
    return followOfClientRekey(client, begun, { signal, onProgress });
  };
}

interface Follow {
  readonly signal: RekeyOptions['signal'] | undefined;
  readonly onProgress: RekeyOptions['onProgress'] | undefined;
}

async function followOfClientRekey(
  client: ServiceClient,
  begun: State,
  { signal, onProgress }: Follow,
): Promise<RekeyProgress> {
  let state = begun;
  while (state.isRunning) {
    onProgress?.(state);
    // The wait ends at once when the signal fires.
    await client.wait(LOOK_EVERY_MS, signal).catch(() => undefined);
    const method = signal?.aborted === true ? 'DELETE' : 'GET';
    state = await client.ask(PATH, rekeyStateForm, { method });
  }
  const { count, done, left, unreadable, troubles, error } = state;
  const progress = { count, done, left, unreadable, troubles };
  onProgress?.(progress);
  if (error === undefined) return progress;
  signal?.throwIfAborted();
  const code = ERROR_CODES.find((known) => known === error.code);
  throw new RespoolError(code ?? 'store.unavailable', error.message);
}
