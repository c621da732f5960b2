/**
 * condition — the condition of an alert rule as data, and printed as text.
 *
 * Pure. parse.ts makes conditions of text; `printCondition` of one is read as the same condition.
 */

import { formatDuration, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import type { State } from '../../core/state.ts';

/** What can be measured. */
export type MeasureName =
  | 'bounce rate'
  | 'failure rate'
  | 'count'
  | 'oldest'
  | 'dead queue'
  | 'queue'
  | 'outbox lag'
  | 'outbox backlog'
  | 'disk'
  | 'store'
  | 'consumer'
  | 'relay'
  | 'time to full'
  | 'time to drain';

/** One thing that is measured. */
export interface Measure {
  readonly name: MeasureName;
  /** Of `count` and `oldest`. */
  readonly state?: State;
  /** A topic pattern, the name of a queue, or `outbox` of a time to drain. */
  readonly of?: MeasureTarget;
  /** Of rates: the window that ends now. */
  readonly overMs?: number;
}

/** What a measure is narrowed to. */
export type MeasureTarget =
  | { readonly kind: 'topic'; readonly pattern: string }
  | { readonly kind: 'queue'; readonly queue: string }
  | { readonly kind: 'outbox' };

/** In what a value is measured; `down` is 1 for down, 0 for up. */
export type Unit = 'percent' | 'count' | 'ms' | 'bytes' | 'down';

/** How a value is compared. */
export type Comparison = '>' | '>=' | '<' | '<=';

/** When a rule fires. */
export interface Condition {
  readonly measure: Measure;
  readonly comparison: Comparison;
  readonly value: number;
  readonly unit: Unit;
  /** So long it has to hold; 0: at once. */
  readonly forMs: number;
}

/** The window of rates that name none. Also in docs/reference/alerts.md. */
export const OVER_DEFAULT_MS: number = 5 * MINUTE_MS;

/** The words for states in conditions. */
export const STATE_WORDS: Readonly<Record<string, State>> = {
  incoming: 'incoming',
  active: 'active',
  deferred: 'deferred',
  held: 'hold',
  bounce: 'bounce',
  archived: 'archived',
};

/** Sizes that are written with a unit. */
export const BYTES: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
};

/** Whether a value fulfils the condition. */
export function fulfils({ comparison, value }: Condition, measured: number): boolean {
  switch (comparison) {
    case '>':
      return measured > value;
    case '>=':
      return measured >= value;
    case '<':
      return measured < value;
    default:
      return measured <= value;
  }
}

/** The condition as text, in one way of writing. */
export function printCondition({ measure, comparison, value, unit, forMs }: Condition): string {
  const held = forMs === 0 ? '' : ` for ${formatDuration(forMs)}`;
  if (unit === 'down') return `${printMeasure(measure)} down${held}`;
  return `${printMeasure(measure)} ${comparison} ${printValue(value, unit)}${held}`;
}

/** The measure as text. */
export function printMeasure({ name, state, of, overMs }: Measure): string {
  const word = Object.entries(STATE_WORDS).find(([, meant]) => meant === state)?.[0];
  const what = word === undefined ? name : `${name} ${word}`;
  const window =
    overMs === undefined || overMs === OVER_DEFAULT_MS ? '' : ` over ${formatDuration(overMs)}`;
  return `${what}${targetText(name, of)}${window}`;
}

function targetText(name: MeasureName, of: MeasureTarget | undefined): string {
  if (of === undefined) return '';
  if (of.kind === 'topic') return ` of ${of.pattern}`;
  if (of.kind === 'outbox') return ' of outbox';
  const isOwn = name === 'queue' || name === 'dead queue';
  return `${isOwn ? '' : ' of'} "${of.queue}"`;
}

/** A value of a condition with its unit, exactly. */
function printValue(value: number, unit: Unit): string {
  switch (unit) {
    case 'percent':
      return `${value} %`;
    case 'ms':
      return formatDuration(value);
    case 'bytes':
      return bytesText(value);
    case 'down':
      return value === 0 ? 'up' : 'down';
    default:
      return String(value);
  }
}

/** A value that was measured, for people: not more exact than it is. */
export function printReading(value: number, unit: Unit): string {
  if (value === Number.POSITIVE_INFINITY) return 'never';
  if (unit === 'percent') return printValue(rounded(value), unit);
  if (unit === 'ms' && value >= SECOND_MS) {
    return formatDuration(Math.round(value / SECOND_MS) * SECOND_MS);
  }
  if (unit !== 'bytes') return printValue(Math.round(value), unit);
  const units = ['TiB', 'GiB', 'MiB', 'KiB'] as const;
  const found = units.find((one) => value >= (BYTES[one] ?? 1)) ?? 'B';
  return `${rounded(value / (BYTES[found] ?? 1))} ${found}`;
}

function bytesText(value: number): string {
  const [unit = 'B', size = 1] =
    Object.entries(BYTES)
      .filter(([, one]) => one <= value && Number.isInteger(value / one))
      .toSorted(([, a], [, b]) => b - a)[0] ?? [];
  return `${value / size} ${unit}`;
}

/** To hundredths: more would only look exact. */
function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}
