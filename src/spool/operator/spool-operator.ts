/**
 * spool-operator — an operator over a spool in this process: the spool's own functions, with the
 * operator's name in every audit record; and what only operators ask for: statistics, the shape of
 * what waits, events for other processes, and copies of messages that are removed or changed
 * elsewhere.
 */

import type { Entry, Headers } from '../../core/entry.ts';
import { codeIn, RespoolError, show } from '../../core/errors.ts';
import {
  checkHeaders,
  checkIds,
  checkKey,
  checkList,
  checkOneOf,
  checkTopicPattern,
} from '../../core/limits.ts';
import { printable, reasonText } from '../../core/failure.ts';
import { retainedUntil, initialStatus } from '../../core/next-status.ts';
import { KEPT_COPY_CODE, ORIGINAL_HEADER } from '../../core/reserved-headers.ts';
import { STATES } from '../../core/state.ts';
import type { KeptCopy } from '../../ports/dead-letters.ts';
import { topicMatches } from '../../core/topic.ts';
import type { TallyRow } from '../../ports/entry-store.ts';
import { audit, AUDIT_KIND, type AuditRecord, changeHeaders, move } from '../actions.ts';
import { keepBody, ownBody, tooLarge } from '../body.ts';
import type { SpoolInternals } from '../internals.ts';
import { listAll, type ListFilter } from '../list.ts';
import { type CheckedMessage, checkMessage, withBody } from '../message.ts';
import { replay } from '../replay.ts';
import type { Runtime } from '../runtime.ts';
import { emitArchived } from '../../engine/events.ts';
import { actOn, auditBulk, needsReading, prepareBulk, stepBulk } from './bulk.ts';
import { bulkActions } from './bulk-actions.ts';
import { type DiskMeter, forecastOf, type ThroughputMeter } from './throughput.ts';
import type {
  EventOptions,
  MessageView,
  Operator,
  SerializedEvent,
  Shape,
  ShapeOptions,
  ShapeRow,
  ServiceOperator,
  SpoolOperator,
  StateStats,
  Stats,
} from './operator.ts';
import { recordsWithEvents } from './replays.ts';
import { MINUTE_MS } from '../../core/duration.ts';
import type { StreamedEvent } from '../../core/event.ts';

/** The operator's name, and where the figures of an engine come from. */
interface OperatorOptions {
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

/** The same for the HTTP service, which does bulk actions in steps. */
export function createServiceOperator(
  spool: SpoolInternals,
  options: OperatorOptions,
): ServiceOperator {
  const { by } = options;
  const steps: Pick<ServiceOperator, 'beginBulk' | 'stepBulk'> = {
    beginBulk: (action, { count, filter }) => auditBulk(spool, { action, filter, count, by }),
    stepBulk: (action, step) => stepBulk(spool, { ...step, action, by }),
  };
  return Object.assign(createOperator(spool, options), steps);
}

type Changes = Pick<
  Operator,
  'check' | 'keep' | 'move' | 'rekey' | 'replay' | 'setHeaders' | 'cleanUp'
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
    keep: (copies) => keepMessage(runtime, copies, by),
    // Loaded when it is needed, as all that few programs do: an import has to be quick.
    check: async (options) => (await import('../check.ts')).checkAll(runtime, by, options),
    rekey: async (options) => {
      await runtime.ready();
      return (await import('../rekey.ts')).rekey(runtime, by, options);
    },
    cleanUp: async () => {
      await spool.appendAudit({ by, action: 'cleanup', ids: [] });
      return runtime.cleanUp();
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

// Messages by topic and age. Where it grows to the right, something has been stuck for
// long; where one line is large, one receiver is the trouble. The idea is Postfix's.

/** Each age is twice the one before. Also in docs/operations/deferred-grows.md. */
const BOUNDS_MS: readonly number[] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280].map(
  (minutes) => minutes * MINUTE_MS,
);
/** States of messages that a shape counts. */
const SHAPE_STATES = ['incoming', 'active', 'deferred'] as const;
/** Maximum number of lines of a shape: promised by `Shape`; also in the CLI's inspect/shape.ts. */
const ROWS_MAX = 500;

/** The shape of what fits the filter now. */
async function shapeOf(spool: SpoolInternals, options: ShapeOptions = {}): Promise<Shape> {
  const by = checkOneOf('by', options.by ?? 'topic', ['topic', 'destination']);
  const filter = { ...options.filter, state: options.filter?.state ?? SHAPE_STATES };
  const at = spool.now();
  const counted = needsReading(filter)
    ? await countByReading(spool, by, filter, at)
    : await countByTallies(spool, by, filter, at);
  return { at, by, boundsMs: BOUNDS_MS, ...counted };
}

type By = Shape['by'];
type Counted = Pick<Shape, 'rows' | 'total'>;

/** Only the largest names get a line, so no more are remembered than these; the total has all. */
async function countByTallies(
  spool: SpoolInternals,
  by: By,
  filter: ListFilter,
  at: number,
): Promise<Counted> {
  const all = await spool.tally(by, filter);
  const largest = all.toSorted(byCount).slice(0, ROWS_MAX);
  const rows = new Map(largest.map(({ key, count }) => [key, [count]]));
  const total = [countOf(all)];
  // From the young to the old, as long as there is anything older: mostly one look or two.
  let older: readonly TallyRow[] = all;
  for (const boundMs of BOUNDS_MS) {
    if (older.length > 0) older = await spool.tally(by, olderOnly(filter, at - boundMs));
    total.push(countOf(older));
    const counts = new Map<string, number>();
    for (const { key, count } of older) if (rows.has(key)) counts.set(key, count);
    for (const [key, row] of rows) row.push(counts.get(key) ?? 0);
  }
  return {
    rows: linesOf([...rows].map(([key, row]) => rowOf(key, row))),
    total: rowOf('TOTAL', total),
  };
}

function byCount(a: TallyRow, b: TallyRow): number {
  return b.count - a.count || (a.key < b.key ? -1 : 1);
}

function countOf(rows: readonly TallyRow[]): number {
  return sumOf(rows.map(({ count }) => count));
}

function linesOf(rows: readonly ShapeRow[]): ShapeRow[] {
  return rows.toSorted((a, b) => b.total - a.total || (a.key < b.key ? -1 : 1)).slice(0, ROWS_MAX);
}

/** Message by message: a store's counts of such a filter stop before the end. */
async function countByReading(
  spool: SpoolInternals,
  by: By,
  filter: ListFilter,
  at: number,
): Promise<Counted> {
  const counts = new Map<string, number[]>();
  for await (const { envelope } of spool.list(filter)) {
    const key = envelope[by];
    if (key === undefined) continue;
    const row = counts.get(key) ?? [0, ...BOUNDS_MS].map(() => 0);
    const age = BOUNDS_MS.findIndex((boundMs) => at - envelope.enqueuedAt <= boundMs);
    const column = age < 0 ? BOUNDS_MS.length : age;
    row[column] = (row[column] ?? 0) + 1;
    counts.set(key, row);
  }
  const rows = [...counts].map(([key, row]) => ({ key, total: sumOf(row), counts: row }));
  return { rows: linesOf(rows), total: totalOf(rows) };
}

function olderOnly(filter: ListFilter, before: number): ListFilter {
  const { enqueuedBefore = before } = filter;
  return { ...filter, enqueuedBefore: Math.min(before, enqueuedBefore) };
}

/** From counts of what is older than each bound to counts of what is between two. */
function rowOf(key: string, older: readonly number[]): ShapeRow {
  // Messages move between two looks: a difference below zero is one that was delivered meanwhile.
  const counts = older.map((count, at) => Math.max(0, count - (older[at + 1] ?? 0)));
  return { key, total: sumOf(counts), counts };
}

function totalOf(rows: readonly ShapeRow[]): ShapeRow {
  const counts = [0, ...BOUNDS_MS].map((_, at) =>
    rows.reduce((sum, row) => sum + (row.counts[at] ?? 0), 0),
  );
  return { key: 'TOTAL', total: sumOf(counts), counts };
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}

/** What happens from now on, until the signal fires. */
function serializedEvents(
  spool: SpoolInternals,
  options: EventOptions,
): AsyncIterable<SerializedEvent> {
  // Listens from the call on, not from the first look: what happens in between is heard.
  const stream = spool.events(options);
  return (async function* () {
    for await (const event of stream) yield serializeEvent(event);
  })();
}

/** An event as another process can read it. */
export function serializeEvent(event: StreamedEvent): SerializedEvent {
  if (event.kind !== 'trouble') return event;
  return { ...event, error: event.error.message, ...codeIn(event.error) };
}

/** Pauses topics, or ends a pause; durable when it resolves. Other processes learn of it later. */
async function pausing(
  runtime: Runtime,
  action: 'pause' | 'resume',
  topic: string,
  by: string,
): Promise<void> {
  const pattern = checkTopicPattern(topic);
  await runtime.ready();
  await audit(runtime, { by, action, ids: [], details: { topic: pattern } });
  const at = runtime.now();
  if (action === 'pause') await runtime.pauses.pause(pattern, printable(by), at);
  else await runtime.pauses.resume(pattern);
  runtime.events.emit({ at, kind: action === 'pause' ? 'paused' : 'resumed', topic: pattern });
  runtime.alarm();
}

// Copies of messages that are removed or changed elsewhere, stored as archived: they can be looked
// at and restored until the retention of what was removed is over, and are never due.

/** Copies written at once. */
const COPIES_AT_ONCE = 500;

/** Stores copies of messages; durable when it resolves. All are checked before any is written. */
async function keepMessage(
  runtime: Runtime,
  copies: readonly KeptCopy[],
  by: string,
): Promise<void> {
  checkList('copies', copies, 'a list of copies');
  const bodies = copies.map(({ body }) => ownBody(body));
  const own = copies.map((copy) => ({ ...copy, headers: { ...copy.headers } }));
  await runtime.ready();
  const checked = own.map((copy) => checkCopy(runtime, copy));
  await runtime.during(async () => {
    for (let from = 0; from < own.length; from += COPIES_AT_ONCE) {
      const entries: Entry[] = [];
      for (const [at, message] of checked.slice(from, from + COPIES_AT_ONCE).entries()) {
        const { id } = message.envelope;
        const body = bodies[from + at] ?? ownBody(undefined);
        const kept = await keepBody(body, id, runtime.bodySettings);
        entries.push({
          ...archivedOf(runtime, message, { text: own[from + at]?.reason ?? '', by }, kept.info),
          ...(kept.inline === undefined ? {} : { inlineBody: kept.inline }),
        });
      }
      await runtime.entries.insert(entries);
      for (const { envelope, status } of entries) emitArchived(runtime.events, envelope, status);
    }
  });
}

function checkCopy(
  { settings, now, makeId }: Runtime,
  { id, topic, headers, body }: KeptCopy,
): CheckedMessage {
  const { headerMaxBytes, bodyMaxBytes } = settings;
  if (body.byteLength > bodyMaxBytes) throw tooLarge(bodyMaxBytes);
  const original = { [ORIGINAL_HEADER]: checkKey('id', id) };
  const message = { topic, headers: { ...headers, ...original } };
  return checkMessage(message, { now: now(), headerMaxBytes, makeId });
}

function archivedOf(
  runtime: Runtime,
  { envelope: open, policy }: CheckedMessage,
  { text, by }: { readonly text: string; readonly by: string },
  body: Entry['envelope']['body'],
): Entry {
  const { retention } = runtime;
  const now = runtime.now();
  const envelope = withBody(open, body);
  return {
    envelope,
    status: {
      ...initialStatus({ now, dueAt: now, policy }),
      state: 'archived',
      ending: 'removed',
      dueAt: retainedUntil(envelope, retention.removedMs, { now, retention }),
      because: { code: KEPT_COPY_CODE, text: reasonText(text), by },
    },
  };
}
