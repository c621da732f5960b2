/**
 * throughput — what went through an engine within the last minute, from its events; the forecast
 * of a backlog at such rates, and how soon the disk of a store is full (`DiskMeter`).
 */

import { type Millis, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { EventKind, EventOf } from '../../core/event.ts';
import {
  drainsInMs,
  RATE_WINDOW_MIN_MS,
  type Forecast,
  Trend,
  TREND_WINDOW_MS,
} from '../../core/forecast.ts';
import type { SpoolInternals } from '../internals.ts';
import type { Spread, Throughput } from './operator.ts';
import type { Clock } from '../../ports/clock.ts';

/** Also in docs/reference/alerts.md and docs/reference/metrics.md. */
const WINDOW_S = 60;
/** Maximum number of deliveries whose times are kept: the last ones. */
const TIMES_MAX = 2_000;

const COUNTED = ['accepted', 'delivered', 'deferred', 'bounced', 'held'] as const;
type Counted = (typeof COUNTED)[number] & EventKind;

interface Second {
  second: number;
  readonly counts: Record<Counted, number>;
}

interface Times {
  readonly at: Millis;
  readonly tookMs: number;
  readonly ageMs: number;
}

/** Listens to a spool from now on. */
export class ThroughputMeter {
  readonly #spool: SpoolInternals;
  #beganAt: Millis;
  readonly #seconds: Second[] = Array.from({ length: WINDOW_S }, emptySecond);
  readonly #times: Times[] = [];
  #oldest = 0;
  readonly #stops: (() => void)[];

  constructor(spool: SpoolInternals) {
    this.#spool = spool;
    this.#beganAt = spool.now();
    this.#stops = COUNTED.map((kind) =>
      spool.on(kind, (event) => {
        // A notice is about a message that has bounced already.
        if (!('lane' in event) || event.lane === 'delivery') this.#count(kind, event.at);
      }),
    );
    this.#stops.push(spool.on('delivered', (event) => this.#time(event)));
  }

  /** The last minute, or what there was of it. */
  get flow(): Throughput {
    const now = this.#spool.now();
    // The clock went back: the window restarts.
    this.#beganAt = Math.min(this.#beganAt, now);
    const last = secondOf(now);
    const first = last - WINDOW_S + 1;
    const isWithin = (second: number): boolean => second >= first && second <= last;
    const counts = emptySecond().counts;
    for (const one of this.#seconds) {
      if (!isWithin(one.second)) continue;
      for (const kind of COUNTED) counts[kind] += one.counts[kind];
    }
    const times = this.#times.filter(({ at }) => isWithin(secondOf(at)));
    return {
      windowMs: Math.max(0, Math.min(WINDOW_S * SECOND_MS, now - this.#beganAt)),
      ...counts,
      tookMs: spreadOf(times.map(({ tookMs }) => tookMs)),
      ageMs: spreadOf(times.map(({ ageMs }) => ageMs)),
    };
  }

  /** Listens no more. */
  stop(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }

  #count(kind: Counted, at: Millis): void {
    const second = secondOf(at);
    const slot = this.#seconds[second % WINDOW_S];
    if (slot === undefined) return;
    if (slot.second !== second) {
      slot.second = second;
      for (const each of COUNTED) slot.counts[each] = 0;
    }
    slot.counts[kind] += 1;
  }

  #time({ at, tookMs, ageMs }: EventOf<'delivered'>): void {
    const times = { at, tookMs, ageMs };
    if (this.#times.length < TIMES_MAX) this.#times.push(times);
    else this.#times[this.#oldest++ % TIMES_MAX] = times;
  }
}

/** Where a backlog goes at the rates of a flow; one that has just begun does not tell. */
export function forecastOf(flow: Throughput, backlog: number, fullInMs: number | null): Forecast {
  const seconds = Math.max(SECOND_MS, flow.windowMs) / SECOND_MS;
  const inPerSecond = flow.accepted / seconds;
  const outPerSecond = (flow.delivered + flow.bounced + flow.held) / seconds;
  const isEarly = backlog > 0 && flow.windowMs < RATE_WINDOW_MIN_MS;
  const drains = isEarly ? null : drainsInMs(backlog, { inPerSecond, outPerSecond });
  return { backlog, inPerSecond, outPerSecond, drainsInMs: drains, fullInMs };
}

function emptySecond(): Second {
  return { second: 0, counts: { accepted: 0, delivered: 0, deferred: 0, bounced: 0, held: 0 } };
}

function secondOf(at: Millis): number {
  return Math.floor(at / SECOND_MS);
}

function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    round(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0);
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) };
}

/** To tenths of a millisecond: more would only look exact. */
function round(ms: number): number {
  return Math.round(ms * 10) / 10;
}

// How soon the disk of a store is full, from looks at it every minute.

const EVERY_MS: number = MINUTE_MS;

/** Looks at a disk from its making until it is stopped. */
export class DiskMeter {
  readonly #freeBytes: () => Promise<number>;
  readonly #clock: Clock;
  readonly #trend = new Trend(TREND_WINDOW_MS);
  #callOff: () => void = () => undefined;
  #isOver = false;

  constructor(freeBytes: () => Promise<number>, clock: Clock) {
    this.#freeBytes = freeBytes;
    this.#clock = clock;
    void this.#look();
  }

  /** null: it is not filling up, or not known yet. */
  get fullInMs(): number | null {
    return this.#trend.endsInMs ?? null;
  }

  /** Looks no more. */
  stop(): void {
    this.#isOver = true;
    this.#callOff();
  }

  async #look(): Promise<void> {
    try {
      this.#trend.add(this.#clock.now(), await this.#freeBytes());
    } catch {
      // A disk that says nothing now is asked again; doctor and alerts report it.
    }
    if (!this.#isOver) this.#callOff = this.#clock.after(EVERY_MS, () => void this.#look());
  }
}
