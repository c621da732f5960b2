/**
 * spool — what metrics query from a spool at a scrape, the operations its stores report, and
 * the states of alert rules before their first event.
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import type { EventOf } from '../../core/event.ts';
import { type State, STATES } from '../../core/state.ts';
import type { TallyRow } from '../../ports/entry-store.ts';
import type { StoreOperation } from '../../ports/store-operation.ts';
import { internalsOf, type SpoolInternals } from '../../spool/internals.ts';
import type { Spool } from '../../spool/spool.ts';
import { backlogOf } from './outbox.ts';
import { type HistogramRow, type NumberFamily, observe, type MetricRow } from './families.ts';
import type { MetricsContext } from './context.ts';
import { beginTopic, recordEvents, recordLoad, recordSettled } from './source-rows.ts';
import type { WatchOptions } from './options.ts';
import type { WatchedForecast } from './types.ts';

const ALERT_PHASES = ['fired', 'resolved'] as const satisfies readonly EventOf<'alert'>['phase'][];

/** Counts and asks, from now on; returns the way to stop. */
export function watchSpool(
  ground: MetricsContext,
  watched: Spool,
  { source = 'spool', forecast, alerts }: WatchOptions,
): () => void {
  const spool = internalsOf(watched);
  const stops = [
    ground.takeSource('spool', source),
    recordEvents(ground, spool, source),
    recordLoad(ground, spool, source),
    recordSettled(ground, spool, source),
    recordStates(ground, spool, { source, forecast }),
    alerts === undefined ? undefined : recordStanding(ground, source, { alerts, spool }),
    spool.onStoreOperation(operationRows(ground, source)),
  ];
  return () => {
    for (const stop of stops) stop?.();
  };
}

/** The state of rules before their first event, as after a restart. */
function recordStanding(
  { families, core, wordOf }: MetricsContext,
  source: string,
  {
    alerts,
    spool,
  }: { readonly alerts: NonNullable<WatchOptions['alerts']>; readonly spool: SpoolInternals },
): () => void {
  const failures = core.scrapeFailures.row(source);
  const look = families.look({
    read: async () => {
      const standing = new Map<string, boolean>();
      for (const { rule, isFiring } of await alerts()) {
        const label = wordOf(rule);
        // Rules without a label of their own fire when one of them does.
        standing.set(label, isFiring || standing.get(label) === true);
      }
      for (const [label, isFiring] of standing) {
        for (const phase of ALERT_PHASES) core.alerts.row(label, phase);
        core.alertsFiring.row(label).value = Number(isFiring);
      }
    },
    onFailure: () => {
      failures.value += 1;
    },
    isThere: () => spool.isOpen,
  });
  return () => look.stop();
}

/** Hears of operations: two histograms, and a counter of those that failed. */
function operationRows(
  { core }: MetricsContext,
  source: string,
): (operation: StoreOperation) => void {
  interface OperationRows {
    readonly duration: HistogramRow;
    readonly size: HistogramRow;
    readonly failures: MetricRow;
  }
  const make = (store: string, name: string): OperationRows => ({
    duration: core.operationDuration.row(source, store, name),
    size: core.batchSize.row(source, store, name),
    failures: core.operationFailures.row(source, store, name),
  });
  const rows = {
    entries: new Map<string, OperationRows>(),
    bodies: new Map<string, OperationRows>(),
  };
  return ({ store, name, items, tookMs, isDone }) => {
    let found = rows[store].get(name);
    if (found === undefined) {
      found = make(store, name);
      rows[store].set(name, found);
    }
    observe(found.duration, tookMs / SECOND_MS);
    observe(found.size, items);
    if (!isDone) found.failures.value += 1;
  };
}

/** The last counts of the store by state. */
interface States {
  readonly counts: readonly (readonly [State, number])[];
  readonly topics: readonly TopicCount[];
  readonly nextDueAt: Millis | null;
  readonly pauses: number;
}

interface TopicCount {
  readonly state: State;
  /** Its label. */
  readonly topic: string;
  count: number;
  oldestAt: Millis | null;
}

function recordStates(
  ground: MetricsContext,
  spool: SpoolInternals,
  {
    source,
    forecast,
  }: { readonly source: string; readonly forecast: WatchOptions['forecast'] | undefined },
): () => void {
  const { families, core } = ground;
  let states: States | undefined;
  const failures = core.scrapeFailures.row(source);
  const look = families.look({
    read: async () => {
      states = await readStates(ground, spool);
      for (const { topic } of states.topics) beginTopic(core, source, topic);
    },
    onFailure: () => {
      failures.value += 1;
    },
    // Every call of a spool opens its stores; a scrape must not, least of all after a stop.
    isThere: () => spool.isOpen,
  });
  let written: readonly (() => void)[] = [];
  const forget = (): void => {
    for (const drop of written) drop();
    written = [];
  };
  const stop = families.atScrape(() => {
    core.statesAge.row(source).value = look.ageMs / SECOND_MS;
    forget();
    if (states === undefined) return;
    written = [
      ...writeStates(ground, source, states, spool.now()),
      ...writeForecast(ground, source, forecast?.(backlogOf(states.counts))),
    ];
  });
  return () => {
    stop();
    look.stop();
    forget();
    core.statesAge.drop(source);
  };
}

async function readStates({ topicOf }: MetricsContext, spool: SpoolInternals): Promise<States> {
  const tallied = new Map((await spool.tally('state')).map(({ key, count }) => [key, count]));
  const counts = STATES.map((state) => [state, tallied.get(state) ?? 0] as const);
  const topics: TopicCount[] = [];
  for (const [state, total] of counts) {
    if (total === 0) continue;
    topics.push(...foldTopics(state, await talliedTopics(spool, state), topicOf));
  }
  const nextDueAt = await spool.nextDueAt();
  const pauses = (await spool.pauses()).length;
  return { counts, topics, nextDueAt, pauses };
}

/**
 * Where a store does not know the oldest without a look at all of the state, it is asked for that
 * look; not for those that have ended, which are the most and wait for nothing.
 */
async function talliedTopics(spool: SpoolInternals, state: State): Promise<readonly TallyRow[]> {
  const rows = await spool.tally('topic', { state });
  const isOpen = state !== 'archived' && rows.some(({ oldestAt }) => oldestAt === null);
  return isOpen ? spool.tally('topic', { state, enqueuedAfter: 0 }) : rows;
}

/** Topics without a label of their own come together; of these, what is known of the oldest. */
function foldTopics(
  state: State,
  rows: readonly TallyRow[],
  topicOf: MetricsContext['topicOf'],
): Iterable<TopicCount> {
  const byLabel = new Map<string, TopicCount>();
  for (const { key, count, oldestAt } of rows) {
    const topic = topicOf(key);
    const known = byLabel.get(topic);
    if (known === undefined) {
      byLabel.set(topic, { state, topic, count, oldestAt });
      continue;
    }
    known.count += count;
    if (oldestAt !== null) known.oldestAt = Math.min(known.oldestAt ?? oldestAt, oldestAt);
  }
  return byLabel.values();
}

/** Sets the gauges; returns how each is taken away, before the next are set. */
function writeStates(
  { core }: MetricsContext,
  source: string,
  { counts, topics, nextDueAt, pauses }: States,
  now: Millis,
): readonly (() => void)[] {
  const { set, drops } = setter(source);
  for (const [state, count] of counts) set(core.messages, count, state);
  for (const { state, topic, count, oldestAt } of topics) {
    set(core.topicMessages, count, state, topic);
    if (oldestAt === null) continue;
    set(core.oldestAge, Math.max(0, now - oldestAt) / SECOND_MS, state, topic);
  }
  if (nextDueAt !== null) set(core.nextDue, nextDueAt / SECOND_MS);
  set(core.pausedTopics, pauses);
  return drops;
}

function writeForecast(
  { core }: MetricsContext,
  source: string,
  forecast: WatchedForecast | undefined,
): readonly (() => void)[] {
  const { set, drops } = setter(source);
  const { drainsInMs = null, fullInMs = null } = forecast ?? {};
  if (drainsInMs !== null) set(core.forecastDrain, drainsInMs / SECOND_MS);
  if (fullInMs !== null) set(core.forecastFull, fullInMs / SECOND_MS);
  return drops;
}

function setter(source: string): {
  readonly set: (family: NumberFamily, value: number, ...labels: readonly string[]) => void;
  readonly drops: readonly (() => void)[];
} {
  const drops: (() => void)[] = [];
  return {
    set: (family, value, ...labels) => {
      family.row(source, ...labels).value = value;
      drops.push(() => family.drop(source, ...labels));
    },
    drops,
  };
}
