/** window — how many of one kind and of another there were within a span that ends now. */

import type { Millis } from '../../core/duration.ts';

/** A span is counted in so many parts. */
const PARTS = 60;

interface Part {
  index: number;
  all: number;
  marked: number;
}

/** Counts over a sliding span, in bounded memory. */
export class SlidingWindow {
  readonly #partMs: number;
  readonly #spanMs: number;
  readonly #beganAt: Millis;
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

  /** What there was, and within what time; shorter than the span only after the start. */
  counts(now: Millis): { readonly all: number; readonly marked: number; readonly ms: number } {
    const last = Math.floor(now / this.#partMs);
    let all = 0;
    let marked = 0;
    for (const part of this.#parts) {
      if (part.index <= last - PARTS || part.index > last) continue;
      all += part.all;
      marked += part.marked;
    }
    return { all, marked, ms: Math.min(this.#spanMs, Math.max(0, now - this.#beganAt)) };
  }

  /** Whether it was there for the whole span. */
  isWhole(now: Millis): boolean {
    return now - this.#beganAt >= this.#spanMs;
  }
}
