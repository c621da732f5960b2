/**
 * families — rows of plain numbers under names, which a registry of `@prometheus-io/client` reads
 * when it is scraped.
 *
 *   families.counter({ name, help, labels? }) ─┐
 *   families.gauge({ name, help, labels? })   ─┼▶ family.row(...values) ─▶ row   find or make one
 *   families.histogram({ …, bounds })         ─┘   row.value += 1   observe(row, seconds)
 *                                                  family.drop(...values)   family.clear()
 *   families.look({ read, onFailure })
 *                                asks a store or broker for a scrape: at most once in `everyMs`,
 *                                 never twice at once; a scrape waits at most 2 s for all of them
 *   families.atScrape(collect)    after the looks, at every scrape: copies numbers into gauges
 *   families.close()              takes everything out of the registry again
 *
 * A name is given without the prefix; one with `prefix: ''` is an alias and stands as it is. The
 * values of labels come in the order of `labels`. Anyone who makes rows bounds their number
 * (context.ts).
 *
 * Why not the library's own counters: `inc()` looks labels up by building a key of them, for each
 * event. A row is found once and is then one addition (bench/observe.ts).
 *
 * Why: docs/decisions/0040-metrics-are-rows-of-numbers.md
 */

import type { Metric, Registry } from '@prometheus-io/client';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { endsWithin, memo } from '../../system/wait.ts';

/**
 * Maximum wait of a scrape for stores and brokers; then the previous values are reported. Also in
 * docs/reference/metrics.md and docs/reference/http-api.md.
 */
const SCRAPE_WAIT_MS = 2_000;

/** What the values of the labels are. */
type LabelValues = Readonly<Record<string, string>>;

/** A family: its name without the prefix, its help text, and the names of its labels. */
export interface FamilyShape {
  readonly name: string;
  readonly help: string;
  readonly labels?: readonly string[];
  /** Default that of all families; `''` for a name of another system. */
  readonly prefix?: string;
}

/** A histogram: upper bounds, ascending; what is above the last is counted as `+Inf`. */
interface HistogramShape extends FamilyShape {
  readonly bounds: readonly number[];
}

/** One counter or gauge. A counter only grows. */
export interface MetricRow {
  readonly labels: LabelValues;
  value: number;
}

/** One histogram; filled by `observe`. */
export interface HistogramRow {
  readonly labels: LabelValues;
  readonly bounds: readonly number[];
  /** How many fell under each bound and above the one before it; the last: above all. */
  readonly counts: number[];
  sum: number;
}

/** Counts a value; what is below 0, by a clock that was set back, counts as 0. */
export function observe(row: HistogramRow, value: number): void {
  const { bounds, counts } = row;
  const last = bounds.length;
  let at = 0;
  while (at < last && value > (bounds[at] as number)) at += 1;
  counts[at] = (counts[at] as number) + 1;
  if (value > 0) row.sum += value;
}

/** Rows under one name. */
interface Family<R> {
  /** With its prefix. */
  readonly name: string;
  /** The row of these values of the labels; made at its first use. */
  row(...values: readonly string[]): R;
  drop(...values: readonly string[]): void;
  clear(): void;
}

export type NumberFamily = Family<MetricRow>;
export type HistogramFamily = Family<HistogramRow>;

/** What the families of one `createMetrics` stand on. */
interface FamiliesOptions {
  readonly registry: Registry;
  readonly prefix: string;
  readonly everyMs: number;
  readonly clock: Clock;
}

/** All families of one registry. */
export class Families {
  readonly #options: FamiliesOptions;
  readonly #names: string[] = [];
  readonly #looks = new Set<ScrapeQuery>();
  readonly #collectors = new Set<() => void>();
  #gathering: Promise<void> | undefined;

  constructor(options: FamiliesOptions) {
    this.#options = options;
  }

  counter(shape: FamilyShape): NumberFamily {
    return this.#numbers('counter', shape);
  }

  gauge(shape: FamilyShape): NumberFamily {
    return this.#numbers('gauge', shape);
  }

  histogram(shape: HistogramShape): HistogramFamily {
    const { bounds } = shape;
    return this.#add<HistogramRow>('histogram', shape, {
      make: (labels) => ({ labels, bounds, counts: bounds.map(() => 0).concat(0), sum: 0 }),
      zero: (row) => {
        row.counts.fill(0);
        row.sum = 0;
      },
      samplesOf: histogramSamples,
    });
  }

  /** Asks for a scrape, and no more often than every `everyMs`. */
  look(options: Omit<ScrapeQueryOptions, 'everyMs' | 'clock'>): ScrapeQuery {
    const { everyMs, clock } = this.#options;
    const look = makeScrapeQuery({ ...options, everyMs, clock }, () => this.#looks.delete(look));
    this.#looks.add(look);
    return look;
  }

  /** Runs at every scrape; returns the way to stop. Must be quick and must not throw. */
  atScrape(collect: () => void): () => void {
    this.#collectors.add(collect);
    return () => this.#collectors.delete(collect);
  }

  /** Takes every family out of the registry. */
  close(): void {
    for (const name of this.#names) this.#options.registry.removeSingleMetric(name);
    for (const look of this.#looks) look.stop();
    this.#collectors.clear();
  }

  #numbers(type: 'counter' | 'gauge', shape: FamilyShape): NumberFamily {
    return this.#add<MetricRow>(type, shape, {
      make: (labels) => ({ labels, value: 0 }),
      zero: (row) => {
        row.value = 0;
      },
      samplesOf: (_, row) => [row],
    });
  }

  #add<R>(type: string, shape: FamilyShape, kind: RowKind<R>): Family<R> {
    const { registry, prefix: usual } = this.#options;
    const { prefix = usual, labels = [], help } = shape;
    const name = prefix === '' ? shape.name : `${prefix}_${shape.name}`;
    if (registry.getSingleMetric(name) !== undefined) throw taken(name);
    const rows = new Map<string, R>();
    // n.b. a registry that speaks OpenMetrics takes `_total` off this name, and puts it to samples.
    const metric = {
      name,
      help,
      type,
      aggregator: 'sum',
      get: async () => {
        await this.#gather();
        const values = Array.from(rows.values(), (row) => kind.samplesOf(metric.name, row)).flat();
        return { name: metric.name, help, type, aggregator: 'sum', values };
      },
      reset: () => {
        for (const row of rows.values()) kind.zero(row);
      },
    };
    // The registry reads these members and no others (registry.js), but its types name classes.
    registry.registerMetric(metric as unknown as Metric);
    this.#names.push(name);
    return {
      name,
      row: (...values) => {
        const key = JSON.stringify(values);
        const row = rows.get(key) ?? kind.make(labelled(name, labels, values));
        rows.set(key, row);
        return row;
      },
      drop: (...values) => {
        rows.delete(JSON.stringify(values));
      },
      clear: () => rows.clear(),
    };
  }

  /** Once for all families of a scrape, which ask for it in the same turn of the loop. */
  #gather(): Promise<void> {
    this.#gathering ??= this.#gatherNow().finally(() => {
      this.#gathering = undefined;
    });
    return this.#gathering;
  }

  async #gatherNow(): Promise<void> {
    const looks = Promise.all(Array.from(this.#looks, (look) => look.refresh()));
    await endsWithin(this.#options.clock, SCRAPE_WAIT_MS, looks);
    for (const collect of this.#collectors) collect();
  }
}

interface RowKind<R> {
  readonly make: (labels: LabelValues) => R;
  readonly zero: (row: R) => void;
  readonly samplesOf: (name: string, row: R) => readonly Sample[];
}

/** As the library wants it. */
interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly metricName?: string;
}

function histogramSamples(name: string, row: HistogramRow): Sample[] {
  const { labels, bounds, counts, sum } = row;
  let count = 0;
  const samples: Sample[] = counts.map((one, at) => {
    count += one;
    const le = bounds[at] ?? '+Inf';
    return { labels: { ...labels, le }, value: count, metricName: `${name}_bucket` };
  });
  samples.push({ labels, value: sum, metricName: `${name}_sum` });
  samples.push({ labels, value: count, metricName: `${name}_count` });
  return samples;
}

function labelled(
  family: string,
  names: readonly string[],
  values: readonly string[],
): LabelValues {
  if (names.length !== values.length) {
    throw new RespoolError(
      'config.invalid',
      `cannot make a row of "${family}" of ${values.length} values: it has ${names.length} labels`,
    );
  }
  return Object.fromEntries(names.map((name, at) => [name, values[at] as string]));
}

function taken(name: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot register metric "${name}": the registry has one of that name already; ` +
      'make metrics once for a registry, or give the second a "prefix" of its own',
  );
}

/**
 * The rest after a look, as a multiple of how long it took; as MEASURE_MEMO of alerts has it. Also
 * in docs/reference/metrics.md.
 */
const REST_TIMES = 19;

/** What is asked, and what is done with the answer. */
interface ScrapeQueryOptions {
  /** Queries, and puts the answer into rows at once; what it throws goes to `onFailure`. */
  readonly read: () => Promise<void>;
  readonly onFailure: (error: unknown) => void;
  /** False: there is nothing to query at present. */
  readonly isThere?: () => boolean;
  readonly everyMs: number;
  readonly clock: Clock;
}

/** A source of values that is queried now and then. */
interface ScrapeQuery {
  /** Asks if it is time, or joins a question in flight; never rejects. */
  refresh(): Promise<void>;
  /** Since the last answer; since the beginning, when there was none. */
  readonly ageMs: number;
  stop(): void;
}

/** Nothing is asked before the first `refresh`. */
function makeScrapeQuery(
  { read, onFailure, isThere, everyMs, clock }: ScrapeQueryOptions,
  onStop: () => void,
): ScrapeQuery {
  let answeredAt = clock.monotonic();
  let isStopped = false;
  const asked = memo(clock, { everyMs, restTimes: REST_TIMES });
  const ask = async (): Promise<void> => {
    try {
      await read();
      answeredAt = clock.monotonic();
    } catch (error) {
      if (!isStopped) onFailure(error);
    }
  };
  return {
    refresh() {
      if (isStopped || isThere?.() === false) return Promise.resolve();
      return asked.get('', ask);
    },
    get ageMs() {
      return clock.monotonic() - answeredAt;
    },
    stop() {
      isStopped = true;
      onStop();
    },
  };
}
