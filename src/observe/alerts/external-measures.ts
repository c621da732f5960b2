/**
 * external-measures — measures of what surrounds a spool: the disk of its store, queues of
 * RabbitMQ, an outbox.
 *
 * Promise: everybody is asked as sparingly as the store, and each look is noted: so the course of a
 * backlog is known as soon as a rule is about it.
 */

import { MINUTE_MS, type Millis } from '../../core/duration.ts';
import { TREND_WINDOW_MS, Trend } from '../../core/forecast.ts';
import type { Clock } from '../../ports/clock.ts';
import { type Memo, type MemoOptions, memo } from '../../system/wait.ts';
import type { Measure, MeasureTarget, Unit } from './condition.ts';

/**
 * Asking is at most a twentieth of the time, however often rules are looked at and however many
 * messages there are. An answer that has not come in a minute is not waited for. Also in
 * docs/reference/alerts.md.
 */
export const MEASURE_MEMO: MemoOptions = { restTimes: 19, giveUpMs: MINUTE_MS };

/** A value, or why there is none. */
export type MeasureReading =
  | { readonly value: number }
  | {
      readonly why: string;
      /** That is so at every start, and will pass. */
      readonly isEarly?: true;
    };

/** Space on a disk. */
export interface DiskSpace {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** How many messages a queue has. */
export interface QueueDepth {
  readonly queue: string;
  readonly depth: number;
}

/** Who knows what is not in the spool; none of them: there is nothing of the kind. */
export interface ExternalMeasures {
  /** Of the disk of the store. */
  readonly disk?: () => Promise<DiskSpace>;
  /** The dead queues of the consumers, or the one of this name. */
  readonly deadQueues?: () => Promise<readonly QueueDepth[]>;
  readonly queueDepth?: (queue: string) => Promise<number>;
  readonly consumers?: () => readonly { readonly queue: string; readonly isConnected: boolean }[];
  /** Whether the relay's target answers, and its database. */
  readonly relay?: () => 'up' | 'down';
  readonly outbox?: () => Promise<{ readonly backlog: number; readonly lagMs: number }>;
}

/** A backlog beside the spool. */
type ExternalMeasure =
  | Exclude<MeasureTarget, { readonly kind: 'topic' }>
  | { readonly kind: 'dead' };

/** The backlog beside the spool that a measure is about; undefined: it is about the spool. */
export function externalMeasureOf({ name, of }: Measure): ExternalMeasure | undefined {
  if (of !== undefined && of.kind !== 'topic') return of;
  if (name === 'dead queue') return { kind: 'dead' };
  const isOfOutbox = name === 'outbox lag' || name === 'outbox backlog' || name === 'relay';
  return isOfOutbox ? { kind: 'outbox' } : undefined;
}

/** Where a backlog goes at the present rates. */
export interface BacklogForecast {
  /** `spool`, `outbox`, `dead queues`, or `queue "name"`. */
  readonly of: string;
  readonly backlog: number;
  /** null: it is not draining, or unknown yet. */
  readonly drainsInMs: number | null;
  /** Of the spool: until the disk of its store is full; null: never, or unknown. */
  readonly fullInMs: number | null;
}

/** Asks them. */
export class MeasureSource {
  readonly #parts: ExternalMeasures;
  readonly #now: () => Millis;
  readonly #rested: Memo;
  readonly #trends = new Map<string, Trend>();

  constructor(parts: ExternalMeasures, clock: Pick<Clock, 'monotonic'>, now: () => Millis) {
    this.#parts = parts;
    this.#now = now;
    this.#rested = memo(clock, MEASURE_MEMO);
  }

  /** What is free. */
  async disk(unit: Unit): Promise<MeasureReading> {
    const { freeBytes, totalBytes } = await this.#space();
    if (unit === 'bytes') return { value: freeBytes };
    return totalBytes > 0 ? { value: (freeBytes / totalBytes) * 100 } : { why: SIZELESS };
  }

  /** Until the disk is full; null: never; undefined: unknown yet. */
  async full(): Promise<number | null | undefined> {
    const { totalBytes } = await this.#space();
    if (!(totalBytes > 0)) throw new Error(SIZELESS);
    return this.#trend('disk').endsInMs;
  }

  async #space(): Promise<DiskSpace> {
    const space = await this.#ask('disk');
    this.#trend('disk').add(this.#now(), space.freeBytes);
    return space;
  }

  /** How long the oldest message that could have been sent has been waiting. */
  async lagMs(): Promise<number> {
    const { backlog, lagMs } = await this.#ask('outbox');
    this.#trend('outbox').add(this.#now(), backlog);
    return lagMs;
  }

  relay(): MeasureReading {
    return { value: this.#need('relay')() === 'down' ? 1 : 0 };
  }

  consumer({ of }: Measure): MeasureReading {
    const all = this.#need('consumers')();
    const meant = of?.kind === 'queue' ? all.filter(({ queue }) => queue === of.queue) : all;
    if (meant.length === 0) return { why: 'there is no such consumer' };
    return { value: meant.some(({ isConnected }) => !isConnected) ? 1 : 0 };
  }

  /** How many messages are there. */
  async depth(of: ExternalMeasure): Promise<number> {
    const depth = await this.#depth(of);
    this.#trend(keyOf(of)).add(this.#now(), depth);
    return depth;
  }

  /** Until none is left; null: never; undefined: unknown yet. */
  async drainsInMs(of: ExternalMeasure): Promise<number | null | undefined> {
    await this.depth(of);
    return this.#trend(keyOf(of)).endsInMs;
  }

  async forecast(of: ExternalMeasure): Promise<BacklogForecast> {
    const backlog = await this.depth(of);
    const drainsInMs = this.#trend(keyOf(of)).endsInMs ?? null;
    return { of: nameOf(of), backlog, drainsInMs, fullInMs: null };
  }

  async #depth(of: ExternalMeasure): Promise<number> {
    if (of.kind === 'outbox') return (await this.#ask('outbox')).backlog;
    if (of.kind === 'dead') {
      return (await this.#ask('deadQueues')).reduce((sum, { depth }) => sum + depth, 0);
    }
    const ask = this.#need('queueDepth');
    return this.#rested.get(keyOf(of), () => ask(of.queue));
  }

  #trend(key: string): Trend {
    const found = this.#trends.get(key) ?? new Trend(TREND_WINDOW_MS);
    this.#trends.set(key, found);
    return found;
  }

  #need<K extends keyof ExternalMeasures>(what: K): NonNullable<ExternalMeasures[K]> {
    const found = this.#parts[what];
    if (found === undefined) throw new Error(MISSING[what]);
    return found;
  }

  async #ask<K extends 'disk' | 'deadQueues' | 'outbox'>(
    what: K,
  ): Promise<Awaited<ReturnType<NonNullable<ExternalMeasures[K]>>>> {
    const ask: () => Promise<unknown> = this.#need(what);
    const answer = await this.#rested.get(what, ask);
    return answer as Awaited<ReturnType<NonNullable<ExternalMeasures[K]>>>;
  }
}

function keyOf(of: ExternalMeasure): string {
  return of.kind === 'queue' ? `queue ${of.queue}` : of.kind;
}

function nameOf(of: ExternalMeasure): string {
  if (of.kind === 'queue') return `queue "${of.queue}"`;
  return of.kind === 'dead' ? 'dead queues' : 'outbox';
}

/** Of some file systems: nothing of it is free, and nothing is used. */
const SIZELESS = 'the disk of the store does not tell its size';

const MISSING: Readonly<Record<keyof ExternalMeasures, string>> = {
  disk: 'the store is not on a disk of this machine',
  deadQueues: 'the configuration has no consumers',
  queueDepth: 'the configuration has no broker: name it as "rabbit.url"',
  consumers: 'the configuration has no consumers',
  relay: 'the configuration has no relay',
  outbox: 'the configuration has no outbox',
};
