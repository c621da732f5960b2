/**
 * measures — the measures of conditions: the spool by its counts and events, its surroundings
 * through the external measures; counts over a sliding window, and the forecast of a backlog.
 *
 * Promise: what cannot be measured is said, with the reason; it is never a number.
 */

import { type Millis, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { textOf } from '../../core/errors.ts';
import type { EventOf } from '../../core/event.ts';
import { drainsInMs } from '../../core/forecast.ts';
import type { State } from '../../core/state.ts';
import { topicMatches } from '../../core/topic.ts';
import { type Measure, printMeasure, type Unit } from './condition.ts';
import {
  type BacklogForecast,
  externalMeasureOf,
  type ExternalMeasures,
  type MeasureReading,
  MeasureSource,
  MEASURE_MEMO,
} from './external-measures.ts';
import { ALERT_TOPIC, isNoticeTopic } from './notice.ts';
import type { Clock } from '../../ports/clock.ts';
import type { TallyBy, TallyRow } from '../../ports/entry-store.ts';
import type { SpoolInternals } from '../../spool/internals.ts';
import type { ListFilter } from '../../spool/list.ts';
import { type Memo, memo } from '../../system/wait.ts';

/** A span is counted in this many parts. */
const PARTS = 60;

interface Part {
  index: number;
  all: number;
  marked: number;
}

/** The parts of a window in which there was something: number, all, marked. */
type WindowParts = readonly (readonly [index: number, all: number, marked: number])[];

/** What one process has counted, by the names of its windows. */
export type WindowRates = Readonly<Record<string, WindowParts>>;

/** Counts over a sliding span, in bounded memory. */
class SlidingWindow {
  readonly #partMs: number;
  readonly #spanMs: number;
  #beganAt: Millis;
  readonly #parts: Part[] = Array.from({ length: PARTS }, () => ({ index: -1, all: 0, marked: 0 }));

  constructor(spanMs: number, now: Millis) {
    this.#spanMs = spanMs;
    this.#partMs = Math.max(1, spanMs / PARTS);
    this.#beganAt = now;
  }

  /** One more; marked ones are counted apart as well. */
  add(at: Millis, isMarked: boolean): void {
    const index = Math.floor(at / this.#partMs);
    const part = this.#parts[index % PARTS];
    if (part === undefined) return;
    if (part.index !== index) Object.assign(part, { index, all: 0, marked: 0 });
    part.all += 1;
    if (isMarked) part.marked += 1;
  }

  /** What it has counted, to be added to that of a window of the same span elsewhere. */
  get parts(): WindowParts {
    const used = this.#parts.filter(({ all }) => all > 0);
    return used.map(({ index, all, marked }) => [index, all, marked]);
  }

  /** What there was here and elsewhere; the time is shorter than the span only after the start. */
  counts(
    now: Millis,
    elsewhere: readonly WindowParts[] = [],
  ): { readonly all: number; readonly marked: number; readonly ms: number } {
    this.#mind(now);
    const last = Math.floor(now / this.#partMs);
    let all = 0;
    let marked = 0;
    // Others may have begun before: what they counted was not counted since our start.
    let since = this.#beganAt;
    for (const [index, ofPart, markedOfPart] of [this.parts, ...elsewhere].flat()) {
      if (index <= last - PARTS || index > last) continue;
      all += ofPart;
      marked += markedOfPart;
      since = Math.min(since, index * this.#partMs);
    }
    return { all, marked, ms: Math.min(this.#spanMs, Math.max(0, now - since)) };
  }

  /** Whether it was there for the whole span. */
  isWhole(now: Millis): boolean {
    this.#mind(now);
    return now - this.#beganAt >= this.#spanMs;
  }

  /** A clock that went back: it has been there since now at the latest. */
  #mind(now: Millis): void {
    this.#beganAt = Math.min(this.#beganAt, now);
  }
}

/** Measures. */
export interface Measures {
  /** Never throws. Spans and times to something that never comes are Infinity. */
  read(measure: Measure, unit: Unit): Promise<MeasureReading>;
  /** The forecast of the backlog of the measure; undefined: unknown. */
  forecast(measure?: Measure): Promise<BacklogForecast | undefined>;
  /** What was counted here, for anyone who looks at the rules; undefined: no rule is about it. */
  rates?(): { readonly rates: WindowRates; readonly longestMs: number } | undefined;
  /** What others on the store have counted is added from now on. */
  hearOthers?(others: readonly WindowRates[]): void;
  /** Listens no more. */
  close(): void;
}

/** What measures are made of. */
interface MeasureOptions extends ExternalMeasures {
  readonly spool: Pick<SpoolInternals, 'now' | 'on' | 'tally'>;
  /** By which asking the store rests. */
  readonly clock: Pick<Clock, 'monotonic'>;
  /** Those that will be asked for: rates are counted from the start on. */
  readonly wanted: readonly Measure[];
}

/** The window of in and out for a forecast. Also in docs/reference/alerts.md. */
const FLOW_MS: number = 5 * MINUTE_MS;
/** Minimum window of rates for a forecast of when a backlog is gone. */
const DRAIN_LEAST_MS: number = MINUTE_MS;

/** Begins to count and to measure. */
export function createMeasures(parts: MeasureOptions): Measures {
  return new SpoolMeasures(parts);
}

class SpoolMeasures implements Measures {
  readonly #parts: MeasureOptions;
  readonly #rates = new Map<string, SlidingWindow>();
  /** Marked: what left. */
  readonly #flow: SlidingWindow;
  readonly #stops: (() => void)[] = [];
  readonly #tallies: Memo;
  readonly #around: MeasureSource;
  #others: readonly WindowRates[] = [];

  constructor(parts: MeasureOptions) {
    this.#parts = parts;
    this.#tallies = memo(parts.clock, MEASURE_MEMO);
    const { spool, wanted, clock } = parts;
    this.#around = new MeasureSource(parts, clock, () => spool.now());
    const now = spool.now();
    this.#flow = new SlidingWindow(FLOW_MS, now);
    for (const measure of wanted) {
      if (measure.overMs === undefined) continue;
      this.#rates.set(printMeasure(measure), new SlidingWindow(measure.overMs, now));
      this.#count(measure);
    }
    this.#stops.push(spool.on('accepted', ({ at, topic }) => this.#passed(at, topic, false)));
    for (const kind of ['delivered', 'bounced', 'held'] as const) {
      const hear = ({ at, topic, lane }: AboutEnd): void => {
        if (lane === 'delivery') this.#passed(at, topic, true);
      };
      this.#stops.push(spool.on(kind, hear));
    }
  }

  async read(measure: Measure, unit: Unit): Promise<MeasureReading> {
    try {
      return await this.#read(measure, unit);
    } catch (error) {
      return { why: `${printMeasure(measure)} cannot be measured: ${textOf(error)}` };
    }
  }

  async forecast(measure?: Measure): Promise<BacklogForecast | undefined> {
    try {
      const beside = measure === undefined ? undefined : externalMeasureOf(measure);
      return await (beside === undefined ? this.#forecastOfSpool() : this.#around.forecast(beside));
    } catch {
      // A failed forecast must not prevent the notification.
      return undefined;
    }
  }

  async #forecastOfSpool(): Promise<BacklogForecast> {
    const backlog = await this.#backlog();
    const drains = this.#drainsInMs(backlog) ?? null;
    // No disk, or one that cannot be asked: then it is not known when it is full, and nothing else.
    const fullInMs = await this.#around.full().catch(() => undefined);
    return { of: 'spool', backlog, drainsInMs: drains, fullInMs: fullInMs ?? null };
  }

  rates(): { readonly rates: WindowRates; readonly longestMs: number } | undefined {
    const isWanted = this.#parts.wanted.some(
      ({ name, of }) => this.#rates.size > 0 || (name === 'time to drain' && of === undefined),
    );
    if (!isWanted) return undefined;
    const counted = [...this.#rates].map(([key, window]) => [key, window.parts] as const);
    const spans = this.#parts.wanted.map(({ overMs = 0 }) => overMs);
    const rates = { ...Object.fromEntries(counted), [FLOW]: this.#flow.parts };
    return { rates, longestMs: Math.max(FLOW_MS, ...spans) };
  }

  hearOthers(others: readonly WindowRates[]): void {
    this.#others = others;
  }

  #elsewhere(key: string): readonly WindowParts[] {
    return this.#others.flatMap((rates) => (rates[key] === undefined ? [] : [rates[key]]));
  }

  close(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }

  async #read(measure: Measure, unit: Unit): Promise<MeasureReading> {
    switch (measure.name) {
      case 'bounce rate':
      case 'failure rate':
        return this.#rate(measure);
      case 'count':
        return { value: await this.#countOf(measure) };
      case 'oldest':
        return { value: await this.#oldest(measure) };
      case 'disk':
        return this.#around.disk(unit);
      case 'outbox lag':
        return { value: await this.#around.lagMs() };
      case 'outbox backlog':
      case 'queue':
      case 'dead queue':
        return this.#depth(measure);
      case 'relay':
        return this.#around.relay();
      case 'consumer':
        return this.#around.consumer(measure);
      case 'time to full':
        return never(await this.#around.full());
      case 'time to drain':
        return this.#drain(measure);
      default:
        // Anyone who looks knows whether the store answered.
        return { value: 0 };
    }
  }

  #rate(measure: Measure): MeasureReading {
    const now = this.#parts.spool.now();
    const key = printMeasure(measure);
    const window = this.#rates.get(key);
    const { all, marked } = window?.counts(now, this.#elsewhere(key)) ?? { all: 0, marked: 0 };
    if (all > 0) return { value: (marked / all) * 100 };
    // No event means something only if this process listened for the whole window.
    if (window?.isWhole(now) === true) return { value: 0 };
    return { why: 'nothing has ended since the start', isEarly: true };
  }

  async #countOf({ state, of }: Measure): Promise<number> {
    const states = state === undefined ? [] : [state];
    if (of?.kind !== 'topic') return this.#withoutNotices(states);
    return totalOf(await this.#tally('state', { state: states, topic: of.pattern }));
  }

  /** How many there are beside notifications: an alert must not keep itself alive. */
  async #withoutNotices(state: readonly State[]): Promise<number> {
    const all = totalOf(await this.#tally('state', { state }));
    if (all === 0) return 0;
    const notices = await this.#tally('state', { state, topic: `${ALERT_TOPIC}.#` });
    return Math.max(0, all - totalOf(notices));
  }

  #tally(by: TallyBy, filter: ListFilter): Promise<readonly TallyRow[]> {
    const question = JSON.stringify([by, filter]);
    return this.#tallies.get(question, () => this.#parts.spool.tally(by, filter));
  }

  async #oldest({ state, of }: Measure): Promise<number> {
    const states = state === undefined ? [] : [state];
    const asked = of?.kind === 'topic' ? { topic: of.pattern } : {};
    let oldestAt = oldestOf(await this.#aged('state', { ...asked, state: states }));
    if (of === undefined && oldestAt !== undefined) {
      const notices = { topic: `${ALERT_TOPIC}.#`, state: states };
      const isNotice = oldestOf(await this.#aged('state', notices)) === oldestAt;
      // Only then the topics are looked at one by one.
      if (isNotice) {
        const rows = await this.#aged('topic', { state: states });
        oldestAt = oldestOf(rows.filter(({ key }) => !isNoticeTopic(key)));
      }
    }
    return oldestAt === undefined ? 0 : Math.max(0, this.#parts.spool.now() - oldestAt);
  }

  /** Where a store does not know the oldest without a look at all, it is asked for that look. */
  async #aged(by: 'state' | 'topic', filter: ListFilter): Promise<readonly TallyRow[]> {
    const rows = await this.#tally(by, filter);
    const isOpen = rows.some(({ count, oldestAt }) => count > 0 && oldestAt === null);
    return isOpen ? this.#tally(by, { ...filter, enqueuedAfter: 0 }) : rows;
  }

  async #depth(measure: Measure): Promise<MeasureReading> {
    const beside = externalMeasureOf(measure);
    return beside === undefined
      ? { why: 'no queue is named' }
      : { value: await this.#around.depth(beside) };
  }

  async #drain(measure: Measure): Promise<MeasureReading> {
    const beside = externalMeasureOf(measure);
    if (beside === undefined) return never(this.#drainsInMs(await this.#backlog()));
    return never(await this.#around.drainsInMs(beside));
  }

  /** Undefined: not listening for long enough yet. */
  #drainsInMs(backlog: number): number | null | undefined {
    const { ms, ...rates } = this.#rateOfFlow();
    return backlog > 0 && ms < DRAIN_LEAST_MS ? undefined : drainsInMs(backlog, rates);
  }

  #rateOfFlow(): { inPerSecond: number; outPerSecond: number; ms: number } {
    const now = this.#parts.spool.now();
    const { all, marked, ms } = this.#flow.counts(now, this.#elsewhere(FLOW));
    const seconds = Math.max(1, ms / SECOND_MS);
    return { inPerSecond: (all - marked) / seconds, outPerSecond: marked / seconds, ms };
  }

  #backlog(): Promise<number> {
    return this.#withoutNotices(['incoming', 'active', 'deferred']);
  }

  #passed(at: Millis, topic: string, hasLeft: boolean): void {
    if (!isNoticeTopic(topic)) this.#flow.add(at, hasLeft);
  }

  /** Rates: what ended for good, or every attempt to deliver that was judged. */
  #count(measure: Measure): void {
    const { spool } = this.#parts;
    const window = this.#rates.get(printMeasure(measure));
    const hear = (event: EventOf<'delivered' | 'bounced' | 'deferred'>): void => {
      const { at, topic, kind, lane } = event;
      // A notice is about a message that has bounced already.
      if (lane === 'notice') return;
      const isMeant =
        measure.of?.kind === 'topic'
          ? topicMatches(measure.of.pattern, topic)
          : !isNoticeTopic(topic);
      if (!isMeant) return;
      // Deferred without a failure: there was no attempt.
      if (kind === 'deferred' && event.failure === undefined) return;
      window?.add(at, kind === 'bounced' || kind === 'deferred');
    };
    this.#stops.push(spool.on('delivered', hear), spool.on('bounced', hear));
    if (measure.name === 'failure rate') this.#stops.push(spool.on('deferred', hear));
  }
}

type AboutEnd = Pick<EventOf<'delivered'>, 'at' | 'topic' | 'lane'>;

/** The window of everything that comes and leaves. */
const FLOW = 'flow';

/** A time to something; what never comes is Infinity. */
function never(ms: number | null | undefined): MeasureReading {
  if (ms === undefined) return { why: 'it takes a minute to tell', isEarly: true };
  return { value: ms ?? Number.POSITIVE_INFINITY };
}

function oldestOf(rows: readonly TallyRow[]): Millis | undefined {
  const times = rows.flatMap(({ count, oldestAt }) =>
    count === 0 || oldestAt === null ? [] : [oldestAt],
  );
  return times.length === 0 ? undefined : Math.min(...times);
}

function totalOf(rows: readonly TallyRow[]): number {
  return rows.reduce((sum, { count }) => sum + count, 0);
}
