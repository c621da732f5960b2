/**
 * duration — durations as people write them, converted to milliseconds and back.
 *
 * `'250ms'`, `'15m'`, `'1h30m'`, `'7d'` or a number of milliseconds. Inside, every span is a `…Ms`
 * number.
 */

import { RespoolError, show } from './errors.ts';

/** Milliseconds, or a string like `'250ms'`, `'15m'`, `'1h30m'`, `'7d'`. */
export type Duration = number | string;

/** Milliseconds since the epoch. */
export type Millis = number;

export const SECOND_MS = 1_000;
export const MINUTE_MS: number = 60 * SECOND_MS;
export const HOUR_MS: number = 60 * MINUTE_MS;
export const DAY_MS: number = 24 * HOUR_MS;

/**
 * No span in Respool is longer than this: a hundred years. Also in docs/reference/limits.md and
 * docs/reference/alerts.md.
 */
export const DURATION_MAX_MS: number = 36_525 * DAY_MS;

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: SECOND_MS,
  m: MINUTE_MS,
  h: HOUR_MS,
  d: DAY_MS,
};

const SHAPE = /^(?:\d+(?:\.\d+)? *(?:ms|s|m|h|d) *)+$/;
const PART = /(\d+(?:\.\d+)?) *(ms|s|m|h|d)/g;
const TEXT_MAX_CHARS = 64;

/** What a duration may be, for error texts. */
const ALLOWED = "milliseconds (0 or more) or a string like '250ms', '15m', '1h30m', '7d'";

/** Turns a duration into whole milliseconds; `what` names the setting in the error. */
export function durationMs(
  duration: Duration,
  what: string,
  { minMs = 0, maxMs = DURATION_MAX_MS }: { minMs?: number; maxMs?: number } = {},
): number {
  const ms = typeof duration === 'number' ? duration : parse(duration);
  if (ms === undefined || !Number.isFinite(ms) || ms < 0) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(duration)} as "${what}": allowed is ${ALLOWED}`,
    );
  }
  const whole = Math.ceil(ms);
  if (whole < minMs || whole > maxMs) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(duration)} as "${what}": allowed is ` +
        `${formatDuration(minMs)} to ${formatDuration(maxMs)}`,
    );
  }
  return whole;
}

function parse(text: unknown): number | undefined {
  if (typeof text !== 'string') return undefined;
  const trimmed = text.length > TEXT_MAX_CHARS ? '' : text.trim();
  if (trimmed === '0') return 0;
  if (!SHAPE.test(trimmed)) return undefined;
  let totalMs = 0;
  for (const [, amount, unit] of trimmed.matchAll(PART)) {
    totalMs += Number(amount) * (UNITS_MS[unit ?? ''] ?? Number.NaN);
  }
  // 1.1 × 3,600,000 is slightly above 3,960,000: without this, rounding up adds a millisecond.
  return Number(totalMs.toPrecision(15));
}

/** The shortest exact way to write a span: `90_000` → `'1m30s'`. */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  let rest = Math.round(ms);
  let text = '';
  for (const unit of ['d', 'h', 'm', 's', 'ms'] as const) {
    const size = UNITS_MS[unit] ?? 1;
    const amount = Math.floor(rest / size);
    if (amount > 0) text += `${amount}${unit}`;
    rest -= amount * size;
  }
  return text;
}
