/**
 * connection — the way from one process to the stores and back: requests travel, are carried out
 * at one instant, and answers travel back through the gate of the process. A call takes time,
 * fails before it has an effect, or has its effect and its answer is lost; in an outage nothing
 * gets through.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Trouble } from './plan.ts';
import type { SimProcess } from './process.ts';
import type { Chance, Timeline } from './timeline.ts';

/** What happens to one call. */
interface CallPlan {
  /** Until the store does it. */
  readonly requestMs: number;
  /** From then until the caller knows. */
  readonly answerMs: number;
  readonly fails?: { readonly when: 'before' | 'after'; readonly error: RespoolError };
  /** A durable write is durable when it is done, not only when it is answered. */
  readonly isDurableEarly: boolean;
}

/** What a call is like. */
export interface CallKind {
  readonly name: string;
  readonly isWrite: boolean;
  /** The longest it may take; default ten seconds. */
  readonly slowestMs?: number;
}

const SMOOTH: CallPlan = { requestMs: 0, answerMs: 0, isDurableEarly: true };
const BRISK_MAX_MS = 30;
const SLOW_MAX_MS: number = 10 * SECOND_MS;

/** Draws what happens to calls. */
export class SimFaults {
  /** How often the power went at the store. */
  powerCuts = 0;
  readonly #chance: Chance;
  readonly #timeline: Timeline;
  readonly #trouble: Trouble;
  #isHealed = false;
  #downUntilMs = 0;
  #fullUntilMs = 0;

  constructor(chance: Chance, timeline: Timeline, trouble: Trouble) {
    this.#chance = chance;
    this.#timeline = timeline;
    this.#trouble = trouble;
  }

  /** From now on everything works at once. */
  heal(): void {
    this.#isHealed = true;
  }

  /** Nothing gets through for a while. */
  goDown(spanMs: number): void {
    this.#downUntilMs = this.#timeline.nowMs + spanMs;
  }

  /** No write finds room for a while. */
  fillUp(spanMs: number): void {
    this.#fullUntilMs = this.#timeline.nowMs + spanMs;
  }

  draw({ name, isWrite, slowestMs = SLOW_MAX_MS }: CallKind): CallPlan {
    this.#timeline.calls += 1;
    if (this.#isHealed) return SMOOTH;
    const { nowMs } = this.#timeline;
    if (nowMs < this.#downUntilMs) return refused('store.unavailable', name);
    if (isWrite && nowMs < this.#fullUntilMs) return refused('store.full', name);
    const { failBefore, failAfter, slow, brisk } = this.#trouble;
    const throwMs = this.#chance.random();
    let requestMs = 0;
    let answerMs = 0;
    if (throwMs < slow) {
      requestMs = this.#chance.between(0, slowestMs);
      answerMs = this.#chance.between(0, slowestMs - requestMs);
    } else if (throwMs < slow + brisk) {
      requestMs = this.#chance.spanMs(Math.min(slowestMs, BRISK_MAX_MS));
      answerMs = this.#chance.spanMs(Math.min(slowestMs, BRISK_MAX_MS));
    }
    const isDurableEarly = (requestMs + answerMs) % 2 === 0;
    const throwFault = this.#chance.random();
    if (throwFault >= failBefore + failAfter) return { requestMs, answerMs, isDurableEarly };
    const when = throwFault < failBefore ? 'before' : 'after';
    const error = errorOf('store.unavailable', name);
    return { requestMs, answerMs, isDurableEarly, fails: { when, error } };
  }

  errorOf(code: 'store.unavailable' | 'store.full', name: string): RespoolError {
    return errorOf(code, name);
  }

  /** What is wrong with the next read of a body, if anything. */
  bodyFault(): 'missing' | 'corrupt' | undefined {
    if (this.#isHealed || !this.#chance.happens(this.#trouble.bodyFault)) return undefined;
    return this.#chance.happens(0.5) ? 'missing' : 'corrupt';
  }
}

function refused(code: 'store.unavailable' | 'store.full', name: string): CallPlan {
  return { ...SMOOTH, fails: { when: 'before', error: errorOf(code, name) } };
}

function errorOf(code: 'store.unavailable' | 'store.full', name: string): RespoolError {
  return new RespoolError(code, `cannot ${name}: the simulator wants it to fail; try again`);
}

/** What a line is made of. */
interface LineOptions {
  readonly process: SimProcess;
  readonly timeline: Timeline;
  readonly faults: SimFaults;
  readonly chance: Chance;
  /** True once a promise is broken: then the world stands still, so that nothing spins on. */
  readonly isOver: () => boolean;
}

/** One process's way to the stores. */
export class StoreLine {
  readonly #parts: LineOptions;
  readonly #onItsWay = new Set<Promise<unknown>>();

  constructor(parts: LineOptions) {
    this.#parts = parts;
  }

  get process(): SimProcess {
    return this.#parts.process;
  }

  /** Resolves when everything that is on its way has come to its end. */
  async idle(): Promise<void> {
    while (this.#onItsWay.size > 0) await Promise.allSettled(this.#onItsWay);
  }

  /**
   * Carries out `execute` at the store, at one instant. `harden` runs then, or just before the
   * answer: it makes durable what was done.
   */
  call<T>(kind: CallKind, execute: () => T, harden?: () => void): Promise<T> {
    const { process, faults, timeline, isOver } = this.#parts;
    // A dead process has no effect on anything any more; what it waits for never comes.
    if (process.isDead || isOver()) return new Promise(() => undefined);
    const plan = faults.draw(kind);
    const strike = process.takePlannedFault();
    const { requestMs, answerMs, fails } = plan;
    if (fails !== undefined) process.troubledAtMs = timeline.nowMs;
    if (requestMs === 0 && answerMs === 0 && fails === undefined && strike === undefined) {
      return attempt(() => finish(execute, harden));
    }
    const travel = this.#travel(kind, plan, strike === undefined ? execute : struck, harden);
    const gone = (): void => {
      this.#onItsWay.delete(travel);
    };
    this.#onItsWay.add(travel);
    travel.then(gone, gone);
    return travel;

    function struck(): T {
      // After this step, not in it: the answer is on its way when the fault comes.
      timeline.after(0, () => strike?.());
      return execute();
    }
  }

  #travel<T>(
    kind: CallKind,
    plan: CallPlan,
    execute: () => T,
    harden: (() => void) | undefined,
  ): Promise<T> {
    const { process, faults, timeline, chance } = this.#parts;
    const { requestMs, fails } = plan;
    const answerMs = Math.max(1, plan.answerMs);
    return new Promise((resolve, reject) => {
      const answer = (run: () => void): void => {
        timeline.after(answerMs, () => process.gate('answer', run));
      };
      timeline.after(requestMs, () => {
        // What a process sent before it died may arrive or not.
        if (process.isDead && (process.lostPower || chance.happens(0.5))) return;
        const { powerCuts } = faults;
        if (fails?.when === 'before') {
          answer(() => reject(fails.error));
          return;
        }
        let result: T;
        try {
          result = execute();
        } catch (error) {
          answer(() => reject(error instanceof Error ? error : new Error(String(error))));
          return;
        }
        if (fails !== undefined) {
          answer(() => reject(fails.error));
          return;
        }
        if (plan.isDurableEarly) harden?.();
        timeline.after(answerMs, () => {
          if (plan.isDurableEarly || harden === undefined) {
            process.gate('answer', () => resolve(result));
          } else if (faults.powerCuts === powerCuts) {
            harden();
            process.gate('answer', () => resolve(result));
          } else {
            // The power was cut before it was durable: it must not be acknowledged.
            process.gate('answer', () => reject(faults.errorOf('store.unavailable', kind.name)));
          }
        });
      });
    });
  }
}

function finish<T>(execute: () => T, harden: (() => void) | undefined): T {
  const result = execute();
  harden?.();
  return result;
}

async function attempt<T>(run: () => T): Promise<T> {
  return run();
}
