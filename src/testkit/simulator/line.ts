/**
 * line — the way from one process to the stores and back: requests travel, are carried out at one
 * instant, and answers travel back through the gate of the process.
 */

import type { Chance } from './chance.ts';
import type { CallKind, CallPlan, SimFaults } from './faults.ts';
import type { SimProcess } from './process.ts';
import type { Timeline } from './timeline.ts';

/** What a line is made of. */
export interface LineParts {
  readonly process: SimProcess;
  readonly timeline: Timeline;
  readonly faults: SimFaults;
  readonly chance: Chance;
  /** True once a promise is broken: then the world stands still, so that nothing spins on. */
  readonly isOver: () => boolean;
}

/** One process's way to the stores. */
export class StoreLine {
  readonly #parts: LineParts;
  readonly #onItsWay = new Set<Promise<unknown>>();

  constructor(parts: LineParts) {
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
    const strike = process.ambushed();
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
      // After this step, not in it: the answer is on its way when the blow falls.
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
            // The power went before it was durable: nobody may be told that it is.
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
