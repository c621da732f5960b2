/**
 * client — the operator's desk over HTTP: the same door as the desk beside a spool, for commands
 * and programs that talk to a running service.
 */

import { added, NO_PROGRESS } from '../../operator/bulk.ts';
import type { Bulk, BulkAction, Control, MessageView } from '../../operator/operator.ts';
import { isRespoolError, RespoolError, show } from '../../core/errors.ts';
import { checkTopicPattern, ID_PATTERN } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { ActionResult } from '../../spool/actions.ts';
import type { Enqueued } from '../../spool/accept.ts';
import type { ListFilter } from '../../spool/list.ts';
import { eventsOf } from './events.ts';
import { askCheck } from './client-check.ts';
import * as forms from './answers.ts';
import { askHeads } from './client-heads.ts';
import { type ClientOptions, ServiceClient } from './http.ts';
import { byIds, partly } from './client-ids.ts';
import { letters } from './letters.ts';
import { sendMany, sendMessage } from './post.ts';
import { createRekey } from './client-rekey.ts';
import { stats } from './client-stats.ts';
import { queryOfFilter } from '../filter-query.ts';

export type { ClientOptions } from './http.ts';

/** The desk of a running service. Nothing is sent before something is asked. */
export function connectControl(options: ClientOptions): Control {
  const client = new ServiceClient(options);
  const { by = 'local' } = options;
  return { by, ...looks(client), ...steers(client), ...letters(client) };
}

type Looks = Pick<
  Control,
  | 'audit'
  | 'body'
  | 'count'
  | 'events'
  | 'get'
  | 'keyHeads'
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
        return messageOf(await client.ask(`/v1/messages/${part(id)}`, forms.view));
      } catch (error) {
        if (isRespoolError(error, 'message.unknown')) return undefined;
        throw error;
      }
    },
    body: async (id) => {
      const accept = 'application/octet-stream';
      return client.parts(await client.send(`/v1/messages/${part(id)}/body`, { accept }));
    },
    page: async (options = {}) => {
      const query = queryOfFilter(options);
      if (query === undefined) return { entries: [], corrupt: [] };
      const answer = await client.ask('/v1/messages', forms.page, { query });
      const { messages, corrupt, next } = answer;
      return { entries: messages.map(messageOf), corrupt, ...(next === undefined ? {} : { next }) };
    },
    count: async () => {
      const { states } = await client.ask('/v1/stats', stats);
      return Object.fromEntries(STATES.map((state) => [state, states[state].count])) as Awaited<
        ReturnType<Control['count']>
      >;
    },
    tally: async (what, filter = {}) => {
      const query = queryOfFilter(filter);
      if (query === undefined) return [];
      query.set('by', what);
      return (await client.ask('/v1/tally', forms.tally, { query })).rows;
    },
    keyHeads: (max) => askHeads(client, max),
    policies: async () => (await client.ask('/v1/policies', forms.policies)).policies,
    pauses: async () => (await client.ask('/v1/pauses', forms.pauses)).pauses,
    audit: async (after = 0, max = 100) => {
      const query = new URLSearchParams({ after: String(after), max: String(max) });
      return (await client.ask('/v1/audit', forms.audit, { query })).records;
    },
    stats: () => client.ask('/v1/stats', stats),
    shape: ({ by: what = 'topic', filter = {} } = {}) => {
      const query = queryOfFilter(filter) ?? new URLSearchParams();
      query.set('by', what);
      return client.ask('/v1/shape', forms.shape, { query });
    },
    events: (options) => eventsOf(client, options),
  };
}

/** Only what is known of a message here: a later service may say more. */
function messageOf({ envelope, status, unhandled }: MessageView): MessageView {
  return { envelope, status, ...(unhandled === undefined ? {} : { unhandled }) };
}

function steers(
  client: ServiceClient,
): Omit<Control, 'by' | keyof Looks | keyof ReturnType<typeof letters>> {
  const act = (ids: readonly string[], action: BulkAction): Promise<ActionResult[]> =>
    byIds(client, ids, { path: '/v1/bulk', json: { action } });
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
    pause: async (given) => {
      const topic = checkTopicPattern(given);
      await client.ask('/v1/pause', forms.ok, { method: 'POST', json: { topic } });
    },
    resume: async (given) => {
      const topic = checkTopicPattern(given);
      await client.ask('/v1/resume', forms.ok, { method: 'POST', json: { topic } });
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
  // Whoever holds a desk has asked for everything by giving no filter; HTTP wants it said.
  const json = { action, filter, all: true };
  const dry = await client.ask('/v1/bulk', forms.dryRun, { method: 'POST', json });
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
        const asking = client.ask('/v1/bulk', forms.progress, step);
        const { next, ...more } = await asking.catch((error: unknown) => {
          throw partly(error, seen, `of ${count} messages were gone through before`);
        });
        progress = added(progress, more);
        after = next;
        yield progress;
      } while (after !== undefined);
    },
  };
}

function reasonOf(reason: string | undefined): { reason?: string } {
  return reason === undefined ? {} : { reason };
}

/** A part of a path. What cannot be an id is not asked for: there is no message under it. */
function part(id: string): string {
  if (ID_PATTERN.test(id)) return id;
  throw new RespoolError('message.unknown', `there is no message ${show(id)}`);
}
