/**
 * spool-operator — an operator over a spool in this process: the spool's own functions, with the
 * operator's name in every audit record.
 */

import type { Entry, Headers } from '../../core/entry.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkHeaders, checkIds } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import { topicMatches } from '../../core/topic.ts';
import type { TallyRow } from '../../ports/entry-store.ts';
import { AUDIT_KIND, type AuditRecord, changeHeaders, move } from '../actions.ts';
import type { SpoolInternals } from '../internals.ts';
import { keep } from '../keep.ts';
import { listAll } from '../list.ts';
import { pausing } from '../pausing.ts';
import { replay } from '../replay.ts';
import { actOn, auditBulk, prepareBulk, stepBulk } from './bulk.ts';
import { bulkActions } from './bulk-actions.ts';
import type { DiskMeter } from './disk-meter.ts';
import type { MessageView, Operator, SpoolOperator, StateStats, Stats } from './operator.ts';
import { recordsWithEvents } from './replays.ts';
import { serializedEvents } from './serialize-event.ts';
import { shapeOf } from './shape.ts';
import { forecastOf, type ThroughputMeter } from './throughput.ts';

/** The operator's name, and where the figures of an engine come from. */
export interface OperatorOptions {
  /** Whose name is written into the audit record. */
  readonly by: string;
  /** Recent throughput of this spool's engine, if it was measured. */
  readonly meter?: ThroughputMeter;
  /** Forecast of when the store's disk will be full, if it is measured. */
  readonly disk?: Pick<DiskMeter, 'fullInMs'> | undefined;
  /**
   * Topic patterns of the configured routes, for a spool in which they are not registered because
   * it does not deliver; default: the handlers of the spool.
   */
  readonly topics?: readonly string[] | undefined;
}

/** An operator of this name over a spool. */
export function createOperator(
  spool: SpoolInternals,
  { by, meter, disk, topics }: OperatorOptions,
): SpoolOperator {
  const { runtime, enqueuer } = spool;
  const view = viewer(spool, topics);
  const page: Operator['page'] = async (options) => {
    const { entries, ...rest } = await spool.page(options);
    return { ...rest, entries: entries.map(view) };
  };
  return {
    by: checkName(by),
    enqueue: (message) => enqueuer.enqueue(message),
    enqueueMany: (messages) => enqueuer.enqueueMany(messages),
    get: async (id) => {
      const entry = await spool.get(id);
      return entry === undefined ? undefined : view(entry);
    },
    body: (id) => spool.body(id),
    page,
    list: (options = {}) => listAll(page, options),
    count: () => spool.count(),
    tally: (what, filter) => spool.tally(what, filter),
    keyHeads: (max) => spool.keyHeads(max),
    ...bulkActions({
      onIds: (ids, action) => actOn(spool, action, ids, by),
      prepare: (action, filter) => prepareBulk(spool, action, filter, by),
    }),
    ...changes(spool, by),
    policies: async () => [...spool.policies].map(([name, policy]) => ({ name, policy })),
    beginBulk: (action, { count, filter }) => auditBulk(spool, { action, filter, count, by }),
    stepBulk: (action, step) => stepBulk(spool, { ...step, action, by }),
    pause: (topic) => pausing(runtime, 'pause', topic, by),
    resume: (topic) => pausing(runtime, 'resume', topic, by),
    pauses: () => spool.pauses(),
    audit: async (after = 0, max = 100) => {
      await runtime.ready();
      const lines = await runtime.entries.records.read(AUDIT_KIND, after, max);
      return lines.map(({ sequence, record }) => ({ ...(record as AuditRecord), sequence }));
    },
    recordAction: (action, details) => spool.appendAudit({ by, action, ids: [], details }),
    records: recordsWithEvents(spool.records, (event) => spool.emit(event)),
    stats: () => statsOf(spool, meter, disk),
    shape: (options) => shapeOf(spool, options),
    emit: (event) => spool.emit(event),
    tellSweep: async (swept) => spool.emit({ at: spool.now(), kind: 'sweep', ...swept }),
    events: (options) => serializedEvents(spool, options),
  };
}

type Changes = Pick<
  Operator,
  'check' | 'keep' | 'move' | 'rekey' | 'replay' | 'setHeaders' | 'sweep'
>;

/** What changes messages one by one, or looks after the whole store. */
function changes(spool: SpoolInternals, by: string): Changes {
  const { runtime } = spool;
  return {
    move: async (id, { from, to, reason = 'moved by an operator' }) => {
      await runtime.ready();
      await move(runtime, id, { from, to, reason }, by);
    },
    setHeaders: async (id, headers, { revision } = {}) => {
      await runtime.ready();
      const { headerMaxBytes } = runtime.settings;
      const check = (merged: Headers): Headers => checkHeaders(merged, headerMaxBytes);
      return changeHeaders(runtime, id, { headers, check, revision }, by);
    },
    replay: async (ids, order) => {
      checkIds(ids);
      return replay(runtime, ids, order, by);
    },
    keep: (copies) => keep(runtime, copies, by),
    // Loaded when it is needed, as all that few programs do: an import has to be quick.
    check: async (options) => (await import('../check-all.ts')).checkAll(runtime, by, options),
    rekey: async (options) => {
      await runtime.ready();
      return (await import('../rekey.ts')).rekey(runtime, by, options);
    },
    sweep: async () => {
      await spool.appendAudit({ by, action: 'sweep', ids: [] });
      return runtime.sweep();
    },
  };
}

function checkName(by: string): string {
  if (typeof by === 'string' && by !== '') return by;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(by)} as "by": give the name for the audit record, as { by: 'ops' }`,
  );
}

/** Adds what this process knows: that it has no handler for a message that waits for one. */
function viewer(
  spool: SpoolInternals,
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
async function tallied(spool: SpoolInternals): Promise<readonly TallyRow[]> {
  const rows = await spool.tally('state');
  const isOpen = rows.some(({ count, oldestAt }) => count > 0 && oldestAt === null);
  return isOpen ? spool.tally('state', { enqueuedAfter: 0 }) : rows;
}

async function statsOf(
  spool: SpoolInternals,
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
