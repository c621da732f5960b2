/** times — times and durations as people read them: `3m ago`, `in 4h12m`, and the exact time. */

import { DAY_MS, HOUR_MS, type Millis, MINUTE_MS, SECOND_MS } from '../../core/duration.ts';

const UNITS: readonly (readonly [string, number])[] = [
  ['d', DAY_MS],
  ['h', HOUR_MS],
  ['m', MINUTE_MS],
  ['s', SECOND_MS],
];

/** A span in its two largest units: `4h12m`; below ten seconds with a tenth, or in ms. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return '?';
  const rest = Math.max(0, Math.round(ms));
  if (rest < SECOND_MS) return `${rest}ms`;
  if (rest < 10 * SECOND_MS) return `${(rest / SECOND_MS).toFixed(1).replace(/\.0$/, '')}s`;
  const first = UNITS.findIndex(([, size]) => rest >= size);
  const [unit, size] = UNITS[first] ?? ['s', SECOND_MS];
  const [below, belowSize] = UNITS[first + 1] ?? ['', 0];
  const amount = Math.floor(rest / size);
  const more = belowSize === 0 ? 0 : Math.floor((rest - amount * size) / belowSize);
  return more === 0 ? `${amount}${unit}` : `${amount}${unit}${more}${below}`;
}

/** A span in its largest unit alone, for narrow columns: `4h`. */
export function brief(ms: number): string {
  return /^[\d.]+[a-z]+|^\?/.exec(span(ms))?.[0] ?? '?';
}

/** How far away a moment is: `3m ago`, `in 4h`, `now`. */
export function relative(at: Millis, now: Millis): string {
  if (!Number.isFinite(at)) return '?';
  if (Math.abs(at - now) < SECOND_MS) return 'now';
  return at < now ? `${span(now - at)} ago` : `in ${span(at - now)}`;
}

/** The moment itself, in UTC. A time that no date can hold is shown as its number. */
export function exact(at: Millis): string {
  if (typeof at !== 'number') return '?';
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString();
}

/** The time of day, for lines that come as it happens. */
export function timeOfDay(at: Millis): string {
  return exact(at).replace(/^.*T/, '');
}

/** Both: `in 4h (2026-01-02T03:04:05.678Z)`. */
export function both(at: Millis, now: Millis): string {
  return `${relative(at, now)} (${exact(at)})`;
}

/** The first part of both, for narrow columns. */
export function withoutMoment(text: string): string {
  return text.replace(/ \(.*$/, '');
}
