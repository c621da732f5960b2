/**
 * relay-valve — what stands between a relay and its target, and closes when the target is gone.
 *
 *   probing ─an answer─▶ open ─no answer─▶ shut ─pause over, or the target calls─▶ probing
 *      └──────────────no answer, the pause doubles─▲
 *
 * It begins with a probe: a relay that is started again and again before a dead target does not
 * claim hundreds of messages each time. While it is shut nothing is claimed, while it probes one
 * message at a time. What the target did not answer costs no attempt. It goes by itself the next
 * time: when others were answered meanwhile and it is not, it is the message, and the target is not
 * gone.
 */

import { MINUTE_MS } from '../core/duration.ts';
import { show, textOf } from '../core/errors.ts';
import { type Failure, failure } from '../core/failure.ts';
import type { Outcome } from '../core/outcome.ts';
import type { Clock } from '../ports/clock.ts';
import type { Parcel, Sink } from '../ports/sink.ts';

/** How much goes through. */
export type ValveState = 'open' | 'shut' | 'probing';

/** What a valve is made of. */
export interface ValveParts {
  readonly clock: Clock;
  /** False for a target that is never gone as a whole. */
  readonly isProbed: boolean;
  /** The first pause, and the longest. */
  readonly pauseMs: number;
  readonly pauseMaxMs: number;
  onChange(state: ValveState): void;
  /** The target is gone, and was there before. */
  onGone(why: Failure): void;
}

/** The target could not be reached: nothing was sent. */
const UNSENT: ReadonlySet<string> = new Set([
  'broker.unavailable',
  'store.unavailable',
  'store.full',
  'engine.stopping',
  'peer.missing',
  'config.invalid',
]);

/** Sent, and nobody knows what became of it. */
const UNANSWERED = 'sink.unanswered';
const UNKNOWN: ReadonlySet<string> = new Set([UNANSWERED, 'broker.unconfirmed']);

/** A sink should answer long before: one that does not holds up all that wait behind. */
const ANSWER_MAX_MS: number = 2 * MINUTE_MS;

/** Messages that are remembered to have had no answer, at the most. */
const SUSPECTS_MAX = 20_000;

/** Lets messages through to one sink. */
export class Valve {
  readonly #parts: ValveParts;
  #state: ValveState = 'probing';
  #why: Failure = failure('transient', UNANSWERED, 'the target did not answer');
  /** Tries in a row that had no answer. */
  #silences = 0;
  /** Sends that had an answer. */
  #heard = 0;
  /** Messages without an answer, and how many sends had been answered by then. */
  readonly #suspects = new Map<string, number>();
  /** Those that have to pay for having no answer. */
  readonly #guilty = new Set<string>();
  #cancelPause: (() => void) | undefined;
  #isClosed = false;

  constructor(parts: ValveParts) {
    this.#parts = parts;
    if (!parts.isProbed) this.#state = 'open';
  }

  get state(): ValveState {
    return this.#state;
  }

  /** The sink, behind this valve; closing it is up to who made it. */
  before(sink: Sink): Sink {
    const send: Sink['send'] = async (parcels) => {
      const answers = new Map<Parcel, unknown>();
      for (const group of this.#groups(parcels)) {
        const said = await this.#send(sink, group);
        for (const [at, parcel] of group.entries()) answers.set(parcel, said[at]);
      }
      // Whatever they are: who forwards looks at each.
      return parcels.map((parcel) => answers.get(parcel)) as Awaited<ReturnType<Sink['send']>>;
    };
    return { name: sink.name, send, close: () => Promise.resolve() };
  }

  /** What an outcome means here: a target that is gone is not the message's fault. */
  judge(id: string, outcome: Outcome): Outcome {
    if (outcome.kind !== 'failed' || !isSilent(outcome.failure)) return outcome;
    if (this.#guilty.delete(id)) return outcome;
    const { code, reason } = outcome.failure;
    // Due at once: while the valve is shut nobody here takes it, and others may reach the target.
    return { kind: 'postponed', delayMs: 0, reason, code };
  }

  /** The target says that it is back. */
  call(): void {
    if (this.#state === 'shut') this.#probe();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPause?.();
  }

  /** What had no answer before goes by itself: others must not pay for it, nor it for them. */
  #groups(parcels: readonly Parcel[]): readonly (readonly Parcel[])[] {
    if (this.#suspects.size === 0) return [parcels];
    const isSuspect = ({ id }: Parcel): boolean => this.#suspects.has(id);
    const suspects = parcels.filter(isSuspect).map((parcel) => [parcel]);
    if (suspects.length === parcels.length) return suspects;
    return [parcels.filter((parcel) => !isSuspect(parcel)), ...suspects];
  }

  async #send(sink: Sink, parcels: readonly Parcel[]): Promise<readonly unknown[]> {
    // Claimed before it shut: one send after the other would wait in vain.
    if (this.#state === 'shut') return parcels.map(() => this.#unsent());
    const answers = await answersOf(sink, parcels, this.#parts.clock);
    const silent = answers.filter(isSilent);
    if (silent.length < answers.length) {
      this.#heard += 1;
      this.#silences = 0;
    }
    const isGuilty = parcels.map(({ id }, at) => this.#suspect(id, answers[at])).includes(true);
    const [why] = silent;
    if (why === undefined) this.#become('open');
    else if (parcels.length === 1 && isGuilty) this.#guilty.add(parcels[0]?.id ?? '');
    else this.#shut(why);
    return answers;
  }

  /**
   * Remembers what had no answer. True when others were answered since it had none for the first
   * time, and again it has none.
   */
  #suspect(id: string, answer: unknown): boolean {
    if (!isSilent(answer)) {
      this.#suspects.delete(id);
      return false;
    }
    // What was never sent did nothing.
    if (!UNKNOWN.has(answer.code)) return false;
    const heard = this.#suspects.get(id);
    if (this.#suspects.size >= SUSPECTS_MAX) this.#suspects.clear();
    this.#suspects.set(id, heard ?? this.#heard);
    return heard !== undefined && this.#heard > heard;
  }

  #shut(why: Failure): void {
    if (this.#state === 'shut' || this.#isClosed) return;
    const { clock, pauseMs, pauseMaxMs } = this.#parts;
    this.#why = why;
    this.#become('shut');
    if (this.#silences === 0) this.#parts.onGone(why);
    const waitMs = Math.min(pauseMaxMs, pauseMs * 2 ** this.#silences);
    this.#silences = Math.min(this.#silences + 1, 30);
    this.#cancelPause = clock.after(waitMs, () => this.#probe());
  }

  #probe(): void {
    if (!this.#isClosed) this.#become('probing');
  }

  #become(state: ValveState): void {
    if (state !== 'shut') this.#cancelPause?.();
    if (state === this.#state || this.#isClosed) return;
    this.#state = state;
    this.#parts.onChange(state);
  }

  #unsent(): Failure {
    return failure('transient', 'broker.unavailable', this.#why.reason);
  }
}

/** One answer each; for a sink that throws, or is silent for too long, a failure that says so. */
function answersOf(
  sink: Sink,
  parcels: readonly Parcel[],
  clock: Clock,
): Promise<readonly unknown[]> {
  return new Promise((resolve) => {
    const unanswered = (said: string): void => {
      cancel();
      const reason = `sink "${sink.name}" did not answer: ${said}`;
      resolve(parcels.map(() => failure('transient', UNANSWERED, reason)));
    };
    const late = (): void => unanswered(`nothing came within ${ANSWER_MAX_MS} ms`);
    const cancel = clock.after(ANSWER_MAX_MS, late);
    void answered(sink, parcels).then(
      (answers) => {
        cancel();
        resolve(answers);
      },
      (error: unknown) => unanswered(textOf(error)),
    );
  });
}

async function answered(sink: Sink, parcels: readonly Parcel[]): Promise<readonly unknown[]> {
  const answers: unknown = await sink.send(parcels);
  if (!Array.isArray(answers)) throw new Error(`it returned ${show(answers)} and no list`);
  return parcels.map((_, at) => answers[at] as unknown);
}

function isSilent(answer: unknown): answer is Failure {
  if (typeof answer !== 'object' || answer === null) return false;
  const { code, permanence } = answer as Partial<Failure>;
  if (permanence === 'permanent' || typeof code !== 'string') return false;
  return UNSENT.has(code) || UNKNOWN.has(code);
}
