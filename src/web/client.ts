/**
 * client — the operator's desk over HTTP: the same door as the desk beside a spool, for commands
 * and programs that talk to a running service.
 */

import type {
  Bulk,
  BulkAction,
  BulkProgress,
  Control,
  Stats,
  ToldEvent,
} from '../control/control.ts';
import type { Entry } from '../core/entry.ts';
import { isRespoolError, RespoolError, show } from '../core/errors.ts';
import { ID_PATTERN } from '../core/limits.ts';
import { STATES } from '../core/state.ts';
import type { ActionResult } from '../spool/actions.ts';
import type { Enqueued } from '../spool/accept.ts';
import type { ListFilter } from '../spool/list.ts';
import { type ClientOptions, ServiceClient } from './client-http.ts';
import { sendMany, sendMessage } from './client-post.ts';
import { queryOfFilter } from './filter-query.ts';

export type { ClientOptions } from './client-http.ts';

/** Ids in one request, at the most. */
const IDS_MAX = 5_000;

type View = Pick<Entry, 'envelope' | 'status'>;

/** The desk of a running service. Nothing is sent before something is asked. */
export function connectControl(options: ClientOptions): Control {
  const client = new ServiceClient(options);
  const { by = 'local' } = options;
  return { by, ...looks(client), ...steers(client) };
}

type Looks = Pick<
  Control,
  | 'audit'
  | 'body'
  | 'count'
  | 'events'
  | 'get'
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
        const { envelope, status } = await client.ask<View>(`/v1/messages/${part(id)}`);
        return { envelope, status };
      } catch (error) {
        if (isRespoolError(error, 'message.unknown')) return undefined;
        throw error;
      }
    },
    body: async (id) => client.parts(await client.send(`/v1/messages/${part(id)}/body`)),
    page: async (options = {}) => {
      const query = queryOfFilter(options);
      if (query === undefined) return { entries: [], corrupt: [] };
      const { messages, ...rest } = await client.ask<PageAnswer>('/v1/messages', { query });
      return { ...rest, entries: messages.map(({ envelope, status }) => ({ envelope, status })) };
    },
    count: async () => {
      const { states } = await client.ask<Stats>('/v1/stats');
      return Object.fromEntries(STATES.map((state) => [state, states[state].count])) as Awaited<
        ReturnType<Control['count']>
      >;
    },
    tally: async (what, filter = {}) => {
      const query = queryOfFilter(filter);
      if (query === undefined) return [];
      query.set('by', what);
      return (
        await client.ask<{ rows: Awaited<ReturnType<Control['tally']>> }>('/v1/tally', { query })
      ).rows;
    },
    policies: async () =>
      (await client.ask<{ policies: Awaited<ReturnType<Control['policies']>> }>('/v1/policies'))
        .policies,
    pauses: async () =>
      (await client.ask<{ pauses: Awaited<ReturnType<Control['pauses']>> }>('/v1/pauses')).pauses,
    audit: async (after = 0, max = 100) => {
      const query = new URLSearchParams({ after: String(after), max: String(max) });
      const answer = await client.ask<{ records: Awaited<ReturnType<Control['audit']>> }>(
        '/v1/audit',
        { query },
      );
      return answer.records;
    },
    stats: () => client.ask('/v1/stats'),
    shape: ({ by: what = 'topic', filter = {} } = {}) => {
      const query = queryOfFilter(filter) ?? new URLSearchParams();
      query.set('by', what);
      return client.ask('/v1/shape', { query });
    },
    events: (options) => eventsOf(client, options),
  };
}

interface PageAnswer extends Omit<Awaited<ReturnType<Control['page']>>, 'entries'> {
  readonly messages: readonly View[];
}

function steers(client: ServiceClient): Omit<Control, 'by' | keyof Looks> {
  const act = (ids: readonly string[], action: BulkAction): Promise<ActionResult[]> =>
    byIds(client, ids, action);
  return {
    enqueue: (message) => sendMessage(client, message),
    enqueueMany: (messages): Promise<Enqueued[]> => sendMany(client, messages),
    hold: (ids, reason) => act(ids, { kind: 'hold', ...reasonOf(reason) }),
    release: (ids) => act(ids, { kind: 'release' }),
    retryNow: (ids) => act(ids, { kind: 'retry' }),
    bounce: (ids, reason) => act(ids, { kind: 'bounce', ...reasonOf(reason) }),
    remove: (ids, { hard = false, reason } = {}) =>
      act(ids, { kind: 'remove', hard, ...reasonOf(reason) }),
    setPolicy: (ids, policy) => act(ids, { kind: 'policy', policy }),
    prepare: (action, filter) => prepare(client, action, filter),
    pause: async (topic) => {
      await client.ask('/v1/pause', { method: 'POST', json: { topic } });
    },
    resume: async (topic) => {
      await client.ask('/v1/resume', { method: 'POST', json: { topic } });
    },
    check: ({ repair = false } = {}) =>
      client.ask('/v1/check', { method: 'POST', json: { repair } }),
  };
}

async function byIds(
  client: ServiceClient,
  ids: readonly string[],
  action: BulkAction,
): Promise<ActionResult[]> {
  const results = new Map<string, ActionResult>();
  const possible = ids.filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += IDS_MAX) {
    const json = { action, ids: possible.slice(from, from + IDS_MAX) };
    const answer = await client.ask<{ results: ActionResult[] }>('/v1/bulk', {
      method: 'POST',
      json,
    });
    for (const result of answer.results) results.set(result.id, result);
  }
  // What cannot be an id is no reason to refuse the others.
  return ids.map((id) => results.get(id) ?? { id, result: 'unknown' });
}

async function prepare(
  client: ServiceClient,
  action: BulkAction,
  filter: ListFilter,
): Promise<Bulk> {
  // Whoever holds a desk has asked for everything by giving no filter; HTTP wants it said.
  const json = { action, filter, all: true };
  const dry = await client.ask<DryRun>('/v1/bulk', { method: 'POST', json });
  const { count, approximate, confirm, filter: fixed } = dry;
  return {
    count,
    isApproximate: approximate,
    filter: fixed,
    async *run({ signal } = {}) {
      let progress: BulkProgress = { seen: 0, done: 0, refused: 0, unknown: 0, refusals: [] };
      let after: string | undefined;
      do {
        signal?.throwIfAborted();
        const step = { method: 'POST', json: { ...json, confirm, after } } as const;
        const { next, ...more }: BulkProgress & { next?: string } = await client.ask(
          '/v1/bulk',
          step,
        );
        progress = {
          seen: progress.seen + more.seen,
          done: progress.done + more.done,
          refused: progress.refused + more.refused,
          unknown: progress.unknown + more.unknown,
          refusals: [...progress.refusals, ...more.refusals].slice(0, REFUSALS_MAX),
        };
        after = next;
        yield progress;
      } while (after !== undefined);
    },
  };
}

const REFUSALS_MAX = 10;

interface DryRun {
  readonly count: number;
  readonly approximate: boolean;
  readonly confirm: string;
  readonly filter: ListFilter;
}

async function* eventsOf(
  client: ServiceClient,
  { signal, kinds }: Parameters<Control['events']>[0],
): AsyncGenerator<ToldEvent> {
  const query = new URLSearchParams(kinds === undefined ? {} : { kinds: kinds.join(',') });
  try {
    const answer = await client.send('/v1/events', { query, signal });
    const decoder = new TextDecoder();
    let rest = '';
    for await (const bytes of client.parts(answer)) {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        if (line.startsWith(DATA)) yield JSON.parse(line.slice(DATA.length)) as ToldEvent;
      }
    }
  } catch (error) {
    // Whoever fired the signal knows that it is over.
    if (!signal.aborted) throw error;
  }
}

const DATA = 'data: ';

function reasonOf(reason: string | undefined): { reason?: string } {
  return reason === undefined ? {} : { reason };
}

/** A part of a path. What cannot be an id is not asked for: there is no message under it. */
function part(id: string): string {
  if (ID_PATTERN.test(id)) return id;
  throw new RespoolError('message.unknown', `there is no message ${show(id)}`);
}
