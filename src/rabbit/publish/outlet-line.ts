/**
 * outlet-line — the messages of an outlet in their order: those that wait, those on their way, and
 * when the time of each is over. One timer for all: they have the same limit, so the oldest is the
 * first.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Outgoing } from '../connection/amqp.ts';

/** A message that was handed over. */
export interface Sending {
  /** Taken off once it is settled: whoever still holds the rest shall not hold the body. */
  outgoing: Outgoing;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  readonly deadlineMs: number;
  place: 'waiting' | 'in-flight' | 'settled';
  /** When its time is over (monotonic). */
  endsAt: number;
  /** What the broker said when it gave it back. */
  returned: string | undefined;
  /** Tells it from others on their way that look alike; headers may lead them elsewhere. */
  token: number | undefined;
}

/** Which message came back. */
export interface ReturnedRoad {
  readonly exchange: string;
  readonly key: string;
  readonly messageId: string | undefined;
  readonly token: unknown;
}

const NOTHING: Outgoing = { exchange: '', key: '', content: Buffer.alloc(0), properties: {} };

/** Past so many settled ones at its head a list is cut. */
const CUT_AT = 1_024;

/** All messages of one outlet. */
export class OutletLine {
  readonly #clock: Clock;
  readonly #whyWaiting: () => RespoolError;
  readonly #onLate: () => void;
  /** All that are not settled, oldest first; settled ones in between are passed over. */
  #all: Sending[] = [];
  #allHead = 0;
  #waiting: Sending[] = [];
  #waitingHead = 0;
  readonly #inFlight = new Set<Sending>();
  /** The first of those on their way that look alike, by road and id. */
  readonly #firsts = new Map<string, Sending>();
  #tokens = 0;
  /** Settled ones that are still in the list of all. */
  #settled = 0;
  inFlightBytes = 0;
  waiting = 0;
  waitingBytes = 0;
  #cancelTimer: (() => void) | undefined;

  /** `onLate` is told after the time of some was over. */
  constructor(clock: Clock, whyWaiting: () => RespoolError, onLate: () => void) {
    this.#clock = clock;
    this.#whyWaiting = whyWaiting;
    this.#onLate = onLate;
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  add(parts: Pick<Sending, 'outgoing' | 'resolve' | 'reject' | 'deadlineMs'>): void {
    const endsAt = this.#clock.monotonic() + parts.deadlineMs;
    const sending: Sending = {
      ...parts,
      place: 'waiting',
      endsAt,
      returned: undefined,
      token: undefined,
    };
    this.#all.push(sending);
    this.#waiting.push(sending);
    this.waiting += 1;
    this.waitingBytes += parts.outgoing.content.length;
    if (this.#cancelTimer === undefined) this.#setTimer(parts.deadlineMs);
  }

  /** The first that waits. */
  peek(): Sending | undefined {
    for (;;) {
      const next = this.#waiting[this.#waitingHead];
      if (next === undefined || next.place === 'waiting') return next;
      this.#waitingHead += 1;
    }
  }

  /** The one that `peek` gave goes on its way. */
  take(): void {
    const sending = this.#waiting[this.#waitingHead];
    if (sending === undefined) return;
    this.#waitingHead += 1;
    if (this.#waitingHead >= CUT_AT || this.#waitingHead === this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#waitingHead);
      this.#waitingHead = 0;
    }
    this.#leave(sending);
    sending.place = 'in-flight';
    this.#inFlight.add(sending);
    const look = lookOf(sending.outgoing);
    if (this.#firsts.has(look)) sending.token = this.#tokens += 1;
    else this.#firsts.set(look, sending);
    this.inFlightBytes += sending.outgoing.content.length;
  }

  /** It was not sent after all, and is the first to go. */
  putBack(sending: Sending): void {
    if (sending.place !== 'in-flight') return;
    this.#leave(sending);
    sending.place = 'waiting';
    this.#waiting = [sending, ...this.#waiting.slice(this.#waitingHead)];
    this.#waitingHead = 0;
    this.waiting += 1;
    this.waitingBytes += sending.outgoing.content.length;
  }

  done(sending: Sending): void {
    if (sending.place === 'settled') return;
    this.#settle(sending);
    sending.outgoing = NOTHING;
    sending.resolve();
  }

  fail(sending: Sending, error: RespoolError): void {
    if (sending.place === 'settled') return;
    this.#settle(sending);
    sending.outgoing = NOTHING;
    sending.reject(error);
  }

  /** The broker gave one back: by its token, or the first that looks like it. */
  markReturned({ exchange, key, messageId, token }: ReturnedRoad, text: string): void {
    const look = lookOf({ exchange, key, properties: { messageId } });
    let found = this.#firsts.get(look);
    if (token !== undefined) {
      for (const one of this.#inFlight) if (one.token === token) found = one;
    }
    if (found !== undefined) found.returned = text;
  }

  failInFlight(fail: (sending: Sending) => void): void {
    for (const sending of this.#inFlight) fail(sending);
  }

  /** Those that wait for an exchange, or all that wait. */
  failWaiting(exchange: string | undefined, error: RespoolError): void {
    for (const sending of this.#waiting.slice(this.#waitingHead)) {
      const isMeant = exchange === undefined || sending.outgoing.exchange === exchange;
      if (sending.place === 'waiting' && isMeant) this.fail(sending, error);
    }
  }

  failAll(error: RespoolError): void {
    for (const sending of this.#all.slice(this.#allHead)) this.fail(sending, error);
  }

  /** No more timers. */
  end(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
  }

  #settle(sending: Sending): void {
    this.#leave(sending);
    sending.place = 'settled';
    this.#settled += 1;
    while (this.#all[this.#allHead]?.place === 'settled') this.#allHead += 1;
    // One that takes long must not keep all that came after it.
    const isMostlySettled = this.#settled >= CUT_AT && 2 * this.#settled > this.#all.length;
    if (isMostlySettled || this.#allHead === this.#all.length) {
      this.#all = this.#all.filter(({ place }) => place !== 'settled');
      this.#allHead = 0;
      this.#settled = 0;
      // A timer that nobody needs would keep the process alive.
      if (this.#all.length === 0) this.end();
    }
  }

  #leave(sending: Sending): void {
    const bytes = sending.outgoing.content.length;
    if (sending.place === 'waiting') {
      this.waiting -= 1;
      this.waitingBytes -= bytes;
    } else if (this.#inFlight.delete(sending)) {
      this.inFlightBytes -= bytes;
      const look = lookOf(sending.outgoing);
      if (this.#firsts.get(look) === sending) this.#firsts.delete(look);
    }
  }

  #setTimer(ms: number): void {
    this.#cancelTimer = this.#clock.after(Math.max(1, ms), () => this.#onTime());
  }

  #onTime(): void {
    this.#cancelTimer = undefined;
    const now = this.#clock.monotonic();
    for (const sending of this.#all.slice(this.#allHead)) {
      if (sending.endsAt > now) break;
      if (sending.place !== 'settled') this.fail(sending, this.#late(sending));
    }
    const oldest = this.#all[this.#allHead];
    if (oldest !== undefined) this.#setTimer(oldest.endsAt - now);
    this.#onLate();
  }

  #late({ place, outgoing, deadlineMs }: Sending): RespoolError {
    if (place === 'waiting') return this.#whyWaiting();
    const to = outgoing.exchange === '' ? outgoing.key : outgoing.exchange;
    const text =
      `cannot tell whether the message to "${to}" arrived: no confirm within ${deadlineMs} ms; ` +
      'publish it again with the same id';
    return new RespoolError('broker.unconfirmed', text);
  }
}

/** What a returned message is known by, unless it has a token. */
function lookOf({ exchange, key, properties }: Omit<Outgoing, 'content'>): string {
  return `${exchange}\n${key}\n${properties.messageId ?? ''}`;
}
