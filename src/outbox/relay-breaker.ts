/**
 * relay-breaker — what stands between a relay and its target, and closes when the target is gone.
 *
 *   probing ─an answer─▶ open ─no answer─▶ shut ─pause over, or the target calls─▶ probing
 *      └──────────────no answer, the pause doubles─▲
 *
 * It begins with a probe: a relay that is started again and again before a dead target does not
 * claim hundreds of messages each time. While it is shut nothing is claimed; while it probes a few
 * are, and one of them is sent, which asked the fewest times before. What the target did not answer
 * costs no attempt. It goes by itself the next time: when others are answered and it is not, it is
 * the message (Suspects).
 */

import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { show, textOf } from '../core/errors.ts';
import { type Failure, failure } from '../core/failure.ts';
import { failed, type Outcome } from '../core/outcome.ts';
import type { Clock } from '../ports/clock.ts';
import type { Handler } from '../ports/handler.ts';
import type { Parcel, Sink } from '../ports/sink.ts';
import { type Said, Suspects } from './relay-suspects.ts';

/** How much goes through. */
export type ValveState = 'open' | 'shut' | 'probing';

/** What a valve is made of. */
export interface ValveParts {
  readonly clock: Clock;
  /** False for a target that is never gone as a whole. */
  readonly isProbed: boolean;
  /** As many are claimed for a probe where as many wait. */
  readonly probers: number;
  /** The first pause, and the longest. */
  readonly pauseMs: number;
  readonly pauseMaxMs: number;
  onChange(state: ValveState): void;
  /** The target is gone, and was there before. */
  onGone(why: Failure): void;
}

/** The target itself could not be reached: that is seldom the fault of a message. */
const AWAY: ReadonlySet<string> = new Set([
  'broker.unavailable',
  'store.unavailable',
  'engine.stopping',
]);

/** The target did not take it. */
const UNSENT: ReadonlySet<string> = new Set([
  ...AWAY,
  'store.full',
  'peer.missing',
  'config.invalid',
]);

/** Sent, and nobody knows what became of it. */
const UNANSWERED = 'sink.unanswered';
const UNKNOWN: ReadonlySet<string> = new Set([UNANSWERED, 'broker.unconfirmed']);

/** A sink should answer long before: one that does not holds up all that wait behind. */
const ANSWER_MAX_MS: number = 2 * MINUTE_MS;

/** Those that wait for a probe that takes longer are given back: their own time goes on. */
const PROBE_MAX_MS: number = ANSWER_MAX_MS + 30 * SECOND_MS;

/** Where all of them asked in vain before, they wait so much longer: others are claimed first. */
const ASIDE_MS = 250;
/** The same in pauses: as many as it takes until all that asked had their turn, at the most. */
const ASIDE_PAUSES_MAX = 4;
/** Messages that are remembered to have asked, at the most. */
const ASKED_MAX = 20_000;

const DOUBLINGS_MAX = 30;

/** Lets messages through to one sink. */
export class Valve {
  readonly #parts: ValveParts;
  #state: ValveState = 'probing';
  #why: Failure = failure('transient', UNANSWERED, 'the target did not answer');
  /** Tries in a row that had no answer. */
  #silences = 0;
  readonly #suspects = new Suspects();
  /** Those that have to pay for having no answer. */
  readonly #guilty = new Set<string>();
  /** Messages that asked in vain since the last answer, and how often. */
  readonly #probes = new Map<string, number>();
  /** Those that would ask, and the one that does. */
  readonly #probers = new Map<string, (isAdmitted: boolean) => void>();
  #asking: string | undefined;
  /** Whether every one that could have asked had asked before. */
  #isCrowd = false;
  /** Those that were claimed for the last probe: how long they stand aside. */
  #aside: { readonly ids: ReadonlySet<string>; readonly ms: number } | undefined;
  #cancelWait: (() => void) | undefined;
  /** Whether it calls, and probes after its calls since its last answer that had none. */
  #isCalled = false;
  #callsInVain = 0;
  /** It is not asked before (monotonic), though it calls. */
  #calledAfter = 0;
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

  /** The handler, behind this valve: while it probes, one message after the other. */
  guard(handler: Handler): Handler {
    return async (delivery) => {
      const { id, signal } = delivery;
      if (!(await this.#admitted(id))) return this.judge(id, failed(this.#unsent()));
      // Without a send when its time was over before, or when it never ends.
      const next = (): void => {
        if (this.#asking === id) this.#ask();
      };
      signal.addEventListener('abort', next, { once: true });
      try {
        return await handler(delivery);
      } finally {
        signal.removeEventListener('abort', next);
        this.#guilty.delete(id);
        next();
      }
    };
  }

  /** What an outcome means here: a target that is gone is not the message's fault. */
  judge(id: string, outcome: Outcome): Outcome {
    if (outcome.kind !== 'failed' || !isSilent(outcome.failure)) return outcome;
    if (this.#guilty.delete(id)) return outcome;
    const { code, reason } = outcome.failure;
    // Due at once: while the valve is shut nobody here takes it, and others may reach the target.
    const delayMs = this.#aside?.ids.has(id) === true ? this.#aside.ms : 0;
    return { kind: 'postponed', delayMs, reason, code };
  }

  /** The target says that it is back. Where it says so and does not answer, it is not believed. */
  call(): void {
    if (this.#state !== 'shut') return;
    this.#isCalled = true;
    const waitMs = this.#calledAfter - this.#parts.clock.monotonic();
    if (waitMs <= 0) this.#probe();
    else this.#pause(waitMs);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPause?.();
    this.#cancelWait?.();
    this.#admitAll(false);
  }

  #admitted(id: string): boolean | Promise<boolean> {
    if (this.#state !== 'probing') return this.#state === 'open';
    if (this.#isClosed) return false;
    return new Promise((resolve) => {
      // Of two deliveries of one message, the first has lost its claim.
      this.#probers.get(id)?.(false);
      this.#probers.set(id, resolve);
      // Those that were claimed with it come in the same turn of the loop.
      if (this.#asking === undefined) this.#parts.clock.soon(() => this.#askFirst());
    });
  }

  #askFirst(): void {
    if (this.#asking === undefined && this.#state === 'probing') this.#ask();
  }

  /** Sends the one that asked the fewest times before. */
  #ask(): void {
    this.#asking = undefined;
    this.#cancelWait?.();
    if (this.#state !== 'probing' || this.#isClosed) return;
    const times = (id: string): number => this.#probes.get(id) ?? 0;
    const [first] = [...this.#probers.keys()].toSorted((a, b) => times(a) - times(b));
    if (first === undefined) return;
    this.#isCrowd = this.#probers.size >= this.#parts.probers && times(first) > 0;
    this.#asking = first;
    this.#cancelWait = this.#parts.clock.after(PROBE_MAX_MS, () => this.#admitAll(false));
    const admit = this.#probers.get(first);
    this.#probers.delete(first);
    admit?.(true);
  }

  #admitAll(isAdmitted: boolean): void {
    const probers = [...this.#probers.values()];
    this.#probers.clear();
    for (const admit of probers) admit(isAdmitted);
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
    const isProbe = this.#state === 'probing';
    const answers = await answersOf(sink, parcels, this.#parts.clock);
    const said = parcels.map(({ id }, at) => ({ id, answer: meaningOf(answers[at]) }));
    const isFault = this.#suspects.hear(said);
    if (said.some(({ answer }) => answer === 'heard')) {
      this.#silences = 0;
      this.#callsInVain = 0;
      this.#probes.clear();
    } else if (isProbe) this.#countProbes(parcels);
    const why = answers.find(isSilent);
    if (why === undefined) this.#become('open');
    else if (isFault) this.#guilty.add(parcels[0]?.id ?? '');
    else this.#shut(why, isProbe ? parcels : []);
    return answers;
  }

  #countProbes(parcels: readonly Parcel[]): void {
    if (this.#probes.size >= ASKED_MAX) this.#probes.clear();
    for (const { id } of parcels) this.#probes.set(id, (this.#probes.get(id) ?? 0) + 1);
  }

  /** `probe`: what asked. */
  #shut(why: Failure, probe: readonly Parcel[]): void {
    if (this.#state === 'shut' || this.#isClosed) return;
    const { clock } = this.#parts;
    this.#why = why;
    const claimed = new Set([...probe.map(({ id }) => id), ...this.#probers.keys()]);
    this.#become('shut');
    if (this.#silences === 0) this.#parts.onGone(why);
    const waitMs = this.#doubled(this.#silences);
    this.#silences += 1;
    const isAside = probe.length > 0 && this.#isCrowd;
    const pauses = Math.min(ASIDE_PAUSES_MAX, Math.ceil(this.#probes.size / this.#parts.probers));
    this.#aside = isAside ? { ids: claimed, ms: waitMs * pauses + ASIDE_MS } : undefined;
    if (this.#isCalled) this.#callsInVain += 1;
    this.#isCalled = false;
    const calls = this.#callsInVain;
    this.#calledAfter = clock.monotonic() + (calls === 0 ? 0 : this.#doubled(calls - 1));
    this.#pause(waitMs);
  }

  #doubled(times: number): number {
    const { pauseMs, pauseMaxMs } = this.#parts;
    return Math.min(pauseMaxMs, pauseMs * 2 ** Math.min(times, DOUBLINGS_MAX));
  }

  #pause(ms: number): void {
    this.#cancelPause?.();
    this.#cancelPause = this.#parts.clock.after(ms, () => this.#probe());
  }

  #probe(): void {
    if (!this.#isClosed) this.#become('probing');
  }

  #become(state: ValveState): void {
    if (state !== 'shut') this.#cancelPause?.();
    if (state === this.#state || this.#isClosed) return;
    this.#state = state;
    if (state !== 'probing') {
      this.#asking = undefined;
      this.#cancelWait?.();
      this.#admitAll(state === 'open');
    }
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

function meaningOf(answer: unknown): Said['answer'] {
  if (!isSilent(answer)) return 'heard';
  return AWAY.has(answer.code) ? 'away' : 'silent';
}

function isSilent(answer: unknown): answer is Failure {
  if (typeof answer !== 'object' || answer === null) return false;
  const { code, permanence } = answer as Partial<Failure>;
  if (permanence === 'permanent' || typeof code !== 'string') return false;
  return UNSENT.has(code) || UNKNOWN.has(code);
}
