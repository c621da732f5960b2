/**
 * spool-operator — an operator over a spool in this process: the spool's own functions, with the
 * operator's name in every audit record.
 */

import type { Entry } from '../core/entry.ts';
import { STATES } from '../core/state.ts';
import { topicMatches } from '../core/topic.ts';
import type { TallyRow } from '../ports/entry-store.ts';
import type { Spool } from '../spool/spool.ts';
import { auditBulk, prepareBulk, stepBulk } from './bulk.ts';
import type { SpoolOperator, MessageView, StateStats, Stats } from './operator.ts';
import type { DiskMeter } from './disk-meter.ts';
import { type ThroughputMeter, forecastOf } from './throughput.ts';
import { recordsWithEvents } from './records-with-events.ts';
import { shapeOf } from './shape.ts';
import { serializedEvents } from './serialize-event.ts';

/** The operator's name, and where the figures of an engine come from. */
export interface OperatorOptions {
  /** Whose name is written into the audit record. */
  readonly by: string;
  /** What went through this spool's engine lately, if somebody has listened. */
  readonly meter?: ThroughputMeter;
  /** How soon the disk of the store is full, if it is on one and somebody looks. */
  readonly disk?: Pick<DiskMeter, 'fullInMs'> | undefined;
  /**
   * Topic patterns of the configured routes, for a spool in which they are not registered because
   * it does not deliver; default: the handlers of the spool.
   */
  readonly topics?: readonly string[] | undefined;
}

/** An operator of this name over a spool. */
export function createOperator(
  spool: Spool,
  { by, meter, disk, topics }: OperatorOptions,
): SpoolOperator {
  const view = viewer(spool, topics);
  return {
    by,
    enqueue: (message) => spool.enqueue(message),
    enqueueMany: (messages) => spool.enqueueMany(messages),
    get: async (id) => {
      const entry = await spool.get(id);
      return entry === undefined ? undefined : view(entry);
    },
    body: (id) => spool.body(id),
    page: async (options) => {
      const page = await spool.page(options);
      return { ...page, entries: page.entries.map(view) };
    },
    count: () => spool.count(),
    tally: (what, filter) => spool.tally(what, filter),
    keyHeads: (max) => spool.keyHeads(max),
    hold: (ids, reason) => spool.hold(ids, reason, by),
    release: (ids) => spool.release(ids, by),
    retryNow: (ids) => spool.retryNow(ids, by),
    replay: (ids, order) => spool.replay(ids, order, by),
    bounce: (ids, reason) => spool.bounce(ids, reason, by),
    remove: (ids, options) => spool.remove(ids, { ...options, by }),
    setPolicy: (ids, policy) => spool.setPolicies(ids, policy, by),
    policies: async () => [...spool.policies].map(([name, policy]) => ({ name, policy })),
    prepare: (action, filter) => prepareBulk(spool, action, filter, by),
    beginBulk: (action, { count, filter }) => auditBulk(spool, { action, filter, count, by }),
    stepBulk: (action, step) => stepBulk(spool, { ...step, action, by }),
    pause: (topic) => spool.pause({ by, topic }),
    resume: (topic) => spool.resume({ by, topic }),
    pauses: () => spool.pauses(),
    audit: (after, max) => spool.audit(after, max),
    recordAction: (action, details) => spool.appendAudit({ by, action, ids: [], details }),
    keep: (copies) => spool.keep(copies, by),
    records: recordsWithEvents(spool.facts, (event) => spool.tell(event)),
    stats: () => statsOf(spool, meter, disk),
    shape: (options) => shapeOf(spool, options),
    check: (options) => spool.check({ ...options, by }),
    rekey: (options) => spool.rekey({ ...options, by }),
    tellSweep: async (swept) => spool.tell({ at: spool.now(), kind: 'sweep', ...swept }),
    events: (options) => serializedEvents(spool, options),
  };
}

/** Adds what this process knows: that it has no handler for a message that waits for one. */
function viewer(
  spool: Spool,
  topics: readonly string[] | undefined,
): (entry: Pick<Entry, 'envelope' | 'status'>) => MessageView {
  const isHandled = (topic: string): boolean =>
    topics === undefined
      ? spool.hasHandler(topic) !== false
      : topics.some((pattern) => topicMatches(pattern, topic));
  return ({ envelope, status }) => {
    const { state, lane } = status;
    const isWaiting = lane === 'delivery' && (state === 'incoming' || state === 'deferred');
    const view = { envelope, status };
    return isWaiting && !isHandled(envelope.topic) ? { ...view, unhandled: true } : view;
  };
}

/** Where a store does not know the oldest without a look at all, it is asked for that look. */
async function tallied(spool: Spool): Promise<readonly TallyRow[]> {
  const rows = await spool.tally('state');
  const isOpen = rows.some(({ count, oldestAt }) => count > 0 && oldestAt === null);
  return isOpen ? spool.tally('state', { enqueuedAfter: 0 }) : rows;
}

async function statsOf(
  spool: Spool,
  meter: OperatorOptions['meter'],
  disk: OperatorOptions['disk'],
): Promise<Stats> {
  const rows = new Map((await tallied(spool)).map((row) => [row.key, row]));
  const states = Object.fromEntries(
    STATES.map((state): [string, StateStats] => {
      const { count = 0, oldestAt = null, approximate } = rows.get(state) ?? {};
      return [state, { count, oldestAt, ...(approximate === undefined ? {} : { approximate }) }];
    }),
  ) as unknown as Stats['states'];
  const { load } = spool;
  const backlog = states.incoming.count + states.active.count + states.deferred.count;
  const flow = load.isRunning ? meter?.flow : undefined;
  return {
    at: spool.now(),
    states,
    nextDueAt: await spool.nextDueAt(),
    paused: await spool.pauses(),
    ...(load.isRunning ? { load } : {}),
    ...(flow === undefined
      ? {}
      : { flow, forecast: forecastOf(flow, backlog, disk?.fullInMs ?? null) }),
  };
}
