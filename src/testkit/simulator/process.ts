/**
 * process — one process of a simulated world: running, paused, or dead.
 *
 *   running ─pause()─▶ paused ─resume()─▶ running        any ─kill()─▶ dead
 *
 * Everything that makes its code run (timers, answers of stores, news) comes through `gate`. While
 * it is paused that waits; when it is dead nothing comes any more. Its code does not notice.
 */

import type { Millis } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Chance, Timeline } from './timeline.ts';

/** What makes code run. */
type Impulse = 'timer' | 'answer' | 'news';

interface Waiting {
  readonly kind: Impulse;
  readonly call: () => void;
}

/** The names of all runs are this long, so that none begins with another's. */
export const INSTANCE_LENGTH: number = 'p00-0000'.length;

/** One process, from its start to its end; a restart makes another. */
export class SimProcess {
  /** Its number in the plan: the same after a restart. */
  readonly number: number;
  /** Names this run of it. */
  readonly instance: string;
  readonly clock: Clock;
  /** True between the call of stop() and its end. */
  isStopping = false;
  /** True when it went with its machine, and everything it had sent with it. */
  lostPower = false;
  /** A fault between the effect of a call and its answer, some calls from now. */
  plannedFault: { callsLeft: number; readonly strike: () => void } | undefined;
  /** When it last stood still or was refused by a store. */
  troubledAtMs = 0;
  /** How far its idea of the store's time may be off, by its last measurement. */
  clockErrorMs = 0;
  readonly #timeline: Timeline;
  readonly #timers = new Set<object>();
  #state: 'running' | 'paused' | 'dead' = 'running';
  #waiting: Waiting[] = [];

  constructor(
    number: number,
    run: number,
    { timeline, wall }: { readonly timeline: Timeline; readonly wall: () => Millis },
  ) {
    this.number = number;
    this.instance = `p${String(number).padStart(2, '0')}-${String(run).padStart(4, '0')}`;
    this.#timeline = timeline;
    this.clock = {
      now: wall,
      monotonic: () => timeline.nowMs,
      after: (ms, call) => this.#after(ms, call),
      soon: (call) => {
        this.#after(0, call);
      },
    };
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  get isPaused(): boolean {
    return this.#state === 'paused';
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  /** Timers that wait; 0 after a clean stop. */
  get timers(): number {
    return this.#timers.size;
  }

  /** Takes the fault that is due with this call, if any. */
  takePlannedFault(): (() => void) | undefined {
    const { plannedFault } = this;
    if (plannedFault === undefined) return undefined;
    plannedFault.callsLeft -= 1;
    if (plannedFault.callsLeft > 0) return undefined;
    this.plannedFault = undefined;
    return plannedFault.strike;
  }

  /** Lets something run here: now, after the pause, or never. */
  gate(kind: Impulse, call: () => void): void {
    if (this.#state === 'running') call();
    else if (this.#state === 'paused') this.#waiting.push({ kind, call });
  }

  pause(): void {
    if (this.#state === 'running') this.#state = 'paused';
  }

  /** Goes on; whether timers or answers come first is chance, as it is in life. */
  resume(chance: Chance): void {
    if (this.#state !== 'paused') return;
    this.#state = 'running';
    this.troubledAtMs = this.#timeline.nowMs;
    const waiting = this.#waiting;
    this.#waiting = [];
    const first = chance.pick<Impulse>(['timer', 'answer', 'news']);
    const order = [
      ...waiting.filter(({ kind }) => kind === first),
      ...waiting.filter(({ kind }) => kind !== first),
    ];
    for (const { kind, call } of order) this.#timeline.after(0, () => this.gate(kind, call));
  }

  kill(): void {
    this.#state = 'dead';
    this.#waiting = [];
    this.#timers.clear();
  }

  /** A wait of the world's own within this process, such as a handler's; not one of its timers. */
  later(ms: number, call: () => void): () => void {
    return this.#timeline.after(ms, () => this.gate('timer', call));
  }

  #after(ms: number, call: () => void): () => void {
    const timer = {};
    this.#timers.add(timer);
    const cancelMoment = this.#timeline.after(ms, () =>
      this.gate('timer', () => {
        // Called off while it waited for the end of a pause.
        if (this.#timers.delete(timer)) call();
      }),
    );
    return () => {
      this.#timers.delete(timer);
      cancelMoment();
    };
  }
}
