/**
 * source-rows — turns the events of a spool, a consumer or a relay into rows.
 *
 *   recordEvents(ground, source, name) ─▶ stop      counts from now on, under the label `source`
 *   recordLoad(ground, source, name)   ─▶ stop      the engine's numbers, at each scrape
 *   recordSettled(ground, source, name) ─▶ stop     what the engine has settled, likewise
 *
 * It listens to the kinds it needs and to no other: an event with no listener is never built; a
 * `claimed` for each message would be. An event costs a look into a map and an addition. Rows of
 * events stay when the source is no longer watched: they are what happened; gauges of load end.
 */

import type { EventKind, EventOf } from '../../core/event.ts';
import type { CoreFamilies, MetricsContext } from './context.ts';
import { type HistogramRow, observe, type MetricRow } from './families.ts';
import type { LoadSource, Watchable } from './types.ts';

/** Counts the events of the source from now on; returns the function that stops it. */
export function recordEvents(ground: MetricsContext, source: Watchable, name: string): () => void {
  const topics = new SourceTopics(ground, name);
  const stops = [
    ...recordMessages(source, topics),
    ...recordRare(ground, source, name),
    ...recordAlerts(ground, source),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

/** Copies the load of an engine at each scrape; returns the way to stop, which ends its gauges. */
export function recordLoad(
  { families, core }: MetricsContext,
  source: LoadSource,
  name: string,
): () => void {
  const gauges = {
    concurrency: core.engineSlots,
    running: core.engineSlotsBusy,
    waiting: core.engineWaiting,
    settling: core.engineSettling,
    isRunning: core.engineRunning,
  } as const;
  const keys = Object.keys(gauges) as (keyof typeof gauges)[];
  const stop = families.atScrape(() => {
    const { load } = source;
    for (const key of keys) gauges[key].row(name).value = Number(load[key]);
  });
  return () => {
    stop();
    for (const key of keys) gauges[key].drop(name);
  };
}

/** Counts what an engine settles; several of one name are counted together. */
export function recordSettled(
  { families, core }: MetricsContext,
  source: LoadSource,
  name: string,
): () => void {
  const grow = growthOf(() => source.load.settled, core.engineSettled.row(name));
  const stop = families.atScrape(grow);
  return () => {
    grow();
    stop();
  };
}

/** Makes the rows of a topic that is known, before anything happens to it. */
export function beginTopic(core: CoreFamilies, source: string, topic: string): void {
  for (const key of ['accepted', 'delivered', 'deferred'] as const) core[key].row(source, topic);
}

function recordMessages(source: Watchable, topics: SourceTopics): (() => void)[] {
  const counted = (Object.keys(FAMILY_OF) as CountedKind[]).map((kind) =>
    source.on(kind, ({ topic }) => {
      topics.of(topic).counted(kind).value += 1;
    }),
  );
  return [
    ...counted,
    source.on('ended', (event) => topics.of(event.topic).ended(event)),
    source.on('delivered', (event) => topics.of(event.topic).noteDelivered(event)),
    source.on('deferred', (event) => topics.of(event.topic).noteDeferred(event)),
    source.on('bounced', ({ topic, lane, because }) => {
      // A notice that is given up is of a message that was given up before.
      if (lane === 'delivery') topics.of(topic).bouncedBy(because.code).value += 1;
    }),
  ];
}

/** Kinds that are counted by topic only. */
const FAMILY_OF = {
  accepted: 'accepted',
  duplicate: 'duplicates',
  held: 'held',
  released: 'released',
  announced: 'announced',
  archived: 'archived',
  removed: 'removed',
} as const satisfies Partial<Record<EventKind, keyof CoreFamilies>>;
type CountedKind = keyof typeof FAMILY_OF;

function recordRare(
  { core, wordOf }: MetricsContext,
  source: Watchable,
  name: string,
): (() => void)[] {
  // All are there from the beginning: a rate over a series that appears late misses its start.
  const rows = {
    'lease-lost': core.leaseLosses.row(name),
    stale: core.staleSettles.row(name),
    trouble: core.trouble.row(name),
    'clock-jumped': core.clockJumps.row(name),
  };
  const forgotten = core.forgotten.row(name);
  const orphans = core.orphans.row(name);
  const kinds = Object.keys(rows) as (keyof typeof rows)[];
  return [
    ...kinds.map((kind) =>
      source.on(kind, () => {
        rows[kind].value += 1;
      }),
    ),
    source.on('cleaned-up', (cleanup) => {
      forgotten.value += cleanup.forgotten;
      orphans.value += cleanup.orphans;
    }),
    source.on('operator', ({ action }) => {
      core.operatorActions.row(name, wordOf(action)).value += 1;
    }),
  ];
}

function recordAlerts({ core, wordOf }: MetricsContext, source: Watchable): (() => void)[] {
  return [
    source.on('alert', ({ rule, phase }) => {
      const label = wordOf(rule);
      core.alerts.row(label, phase).value += 1;
      core.alertsFiring.row(label).value = phase === 'fired' ? 1 : 0;
    }),
  ];
}

/** The rows of each topic of one source. */
class SourceTopics {
  readonly #ground: MetricsContext;
  readonly #name: string;
  readonly #byTopic = new Map<string, TopicRows>();
  readonly #byLabel = new Map<string, TopicRows>();

  constructor(ground: MetricsContext, name: string) {
    this.#ground = ground;
    this.#name = name;
  }

  of(topic: string): TopicRows {
    return this.#byTopic.get(topic) ?? this.#ofNew(topic);
  }

  #ofNew(topic: string): TopicRows {
    const label = this.#ground.topicOf(topic);
    const rows = this.#byLabel.get(label) ?? new TopicRows(this.#ground, this.#name, label);
    this.#byLabel.set(label, rows);
    // Only names that have a label: the others are without end.
    if (label === topic) this.#byTopic.set(topic, rows);
    return rows;
  }
}

/** The rows of one topic. What most topics never have is made at its first use. */
class TopicRows {
  readonly #delivered: MetricRow;
  readonly #deferred: MetricRow;
  readonly #core: CoreFamilies;
  readonly #codeOf: MetricsContext['codeOf'];
  readonly #labels: readonly [source: string, topic: string];
  readonly #counted: Partial<Record<CountedKind, MetricRow>> = {};
  readonly #attempts = new Map<string, MetricRow>();
  readonly #bounced = new Map<string, MetricRow>();
  #toSuccess: HistogramRow | undefined;
  #toDelivery: HistogramRow | undefined;
  #inHandler: HistogramRow | undefined;
  #delays: HistogramRow | undefined;

  constructor({ core, codeOf }: MetricsContext, source: string, topic: string) {
    this.#core = core;
    this.#codeOf = codeOf;
    this.#labels = [source, topic];
    beginTopic(core, source, topic);
    this.#delivered = core.delivered.row(source, topic);
    this.#deferred = core.deferred.row(source, topic);
  }

  counted(kind: CountedKind): MetricRow {
    return (this.#counted[kind] ??= this.#core[FAMILY_OF[kind]].row(...this.#labels));
  }

  ended({ outcome, tookMs }: EventOf<'ended'>): void {
    let row = this.#attempts.get(outcome);
    if (row === undefined) {
      row = this.#core.attempts.row(...this.#labels, outcome);
      this.#attempts.set(outcome, row);
    }
    row.value += 1;
    this.#inHandler ??= this.#core.handlerDuration.row(...this.#labels);
    observe(this.#inHandler, tookMs / 1_000);
  }

  noteDelivered({ attempt, ageMs }: EventOf<'delivered'>): void {
    this.#delivered.value += 1;
    this.#toSuccess ??= this.#core.attemptsToSuccess.row(...this.#labels);
    observe(this.#toSuccess, attempt);
    this.#toDelivery ??= this.#core.timeToDelivery.row(...this.#labels);
    observe(this.#toDelivery, ageMs / 1_000);
  }

  noteDeferred({ at, dueAt, because, lane }: EventOf<'deferred'>): void {
    this.#deferred.value += 1;
    // What may be given up for the same reason has a row before it is: a rate over a series that
    // appears late misses its start.
    if (lane === 'delivery') this.bouncedBy(because.code);
    this.#delays ??= this.#core.retryDelay.row(...this.#labels);
    observe(this.#delays, (dueAt - at) / 1_000);
  }

  bouncedBy(code: string): MetricRow {
    const known = this.#bounced.get(code);
    if (known !== undefined) return known;
    const label = this.#codeOf(code);
    const row = this.#core.bounced.row(...this.#labels, label);
    if (label === code) this.#bounced.set(code, row);
    return row;
  }
}

// A number that is counted elsewhere, as a counter that never decreases: its increase
// is added, even if others add to the same row, and even if its owner began again at 0.

/** Adds to the row what the count grew by since the last call, at first since now. */
export function growthOf(count: () => number, row: MetricRow): () => void {
  let before = count();
  return () => {
    const now = count();
    // Less than before: its owner was restarted and counts from 0.
    row.value += now < before ? now : now - before;
    before = now;
  };
}
