/**
 * send-letters — goes once through a place, decides on each letter of the plan (`decide`), and
 * sends in batches, at an even pace (`Pace`).
 *
 *   take ─▶ gather a batch ─▶ its intent is durable ─▶ send within window and pace ─▶ note results
 *                └─ the next batch is gathered and written down while this one is on its way
 *
 * Promise: nothing is sent without an intent on record; whatever ends the pass, what is on its way
 * is waited for, and what is not sent stays where it was.
 *
 * Called by run.ts; `notTheSameLetter` also by operations.ts.
 */

import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type {
  DeadLetters,
  LetterVerdict,
  KeptCopy,
  LetterRoute,
  SettleResult,
  TakenLetter,
} from '../../ports/dead-letters.ts';
import { unlessAborted, sleep } from '../../system/wait.ts';
import type { FailureGuard, OutcomeListener } from './outcomes.ts';
import type {
  LetterClaim,
  LetterOutcome,
  LetterProgress,
  ReplayJournal,
  ReplayLease,
} from './run-state.ts';
import { type Millis, SECOND_MS } from '../../core/duration.ts';
import { type ReplaySettings, routeText } from './plan.ts';
import { type LetterTransform, repairLetter } from './transform.ts';

/** What a pass works with; the same for all passes of a run. */
export interface PassParts extends DecisionContext {
  readonly letters: DeadLetters;
  readonly progress: LetterProgress;
  readonly journal: ReplayJournal;
  readonly guard: FailureGuard;
  readonly pace: Pace;
  readonly news: OutcomeListener;
  readonly lease: ReplayLease;
  readonly clock: Clock;
  readonly now: () => number;
  readonly keep: (copies: readonly KeptCopy[]) => Promise<void>;
}

/** Letters in hand at once, as the port allows it. Also in docs/reference/dead-letters.md. */
const IN_HAND_MAX = 1_000;
/**
 * A batch that is not full waits no longer for more: a place that lets few be in hand, since it
 * holds others back, gives more only when these are settled.
 */
const LULL_MS = 20;
/** The code of a letter that its place has taken back: `notInHand` of queue-letters.ts. */
const BACK_CODE = 'move.refused';
/** A batch has no more letters than are sent in this many seconds, and half a window at most. */
const BATCH_SECONDS = 1;

/** How far a pass goes. */
interface ReplayPassOrder {
  /** Acts on this many letters at most. */
  readonly limit: number;
  /**
   * When this many are found, all are settled before more are asked for. n.b. A pass that ends
   * takes back what is in hand: a caller that asks for more than there are has to begin again.
   */
  readonly pauseAt: number;
}

/** What a pass came to. */
interface PassResult {
  /** Letters of the plan that were found. */
  readonly found: number;
  /** Letters that were sent or parked, or where that was tried. */
  readonly acted: number;
  /** Letters that were found, and are back since the pass ended. */
  readonly returned: number;
  /** Another process works on the place: nothing was examined. */
  readonly busy: string | undefined;
}

/** One pass. */
export async function runPass(parts: PassParts, order: ReplayPassOrder): Promise<PassResult> {
  return new Pass(parts, order).run();
}

class Pass {
  readonly #parts: PassParts;
  readonly #order: ReplayPassOrder;
  readonly #batchMax: number;
  readonly #active = new Set<Promise<void>>();
  #batch: PlannedLetter[] = [];
  #dispatching: Promise<void> = Promise.resolve();
  #room = Promise.withResolvers<void>();
  #asked: Promise<IteratorResult<TakenLetter>> | undefined;
  /** Lets the caller that waits for a letter go on without one. */
  #interrupt: (why: 'lull' | undefined) => void = () => undefined;
  readonly #onHalt = (): void => this.#interrupt(undefined);
  #endWatch: () => void = () => undefined;
  #found = 0;
  #acted = 0;
  #returned = 0;
  #sent = 0;
  /** The place broke off: it is unknown whether what was sent is gone from it. */
  #isBroken = false;
  #busy: string | undefined;
  /** The place has ended the pass: nothing is in hand any more but what is being settled. */
  #isOver = false;

  constructor(parts: PassParts, order: ReplayPassOrder) {
    this.#parts = parts;
    this.#order = order;
    const { window, rate = window } = parts.settings;
    this.#batchMax = Math.max(1, Math.min(Math.ceil(window / 2), Math.ceil(rate * BATCH_SECONDS)));
  }

  async run(): Promise<PassResult> {
    const { letters, progress, journal, settings, lease } = this.#parts;
    const stop = new AbortController();
    const passing = letters.take({
      isWanted: ({ key }) => progress.isWanted(key),
      inHand: Math.min(IN_HAND_MAX, settings.window + 2 * this.#batchMax),
      signal: stop.signal,
    });
    const taking = passing[Symbol.asyncIterator]();
    this.#watch(0);
    lease.halt.signal.addEventListener('abort', this.#onHalt);
    try {
      await this.#gather(taking);
      if (this.#mayStart) await this.#flush();
    } catch (error) {
      lease.halt.stop({ kind: 'broken', error });
    }
    this.#endWatch();
    lease.halt.signal.removeEventListener('abort', this.#onHalt);
    for (const { claim } of this.#batch) this.#giveBack(claim);
    await this.#dispatching;
    // In this order: what is on its way ends first, then the place may have back what is in hand.
    await Promise.all(this.#active);
    // A letter that is still awaited: the end of the place may be heard there.
    this.#asked?.catch(() => (this.#isBroken = true));
    stop.abort();
    // n.b. A place that lost acks at its end says so: a resume takes away what was sent already.
    await taking.return?.().catch((error: unknown) => {
      this.#isBroken = true;
      lease.halt.stop({ kind: 'broken', error });
    });
    const acked = this.#isBroken || this.#sent === 0 ? {} : { ackedCount: this.#sent };
    try {
      await journal.step([], acked);
      progress.acknowledge(acked);
    } catch (error) {
      lease.halt.stop({ kind: 'broken', error });
    }
    const [found, acted, returned, busy] = [this.#found, this.#acted, this.#returned, this.#busy];
    return { found, acted, returned, busy };
  }

  async #gather(taking: AsyncIterator<TakenLetter>): Promise<void> {
    const { lease, progress } = this.#parts;
    const { limit, pauseAt } = this.#order;
    while (lease.isHeld && this.#acted < limit && progress.wanted > 0) {
      const next = await this.#next(taking);
      if (next === undefined) break;
      if (next !== 'lull') await this.#consider(next);
      if (next === 'lull' || this.#batch.length >= this.#batchMax) await this.#flush();
      if (this.#found === pauseAt) await this.#drain();
    }
  }

  /** Waits until nothing is in hand. */
  async #drain(): Promise<void> {
    await this.#flush();
    await this.#dispatching;
    await Promise.all(this.#active);
  }

  get #mayStart(): boolean {
    return this.#parts.lease.isHeld && !this.#isOver;
  }

  #giveBack(claim: LetterClaim): void {
    this.#parts.progress.release(claim);
    this.#found -= 1;
    this.#acted -= 1;
    this.#returned += 1;
  }

  /** Tells the caller that waits with a part of a batch that none came for a while. */
  #watch(foundBefore: number): void {
    const found = this.#found;
    if (this.#batch.length > 0 && found === foundBefore) this.#interrupt('lull');
    this.#endWatch = this.#parts.clock.after(LULL_MS, () => this.#watch(found));
  }

  /** The next letter; undefined when there is none, or the run ends. */
  async #next(taking: AsyncIterator<TakenLetter>): Promise<TakenLetter | 'lull' | undefined> {
    const { letters, lease } = this.#parts;
    try {
      const asked = (this.#asked ??= taking.next());
      // A dispatch that breaks halts the run, and the caller that waits here hears of it there.
      const next = await new Promise<IteratorResult<TakenLetter> | 'lull' | undefined>(
        (resolve, reject) => {
          this.#interrupt = resolve;
          asked.then(resolve, reject);
        },
      );
      if (next === 'lull') return next;
      if (next === undefined) return undefined;
      this.#asked = undefined;
      if (next.done !== true) return next.value;
      this.#isOver = true;
      return undefined;
    } catch (error) {
      this.#isOver = true;
      this.#isBroken = true;
      const because = `cannot continue through ${letters.name}: ${textOf(error)}`;
      if (this.#found === 0 && isRespoolError(error, 'move.refused')) this.#busy = because;
      else lease.halt.stop({ kind: 'end', state: 'stopped', because });
      return undefined;
    }
  }

  async #consider(takenLetter: TakenLetter): Promise<void> {
    const { progress, guard, lease, transform } = this.#parts;
    const claim = progress.claim(takenLetter.letter.key);
    if (claim === undefined) {
      // A further copy with a key of the plan, which counts copies.
      await this.#leave(takenLetter);
      return;
    }
    // A program of the user may never answer: anyone who pauses or cancels does not wait for it.
    const signal = transform === undefined ? undefined : lease.halt.signal;
    const plan = await unlessAborted(decide(this.#parts, takenLetter, claim), signal);
    if (plan === undefined) return progress.release(claim);
    this.#found += 1;
    if (plan.kind === 'act') {
      this.#acted += 1;
      this.#batch.push({ claim, taken: takenLetter, plan });
      return;
    }
    for (const outcome of plan.outcomes) {
      this.#note(claim.item, outcome);
      if (outcome.result === 'failed') guard.countFailed(outcome.code ?? '', outcome.reason ?? '');
    }
    await this.#leave(takenLetter);
    this.#judge();
  }

  async #leave(letter: TakenLetter): Promise<void> {
    await this.#parts.letters.settle(letter, { kind: 'leave' }).catch(() => {
      // It stays in any case; what is wrong is heard by asking for the next one.
    });
  }

  async #flush(): Promise<void> {
    const batch = this.#batch;
    if (batch.length === 0) return;
    this.#batch = [];
    const intentWritten = this.#parts.journal.step(batch.map(({ claim }) => claim.item));
    // Handled by the dispatch; without this an early failure would be unhandled.
    intentWritten.catch(() => undefined);
    await this.#dispatching;
    this.#dispatching = this.#dispatch(batch, intentWritten);
  }

  /** Never rejects. */
  async #dispatch(batch: readonly PlannedLetter[], intentWritten: Promise<void>): Promise<void> {
    const { lease, pace, settings } = this.#parts;
    try {
      await intentWritten;
      if (this.#mayStart) await this.#keep(batch);
    } catch (error) {
      lease.halt.stop({ kind: 'broken', error });
    }
    for (const piece of batch) {
      while (this.#active.size >= settings.window) await this.#room.promise;
      if (this.#mayStart) await pace.turn(lease.halt.signal);
      if (this.#mayStart) this.#start(piece);
      else this.#unsend(piece.claim);
    }
  }

  /** It has an intent, and was not sent. */
  #unsend(claim: LetterClaim): void {
    // n.b. What may have been sent before has an intent without a result, and stays so.
    if (!claim.wasIntended) this.#parts.journal.note(claim.item, { result: 'back' });
    this.#giveBack(claim);
  }

  async #keep(batch: readonly PlannedLetter[]): Promise<void> {
    const copies = batch.flatMap(({ plan }) =>
      plan.kind === 'act' && plan.copy !== undefined ? [plan.copy] : [],
    );
    if (copies.length > 0) await this.#parts.keep(copies);
  }

  #start(piece: PlannedLetter): void {
    const sending = this.#act(piece).finally(() => {
      this.#active.delete(sending);
      this.#room.resolve();
      this.#room = Promise.withResolvers<void>();
    });
    this.#active.add(sending);
  }

  /** Never rejects. */
  async #act({ claim, taken, plan }: PlannedLetter): Promise<void> {
    if (plan.kind !== 'act') return;
    const { letters, guard, news, progress } = this.#parts;
    const settled = await letters
      .settle(taken, plan.verdict)
      .catch((error: unknown): SettleResult => ({ kind: 'unsure', reason: textOf(error) }));
    const isBack = settled.kind === 'failed' && settled.code === BACK_CODE;
    if (isBack || (settled.kind === 'gone' && progress.miss(claim.item))) {
      // The pass may have ended while this one waited for its turn: then it is where it was.
      this.#unsend(claim);
      return;
    }
    const outcome = outcomeOf(settled, plan.outcome);
    this.#note(claim.item, outcome);
    if (outcome.result === 'sent') {
      this.#sent += 1;
      guard.countSent();
      news.expect(claim.item, routeOf(taken, plan.verdict));
    } else if (settled.kind === 'failed' || settled.kind === 'unsure') {
      guard.countFailed(outcome.code ?? settled.kind, settled.reason);
    }
    this.#judge();
  }

  #judge(): void {
    const { guard, lease } = this.#parts;
    const because = guard.verdict();
    if (because !== undefined) lease.halt.stop({ kind: 'end', state: 'stopped', because });
  }

  #note(item: number, outcome: LetterOutcome): void {
    const { progress, journal, now } = this.#parts;
    progress.settle(item, outcome, now());
    journal.note(item, outcome);
  }
}

function routeOf({ letter }: TakenLetter, verdict: LetterVerdict): LetterRoute | undefined {
  return (verdict.kind === 'send' ? verdict.to : undefined) ?? letter.home;
}

function outcomeOf(settled: SettleResult, done: LetterOutcome): LetterOutcome {
  switch (settled.kind) {
    case 'done':
      return done;
    case 'gone':
      return { result: 'gone' };
    case 'failed':
      return { result: 'failed', code: settled.code, reason: settled.reason };
    case 'unsure':
      return { result: 'unsure', reason: settled.reason };
    default:
      return settled;
  }
}

/** A letter with the decision on it. */
interface PlannedLetter {
  readonly claim: LetterClaim;
  readonly taken: TakenLetter;
  readonly plan: Decision;
}

/** `leave`: stays, with this outcome. `act`: the verdict, and the outcome when it is done. */
type Decision =
  | { readonly kind: 'leave'; readonly outcomes: readonly LetterOutcome[] }
  | {
      readonly kind: 'act';
      readonly verdict: LetterVerdict;
      readonly outcome: LetterOutcome;
      /** The original, to be kept first. */
      readonly copy?: KeptCopy;
    };

/** What decisions are made by. */
interface DecisionContext {
  readonly id: string;
  readonly by: string;
  readonly settings: ReplaySettings;
  readonly transform: LetterTransform | undefined;
  /** What it knows of canaries. */
  readonly news: Pick<OutcomeListener, 'isOfCanaries'>;
}

/** The code of letters that were replayed too often. */
const LIMIT_CODE = 'replay.limit';

const UNSURE: LetterOutcome = {
  result: 'unsure',
  reason: 'an earlier run ended while it was about to be sent',
};

/** What may have been sent is not looked for: it is reported as unsure. */
export function notTheSameLetter(
  progress: LetterProgress,
  journal: ReplayJournal,
  at: Millis,
): void {
  for (const item of progress.intended()) {
    progress.settle(item, UNSURE, at);
    journal.note(item, UNSURE);
  }
}

/** Decides on one letter. */
async function decide(
  { id, by, settings, transform, news }: DecisionContext,
  takenLetter: TakenLetter,
  { wasIntended }: LetterClaim,
): Promise<Decision> {
  const { letter } = takenLetter;
  if (wasIntended && letter.replayedBy === id) {
    // Only a letter that was sent by this replay bears its name: it went, and came back.
    return { kind: 'leave', outcomes: [{ result: 'sent' }, { result: 'again' }] };
  }
  if (wasIntended && settings.unsure === 'leave') return { kind: 'leave', outcomes: [UNSURE] };
  if (letter.replays >= settings.replaysMax) return parked(takenLetter, by);
  const route = settings.to ?? letter.home;
  if (route === undefined) {
    return left('replay.unroutable', 'its origin is unknown');
  }
  const to = routeText(route);
  const send: LetterVerdict = {
    kind: 'send',
    replay: id,
    by,
    ...(news.isOfCanaries ? { isCanary: true } : {}),
    ...(settings.to === undefined ? {} : { to: route }),
  };
  const outcome: LetterOutcome = { result: 'sent', to };
  if (transform === undefined) return { kind: 'act', verdict: send, outcome };
  const repaired = await repairLetter(transform, takenLetter);
  if (repaired.kind === 'skip') return left('transform.skipped', 'the transform leaves it');
  if (repaired.kind === 'failed') return failed('transform.failed', repaired.reason);
  if (repaired.kind === 'same') return { kind: 'act', verdict: send, outcome };
  try {
    const copy = await takenLetter.copy(`changed by replay ${id}`);
    return { kind: 'act', verdict: { ...send, change: repaired.change }, outcome, copy };
  } catch (error) {
    // Without its original kept it is not changed.
    return failed(isRespoolError(error) ? error.code : 'unknown', textOf(error));
  }
}

function failed(code: string, reason: string): Decision {
  return { kind: 'leave', outcomes: [{ result: 'failed', code, reason }] };
}

function left(code: string, reason: string): Decision {
  return { kind: 'leave', outcomes: [{ result: 'left', code, reason }] };
}

function parked({ letter }: TakenLetter, by: string): Decision {
  const reason = `it was replayed ${letter.replays} times`;
  // What is parked already stays where it is.
  if (letter.kind === 'parked') return left(LIMIT_CODE, reason);
  return {
    kind: 'act',
    verdict: { kind: 'park', code: LIMIT_CODE, reason, by },
    outcome: { result: 'parked', code: LIMIT_CODE, reason },
  };
}

/** The most lateness that is made up for: timers are late by some milliseconds, not by more. */
const LAG_MAX_MS = 50;

/** Gives turns at an even pace. */
export class Pace {
  readonly #clock: Clock;
  readonly #gapMs: number;
  #nextMs: number;

  /** Without a rate there is always a turn. */
  constructor(clock: Clock, rate: number | undefined) {
    this.#clock = clock;
    this.#gapMs = rate === undefined ? 0 : SECOND_MS / rate;
    this.#nextMs = clock.monotonic();
  }

  /** Resolves when it is this one's turn, or the signal fires. */
  async turn(signal: AbortSignal): Promise<void> {
    if (this.#gapMs === 0) return;
    const nowMs = this.#clock.monotonic();
    const turnMs = Math.max(this.#nextMs, nowMs - LAG_MAX_MS);
    this.#nextMs = turnMs + this.#gapMs;
    if (turnMs > nowMs) await sleep(this.#clock, turnMs - nowMs, signal);
  }
}
