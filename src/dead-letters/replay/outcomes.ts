/**
 * outcomes — what becomes of letters that were sent (`OutcomeListener`), and whether that is too
 * bad to go on (`FailureGuard`).
 *
 * Called by run.ts and send-letters.ts. Asked rarely: for a queue each question is a look through
 * it. The guard counts one run only: what was wrong before a resume is no reason to stop again.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type {
  DeadLetters,
  DestinationState,
  LetterRoute,
  Since,
} from '../../ports/dead-letters.ts';
import { sleep } from '../../system/wait.ts';
import type { LetterProgress, ReplayJournal, ReplayLease } from './run-state.ts';
import type { ReplayCanaries } from '../../spool/operator/replays.ts';

/**
 * Minimum interval of two queries, and its minimum multiple of the last query's duration. Also in
 * docs/reference/dead-letters.md.
 */
const ASK_EVERY_MS: number = 5 * SECOND_MS;
const REST_FACTOR = 10;
/**
 * Ids in one question; the others have their turn the next time. Also in
 * docs/reference/dead-letters.md.
 */
const IDS_MAX = 1_000;
/**
 * Canaries, and at the end what failed again, are looked for after this, and then after twice as
 * long each time, up to the second.
 */
const CANARY_FIRST_MS = 250;
const CANARY_EVERY_MS: number = 5 * SECOND_MS;
/**
 * What waits at more destinations than this is not asked for. Also in
 * docs/reference/dead-letters.md.
 */
const ROUTES_MAX = 100;
/** Destinations without a consumer that are named. Also in docs/reference/dead-letters.md. */
const NAMED_MAX = 3;
/**
 * A destination without a consumer for this long gets none: its consumer does not just restart.
 * Also in docs/reference/dead-letters.md.
 */
const UNTOUCHED_MS: number = 30 * SECOND_MS;
/**
 * How long to wait for another process that works on the place, and how often to check. The first
 * also in docs/reference/dead-letters.md.
 */
export const BUSY_MAX_MS: number = 15 * SECOND_MS;
export const BUSY_EVERY_MS: number = SECOND_MS;

/** Does this work on a place, as soon as no other process, such as a look, is busy there. */
export async function whenFree<T>(
  work: () => Promise<T>,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  const untilMs = clock.monotonic() + BUSY_MAX_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isOver = signal.aborted || clock.monotonic() >= untilMs;
      if (isOver || !isRespoolError(error, 'move.refused')) throw error;
    }
    await sleep(clock, BUSY_EVERY_MS, signal);
  }
}

interface NewsOptions {
  readonly id: string;
  readonly letters: DeadLetters;
  readonly progress: LetterProgress;
  readonly journal: ReplayJournal;
  readonly guard: FailureGuard;
  readonly clock: Clock;
}

/** The letters of this run of which nothing was heard yet. */
export class OutcomeListener {
  readonly #parts: NewsOptions;
  /** By id, in the order they were sent; two copies may share one. */
  readonly #silent = new Map<string, number[]>();
  /** All letters that were ever added to `#silent`, also those of which something was heard. */
  readonly #expected = new Set<number>();
  readonly #canaries = new Map<number, keyof ReplayCanaries>();
  /** Where letters went, each once, and how many of this run. */
  readonly #routes = new Map<string, { readonly route: LetterRoute; sent: number }>();
  /** Letters that earlier runs have sent: where is not known any more. */
  #isElsewhere = false;
  /** Since when no consumer is where all that was sent waits. */
  #untouchedMs: number | undefined;
  /** What waits there, as it was asked last; undefined: that is not known. */
  #waitingThere: number | undefined;
  #lease: ReplayLease | undefined;
  #nextMs: number;
  #asking: Promise<void> | undefined;

  constructor(parts: NewsOptions) {
    this.#parts = parts;
    this.#nextMs = parts.clock.monotonic() + ASK_EVERY_MS;
  }

  /** From now on questions are asked while letters are sent, and bad news halt this lease. */
  watch(lease: ReplayLease): void {
    this.#lease = lease;
  }

  /** Whether what is sent now is a canary. */
  get isOfCanaries(): boolean {
    return this.#lease === undefined;
  }

  /** Whether it can be heard here that a letter was delivered. */
  get hearsDeliveries(): boolean {
    return this.#parts.letters.waitingAt === undefined;
  }

  /** The number of letters of which nothing was heard. */
  get waiting(): number {
    let count = 0;
    for (const items of this.#silent.values()) count += items.length;
    return count;
  }

  /** This one was sent; before `watch` it is a canary. */
  expect(item: number, route?: LetterRoute): void {
    const { guard, clock } = this.#parts;
    if (this.isOfCanaries) {
      this.#canaries.set(item, 'waiting');
      this.#tally();
    }
    if (route !== undefined) this.#countRoute(route);
    this.#add(item);
    if (!guard.isOn || this.#lease === undefined || this.#asking !== undefined) return;
    if (clock.monotonic() >= this.#nextMs)
      this.#asking = this.#ask(this.#lease).finally(() => (this.#asking = undefined));
  }

  /** Waits until nothing is being asked. */
  async quiet(): Promise<void> {
    await this.#asking;
  }

  /**
   * Watches the canaries until an attempt of each has ended, or the span is over; too many that
   * failed, or one without an ended attempt, halt this lease.
   */
  async watchCanaries(lease: ReplayLease, waitMs: number): Promise<void> {
    let hasRead = false;
    await this.#poll(lease, waitMs, async () => {
      hasRead = hasRead || (await this.#isAllTaken());
      // In this order: what came back after a consumer took it is heard of.
      await this.#ask(lease);
      return this.#silent.size === 0;
    });
    if (!lease.isHeld) return;
    if (hasRead) this.#mark([...this.#silent.values()].flat(), 'passed');
    this.#judge(lease, true);
    const because = this.#undecided();
    if (because !== undefined) lease.halt.stop({ kind: 'end', state: 'stopped', because });
  }

  /** The same where nothing else is left to be sent: failures are counted, and stop nothing. */
  async watchLast(lease: ReplayLease, waitMs: number): Promise<void> {
    let hasAnswer = false;
    await this.#poll(lease, waitMs, async () => {
      // `last` reports what cannot be read here.
      const heard = this.#hear([...this.#silent.keys()], lease);
      hasAnswer = await heard.then(
        () => true,
        () => false,
      );
      return this.#silent.size === 0;
    });
    if (!lease.isHeld || !hasAnswer) return;
    const because = this.#undecided('');
    if (because !== undefined) lease.halt.stop({ kind: 'end', state: 'stopped', because });
  }

  /** A last question: without an answer the lease is halted; the texts say what it left open. */
  async last(lease: ReplayLease): Promise<readonly string[]> {
    const { letters, progress } = this.#parts;
    if (this.#silent.size === 0) return [];
    try {
      const unseen = await this.#hear([...this.#silent.keys()], lease);
      if (this.hearsDeliveries) progress.waiting = this.waiting;
      if (unseen === 0) return [];
      const where = `${unseen} letters of ${letters.name} are beyond the limit of one look`;
      return [`${where}: what failed again may be among them`];
    } catch (error) {
      this.#stopBlind(lease, error);
      return [];
    }
  }

  /**
   * Where deliveries are not reported: the last question after this time, and what still waits
   * where letters went. Nothing is waited for that no consumer can take.
   */
  async watchEnd(lease: ReplayLease, waitMs: number): Promise<readonly string[]> {
    const { progress } = this.#parts;
    for (const item of progress.sentItems()) this.#expectEarlier(item);
    if (this.#silent.size === 0) return [];
    await this.#poll(lease, waitMs, () => this.#isUntouched());
    if (!lease.isHeld) return [];
    const texts = await this.last(lease);
    if (!lease.isHeld) return [];
    const there = await this.#there(true);
    if (there === undefined) {
      const isUnknown = texts.length === 0 && this.#silent.size > 0;
      return isUnknown ? ['how many of them wait for a consumer is unknown'] : texts;
    }
    const waiting = there.reduce((sum, { ready, unacked = 0 }) => sum + ready + unacked, 0);
    progress.waiting = Math.min(waiting, this.waiting);
    const idle = there.filter(({ consumers }) => consumers === 0).map(textOfIdle);
    const more = idle.length - NAMED_MAX;
    const others = more > 0 ? [`${more} more destinations have none`] : [];
    return [...texts, ...idle.slice(0, NAMED_MAX), ...others];
  }

  /** Never rejects: a guard that cannot see stops the run. */
  async #ask(lease: ReplayLease): Promise<void> {
    const most = this.isOfCanaries ? undefined : IDS_MAX;
    try {
      await this.#hear([...this.#silent.keys()].slice(0, most), lease);
      this.#judge(lease, false);
    } catch (error) {
      this.#stopBlind(lease, error);
    }
  }

  #stopBlind({ halt }: ReplayLease, error: unknown): void {
    const because = `cannot tell whether letters failed again: ${textOf(error)}`;
    halt.stop({ kind: 'end', state: 'stopped', because });
  }

  /** Asks, less and less often, until the answer is true or the span is over. */
  async #poll(lease: ReplayLease, waitMs: number, ask: () => Promise<boolean>): Promise<void> {
    const { clock } = this.#parts;
    const untilMs = clock.monotonic() + waitMs;
    let spanMs = CANARY_FIRST_MS;
    for (;;) {
      const restMs = untilMs - clock.monotonic();
      await sleep(clock, Math.max(0, Math.min(spanMs, restMs)), lease.halt.signal);
      if (!lease.isHeld) return;
      const isOver = await ask();
      if (!lease.isHeld || isOver || clock.monotonic() >= untilMs) return;
      spanMs = Math.min(2 * spanMs, CANARY_EVERY_MS);
    }
  }

  /** Where deliveries are not reported: whether consumers have taken all that was sent. */
  async #isAllTaken(): Promise<boolean> {
    const there = await this.#there();
    // Purged, expired, or taken by a consumer that has left since: unknown.
    const isKnown = there?.every(({ ready, consumers }) => ready + consumers > 0) ?? false;
    const count = there?.reduce((sum, { ready }) => sum + ready, 0);
    this.#waitingThere = isKnown ? count : undefined;
    return this.#waitingThere === 0;
  }

  /** Whether all that was sent still waits, and for a while no consumer was there to take it. */
  async #isUntouched(): Promise<boolean> {
    if (this.#isElsewhere) return false;
    const there = await this.#there();
    const sent = [...this.#routes.values()];
    const isSo = ({ ready, consumers }: DestinationState, at: number): boolean =>
      consumers === 0 && ready >= (sent[at]?.sent ?? 0);
    const nowMs = this.#parts.clock.monotonic();
    if (there?.length === sent.length && there.every(isSo)) this.#untouchedMs ??= nowMs;
    else this.#untouchedMs = undefined;
    return nowMs - (this.#untouchedMs ?? nowMs) >= UNTOUCHED_MS;
  }

  /** What waits where letters of this run went, in their order; undefined: that is not known. */
  async #there(isFull = false): Promise<readonly DestinationState[] | undefined> {
    const { letters } = this.#parts;
    const { size } = this.#routes;
    if (letters.waitingAt === undefined || size === 0 || size > ROUTES_MAX) return undefined;
    const routes = [...this.#routes.values()].map(({ route }) => route);
    // Asked again; without an answer nothing is known.
    return letters.waitingAt(routes, { isFull }).catch(() => undefined);
  }

  #countRoute(route: LetterRoute): void {
    const key = JSON.stringify(route);
    const known = this.#routes.get(key);
    if (known !== undefined) known.sent += 1;
    // One more than is asked for says that it is too many.
    else if (this.#routes.size <= ROUTES_MAX) this.#routes.set(key, { route, sent: 1 });
  }

  #expectEarlier(item: number): void {
    if (this.#expected.has(item)) return;
    this.#isElsewhere = true;
    this.#add(item);
  }

  #add(item: number): void {
    const id = this.#parts.progress.idOf(item);
    this.#expected.add(item);
    const items = this.#silent.get(id);
    if (items === undefined) this.#silent.set(id, [item]);
    else items.push(item);
  }

  #mark(items: readonly number[], standing: keyof ReplayCanaries): void {
    for (const item of items) if (this.#canaries.has(item)) this.#canaries.set(item, standing);
    this.#tally();
  }

  /** Why nothing can be said of the canaries; undefined: an attempt of each has ended. */
  #undecided(consequence = '; nothing else was sent'): string | undefined {
    const { waiting, passed, removed } = this.#tally();
    const count = this.#canaries.size;
    if (waiting === 0 && removed === 0) return undefined;
    const were = removed === 1 ? ['was', 'it was'] : ['were', 'they were'];
    const gone = `${removed} ${were[0]} removed before ${were[1]} delivered`;
    if (waiting === 0) {
      return `${passed} of ${count} canaries were delivered, ${gone}${consequence}`;
    }
    const there = this.#waitingThere;
    if (!this.hearsDeliveries && there === undefined) {
      return (
        `it cannot be determined whether the ${count} canaries were attempted, since it is not ` +
        'known which queue they are in, or that queue is empty and has no consumer' +
        consequence
      );
    }
    const untouched = there === undefined ? waiting : Math.min(waiting, there);
    const attempts = count - untouched - removed;
    const others = attempts + removed === 0 ? '' : ' of the others';
    const why =
      there === undefined
        ? `no attempt${others} has ended; is a process delivering, or is the topic paused?`
        : `${there} messages wait at their destination, and no consumer has taken them`;
    const attempted = `${attempts} of ${count} canaries were attempted`;
    const also = removed === 0 ? '' : `, ${gone}`;
    return `${attempted}${also}${consequence}: ${why}`;
  }

  #tally(): Required<ReplayCanaries> {
    const all = [...this.#canaries.values()];
    const tally = { passed: 0, failed: 0, waiting: 0, removed: 0 };
    for (const standing of all) tally[standing] += 1;
    const { removed, ...others } = tally;
    if (all.length > 0) this.#parts.progress.canaryTally = removed === 0 ? others : tally;
    return tally;
  }

  /** Asks what became of these; returns how many letters were not looked at. */
  async #hear(ids: readonly string[], { halt }: ReplayLease): Promise<number> {
    const { id, letters, progress, clock, guard } = this.#parts;
    // Letters with this id that failed again earlier may still be in the queue.
    const known = new Map(ids.map((name) => [name, progress.againOf(name)]));
    const asked = ids.flatMap((name) => {
      const count = (this.#silent.get(name)?.length ?? 0) + (known.get(name) ?? 0);
      return Array.from({ length: count }, () => name);
    });
    let beganMs = 0;
    const ask = () => {
      beganMs = clock.monotonic();
      return letters.since(id, asked);
    };
    const since = await whenFree(ask, clock, halt.signal);
    const { failed, delivered, removed } = await this.#explainGone(since);
    const endedMs = clock.monotonic();
    this.#nextMs = endedMs + Math.max(ASK_EVERY_MS, REST_FACTOR * (endedMs - beganMs));
    let again = 0;
    for (const failure of failed) {
      const before = known.get(failure.id) ?? 0;
      if (before > 0) known.set(failure.id, before - 1);
      else if (this.#noteFailed(failure)) again += 1;
    }
    const passed = delivered.flatMap((name) => this.#forget(name));
    this.#mark(passed, 'passed');
    const lost = removed.flatMap((name) => this.#forget(name));
    this.#mark(lost, 'removed');
    guard.countNews(again, passed.length);
    // Those of which nothing was heard are asked for last the next time.
    for (const name of ids) {
      const items = this.#silent.get(name);
      if (items === undefined) continue;
      this.#silent.delete(name);
      this.#silent.set(name, items);
    }
    return since.unseen ?? 0;
  }

  /**
   * What is gone was delivered, as far as the guard needs to know: delivered messages are removed
   * by default. A canary was delivered only where that is on record.
   */
  async #explainGone(since: Since): Promise<Omit<Since, 'gone'> & { readonly removed: string[] }> {
    const failed = [...since.failed];
    const delivered = [...since.delivered];
    const removed: string[] = [];
    const { gone = [] } = since;
    const isCanary = (name: string): boolean =>
      this.#silent.get(name)?.some((item) => this.#canaries.has(item)) ?? false;
    const ends = gone.some(isCanary) ? await this.#parts.progress.canaryEnds() : undefined;
    for (const id of gone) {
      const { result, code = 'unknown', reason = '' } = ends?.get(id) ?? {};
      if (!isCanary(id) || result === 'delivered') delivered.push(id);
      else if (result === 'bounced') failed.push({ id, code, reason });
      else removed.push(id);
    }
    return { failed, delivered, removed };
  }

  /** One letter of this id; of several any stands for any. False: nothing more is asked of it. */
  #noteFailed({ id, code, reason }: Since['failed'][number]): boolean {
    const { clock, progress, journal } = this.#parts;
    const [item, ...others] = this.#forget(id);
    if (item === undefined) return false;
    if (others.length > 0) this.#silent.set(id, others);
    const outcome = { result: 'again', code, reason } as const;
    progress.settle(item, outcome, clock.now());
    journal.note(item, outcome);
    this.#mark([item], 'failed');
    return true;
  }

  #forget(name: string): readonly number[] {
    const items = this.#silent.get(name) ?? [];
    this.#silent.delete(name);
    return items;
  }

  #judge(lease: ReplayLease, isWhole: boolean): void {
    const because = this.#parts.guard.verdict(isWhole);
    if (because !== undefined) lease.halt.stop({ kind: 'end', state: 'stopped', because });
  }
}

function textOfIdle({ name, ready }: DestinationState): string {
  const what = ready === 0 ? 'is empty' : `${ready} messages wait there`;
  return `${name} has no consumer, and ${what}`;
}

/** Minimum count for a share to mean anything. Also in docs/reference/dead-letters.md. */
const JUDGED_MIN = 10;
/**
 * Consecutive letters that cannot be sent before it stops, while no ratio is known. Also in
 * docs/reference/dead-letters.md.
 */
const ROW_MAX = 10;

/** What became of the letters of one run, and whether that is too bad. */
export class FailureGuard {
  readonly #stopAbove: number;
  #sent = 0;
  #failed = 0;
  #again = 0;
  #delivered = 0;
  #inRow = 0;
  #last = '';

  /** Above this many percent it stops; 100: never. */
  constructor(stopAbove: number) {
    this.#stopAbove = stopAbove;
  }

  /** Whether anything could make it stop. */
  get isOn(): boolean {
    return this.#stopAbove < 100;
  }

  /** How many were sent in this run, or could not be. */
  get tried(): number {
    return this.#sent + this.#failed;
  }

  countSent(): void {
    this.#sent += 1;
    this.#inRow = 0;
  }

  countFailed(code: string, reason: string): void {
    this.#failed += 1;
    this.#inRow += 1;
    this.#last = reason === '' ? code : `${code}, ${reason}`;
  }

  /** News of letters that were sent: each of them once. */
  countNews(again: number, delivered: number): void {
    this.#again += again;
    this.#delivered += delivered;
  }

  /** Why it has to stop; undefined: go on. `isWhole`: there are not going to be more to judge. */
  verdict(isWhole = false): string | undefined {
    if (!this.isOn) return undefined;
    if (this.#inRow >= ROW_MAX) {
      return `${this.#inRow} letters in a row could not be sent${this.#because()}`;
    }
    const bad = this.#failed + this.#again;
    // Where deliveries are reported, what is still on its way must not thin the share out.
    const known = bad + this.#delivered;
    const tried = this.#failed + this.#sent;
    const judged = this.#delivered > 0 && known >= JUDGED_MIN ? known : tried;
    if (bad === 0 || (judged < JUDGED_MIN && !isWhole)) return undefined;
    const percent = (100 * bad) / judged;
    if (percent <= this.#stopAbove) return undefined;
    return (
      `${bad} of ${judged} letters failed (${Math.round(percent)} %; ${this.#failed} could not ` +
      `be sent, ${this.#again} failed again), allowed are ${this.#stopAbove} %${this.#because()}`
    );
  }

  #because(): string {
    return this.#last === '' ? '' : `; the last one: ${this.#last}`;
  }
}
