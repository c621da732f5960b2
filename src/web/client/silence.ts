/**
 * silence — how long a service may take to answer.
 *
 * A request may take minutes, as a check does. While one waits for its answer, `/healthz` is asked
 * on another connection from time to time; what answers neither is given up.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';

/** Delay until `/healthz` is asked for the first time and again, and the limit of its answer. */
const PROBE_MS: number = 5 * SECOND_MS;
/** Unanswered probes in a row: of a service that never answered, and of one that did. */
const PROBES_MAX_AT_FIRST = 1;
const PROBES_MAX = 6;

/** Gives up requests to one service that is silent. */
export class SilenceGuard {
  readonly #url: string;
  readonly #clock: Clock;
  #hasAnswered = false;

  constructor(url: string, clock: Clock) {
    this.#url = url;
    this.#clock = clock;
  }

  /** Does the work, with a signal that fires when the service is silent; `quietMs` may pass. */
  async guard<T>(
    work: (signal: AbortSignal) => Promise<T>,
    { signal, quietMs = PROBE_MS }: { readonly signal?: AbortSignal; readonly quietMs?: number },
  ): Promise<T> {
    const silence = new AbortController();
    const startedAt = this.#clock.monotonic();
    let missed = 0;
    let isOver = false;
    const probe = async (): Promise<void> => {
      missed = (await this.#answersProbe()) ? 0 : missed + 1;
      if (isOver) return;
      if (missed < (this.#hasAnswered ? PROBES_MAX : PROBES_MAX_AT_FIRST)) {
        callOff = this.#clock.after(PROBE_MS, () => void probe());
      } else silence.abort(this.#silent(this.#clock.monotonic() - startedAt));
    };
    let callOff = this.#clock.after(quietMs, () => void probe());
    const both = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    try {
      const done = await work(both);
      this.#hasAnswered = true;
      return done;
    } catch (error) {
      // What an aborted request throws differs with how far it came.
      throw silence.signal.aborted ? silence.signal.reason : error;
    } finally {
      isOver = true;
      callOff();
    }
  }

  /** Whether anything answers, of whatever status: a proxy may not let `/healthz` through. */
  async #answersProbe(): Promise<boolean> {
    const late = new AbortController();
    const callOff = this.#clock.after(PROBE_MS, () => late.abort());
    try {
      const answer = await fetch(`${this.#url}/healthz`, {
        signal: late.signal,
        redirect: 'manual',
      });
      await answer.body?.cancel();
      return true;
    } catch {
      return false;
    } finally {
      callOff();
    }
  }

  #silent(ms: number): RespoolError {
    const seconds = Math.round(ms / SECOND_MS);
    return new RespoolError(
      'store.unavailable',
      `what listens at ${this.#url} did not answer within ${seconds} s, not even to /healthz; ` +
        'check that it is the address of respool serve, and that the service is well',
    );
  }
}
