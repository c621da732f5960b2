/** sliding-window — how many of one kind and of another there were within a span that ends now. */

import type { Millis } from '../../core/duration.ts';

/** A span is counted in this many parts. */
const PARTS = 60;

interface Part {
  index: number;
  all: number;
  marked: number;
}

/** The parts of a window in which there was something: number, all, marked. */
export type WindowParts = readonly (readonly [index: number, all: number, marked: number])[];

/** What one process has counted, by the names of its windows. */
export type WindowRates = Readonly<Record<string, WindowParts>>;

/** Counts over a sliding span, in bounded memory. */
export class SlidingWindow {
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
