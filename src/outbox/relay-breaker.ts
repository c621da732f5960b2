/**
 * relay-breaker — the circuit breaker between a relay and its target: admits deliveries, sends them
 * and judges the answers.
 *
 *   half-open ─an answer─▶ closed ─no answer─▶ open ─pause over, or the target calls─▶ half-open
 *       └──────────────no answer, the pause doubles──▲
 *
 * It begins half-open: a relay that is started again and again before a dead target does not claim
 * hundreds of messages each time. While it is open nothing is claimed; while it is half-open a few
 * are, and one of them is sent, which asked the fewest times before. What the target did not answer
 * costs no attempt. It goes by itself the next time: when others are answered and it is not, it is
 * the message (Suspects).
 *
 * At most `max` messages are sent and not settled (UnsettledWindow): that many a crash may send
 * again.
 */

import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { show, textOf } from '../core/errors.ts';
import { classify, type Failure, failure } from '../core/failure.ts';
import { failed, isOutcome, type Outcome } from '../core/verdict.ts';
import { forward, type ForwardOptions } from '../engine/forward.ts';
import type { EngineLoad } from '../engine/parts.ts';
import type { Clock } from '../ports/clock.ts';
import type { Delivery, Handler } from '../ports/handler.ts';
import type { OutgoingMessage, Sink } from '../ports/sink.ts';
import { Breaker, type BreakerState } from '../system/breaker.ts';
import { type BackoffRange, backoffMs, withTimeout } from '../system/wait.ts';

/** What the breaker needs. */
interface RelayBreakerOptions {
  readonly clock: Clock;
  /** False for a target that is never gone as a whole. */
  readonly isProbed: boolean;
  /** Messages that are claimed for a probe where as many wait. */
  readonly probers: number;
  /** Messages that may be sent and not settled. */
  readonly max: number;
  /** The engine whose handler this is. */
  readonly engine: { readonly load: Pick<EngineLoad, 'running' | 'settling'> };
  /** The first pause, and the longest. */
  readonly pause: BackoffRange;
  onChange(state: BreakerState): void;
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

/** Sent, with an unknown result. */
const UNANSWERED = 'sink.unanswered';
const UNKNOWN: ReadonlySet<string> = new Set([UNANSWERED, 'broker.unconfirmed']);

/** A sink should answer long before: one that does not holds up all that wait behind. */
const ANSWER_MAX_MS: number = 2 * MINUTE_MS;

/** Those that wait for a probe that takes longer are given back: their own time goes on. */
const PROBE_MAX_MS: number = ANSWER_MAX_MS + 30 * SECOND_MS;

/** Added to the wait where all of them asked in vain before: others are claimed first. */
const ASIDE_MS = 250;
/** The same in pauses: at most as many as it takes until all that asked had their turn. */
const ASIDE_PAUSES_MAX = 4;
/** Maximum number of messages that are remembered to have asked. */
const ASKED_MAX = 20_000;

/** A handler that says so speaks of the whole target. */
const GONE = 'broker.unavailable';
/** The same, of a request that has one address for all messages. */
const UNREACHABLE = 'http.unreachable';

const NO_BODY: Uint8Array = new Uint8Array();

type HandlerResult = Awaited<ReturnType<Handler>>;

/** Lets messages through to one target. */
export class RelayBreaker {
  readonly #parts: RelayBreakerOptions;
  readonly #breaker: Breaker;
  readonly #window: UnsettledWindow;
  #why: Failure = failure('transient', UNANSWERED, 'the target did not answer');
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

  constructor(parts: RelayBreakerOptions) {
    const { clock, pause, isProbed } = parts;
    this.#parts = parts;
    this.#window = new UnsettledWindow(parts);
    const state = isProbed ? 'half-open' : 'closed';
    const onChange = (to: BreakerState): void => this.#onChange(to);
    this.#breaker = new Breaker({ clock, failures: 1, pause, state, onChange });
  }

  get state(): BreakerState {
    return this.#breaker.state;
  }

  /** A handler that sends to a sink; its caller closes the sink. */
  sendTo(sink: Sink, options: ForwardOptions): Handler {
    const send: Sink['send'] = (parcels) => this.#sendAll(sink, parcels);
    const deliver = forward({ name: sink.name, send, close: () => Promise.resolve() }, options);
    return this.#admitting(async (delivery) =>
      this.#judge(delivery.id, (await deliver(delivery)) as Outcome),
    );
  }

  /**
   * Another handler as the target.
   *
   * A route may lead to many places, so each message is judged by itself: one place that is gone
   * must not hold up what goes elsewhere. But where the target is known to be gone as a whole, all
   * that wait would only spend their attempts: the breaker opens.
   */
  routeTo(deliver: Handler): Handler {
    const codes = hasOneAddress(deliver) ? [GONE, UNREACHABLE] : [GONE];
    return this.#admitting((delivery) => this.#route(delivery, deliver, codes));
  }

  /** Something was settled. */
  readonly onSettled = (): void => this.#window.look();

  /** The target says that it is back. Where it says so and does not answer, it is not believed. */
  call(): void {
    if (this.state !== 'open') return;
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

  /** The handler, begun when there is room; while half-open, one message after the other. */
  #admitting(deliver: Handler): Handler {
    return async (delivery) => {
      const { id, signal } = delivery;
      await this.#window.room(signal);
      if (!(await this.#admitted(id))) return this.#judge(id, failed(this.#unsent()));
      // Without a send when its time was over before, or when it never ends.
      const next = (): void => {
        if (this.#asking === id) this.#ask();
      };
      signal.addEventListener('abort', next, { once: true });
      try {
        return await deliver(delivery);
      } finally {
        signal.removeEventListener('abort', next);
        this.#guilty.delete(id);
        next();
      }
    };
  }

  async #route(
    delivery: Delivery,
    deliver: Handler,
    codes: readonly string[],
  ): Promise<HandlerResult> {
    let result: HandlerResult = undefined;
    let thrown: { readonly error: unknown } | undefined;
    try {
      result = await deliver(delivery);
    } catch (error) {
      thrown = { error };
    }
    const found = thrown === undefined ? failureIn(result) : classify(thrown.error);
    const isGone = found?.permanence === 'transient' && codes.includes(found.code);
    if (isGone) {
      // As sent without an answer: the breaker then knows one message from a place that is gone.
      const silence = failure('transient', UNANSWERED, found.reason);
      await this.#report(delivery, silence);
      const judged = this.#judge(delivery.id, failed(silence));
      if (judged.kind !== 'failed') return judged;
    } else await this.#report(delivery, 'confirmed');
    if (thrown !== undefined) throw thrown.error;
    return result;
  }

  /** Reports an answer afterwards, so that a handler may take as long as it likes. */
  async #report(
    { id, topic, headers, envelope }: Delivery,
    answer: 'confirmed' | Failure,
  ): Promise<void> {
    const { enqueuedAt } = envelope;
    const parcel: OutgoingMessage = { id, topic, headers, body: NO_BODY, enqueuedAt };
    const route: Sink = {
      name: 'a route',
      send: () => Promise.resolve([answer]),
      close: () => Promise.resolve(),
    };
    await this.#sendAll(route, [parcel]);
  }

  /** What an outcome means here: a target that is gone is not the message's fault. */
  #judge(id: string, outcome: Outcome): Outcome {
    if (outcome.kind !== 'failed' || !isSilent(outcome.failure)) return outcome;
    if (this.#guilty.delete(id)) return outcome;
    const { code, reason } = outcome.failure;
    // Due at once: while it is open nothing is claimed here, and others may reach the target.
    const delayMs = this.#aside?.ids.has(id) === true ? this.#aside.ms : 0;
    return { kind: 'postponed', delayMs, reason, code };
  }

  #admitted(id: string): boolean | Promise<boolean> {
    const { state } = this;
    if (state !== 'half-open') return state === 'closed';
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
    if (this.#asking === undefined && this.state === 'half-open') this.#ask();
  }

  /** Sends the one that asked the fewest times before. */
  #ask(): void {
    this.#asking = undefined;
    this.#cancelWait?.();
    if (this.state !== 'half-open' || this.#isClosed) return;
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

  async #sendAll(
    sink: Sink,
    parcels: readonly OutgoingMessage[],
  ): Promise<Awaited<ReturnType<Sink['send']>>> {
    const answers = new Map<OutgoingMessage, unknown>();
    for (const group of this.#groups(parcels)) {
      const some = await this.#send(sink, group);
      for (const [at, parcel] of group.entries()) answers.set(parcel, some[at]);
    }
    // Whatever they are: who forwards looks at each.
    return parcels.map((parcel) => answers.get(parcel)) as Awaited<ReturnType<Sink['send']>>;
  }

  /** What had no answer before goes by itself: others must not pay for it, nor it for them. */
  #groups(parcels: readonly OutgoingMessage[]): readonly (readonly OutgoingMessage[])[] {
    if (this.#suspects.size === 0) return [parcels];
    const isSuspect = ({ id }: OutgoingMessage): boolean => this.#suspects.has(id);
    const suspects = parcels.filter(isSuspect).map((parcel) => [parcel]);
    if (suspects.length === parcels.length) return suspects;
    return [parcels.filter((parcel) => !isSuspect(parcel)), ...suspects];
  }

  async #send(sink: Sink, parcels: readonly OutgoingMessage[]): Promise<readonly unknown[]> {
    // Claimed before it opened: one send after the other would wait in vain.
    if (this.state === 'open') return parcels.map(() => this.#unsent());
    const isProbe = this.state === 'half-open';
    const answers = await answersOf(sink, parcels, this.#parts.clock);
    const meanings = parcels.map(({ id }, at) => ({ id, answer: meaningOf(answers[at]) }));
    const isFault = this.#suspects.hear(meanings);
    if (meanings.some(({ answer }) => answer === 'heard')) {
      this.#breaker.reset();
      this.#callsInVain = 0;
      this.#probes.clear();
    } else if (isProbe) this.#countProbes(parcels);
    const why = answers.find(isSilent);
    if (why !== undefined && isFault) this.#guilty.add(parcels[0]?.id ?? '');
    else if (this.#isClosed) return answers;
    else if (why === undefined) this.#breaker.succeed();
    else if (this.#breaker.state !== 'open') this.#open(why, isProbe ? parcels : []);
    return answers;
  }

  #countProbes(parcels: readonly OutgoingMessage[]): void {
    if (this.#probes.size >= ASKED_MAX) this.#probes.clear();
    for (const { id } of parcels) this.#probes.set(id, (this.#probes.get(id) ?? 0) + 1);
  }

  /** `probe`: what asked. */
  #open(why: Failure, probe: readonly OutgoingMessage[]): void {
    const { clock, pause, probers } = this.#parts;
    this.#why = why;
    const claimed = new Set([...probe.map(({ id }) => id), ...this.#probers.keys()]);
    const wasThere = this.#breaker.openings === 0;
    const waitMs = this.#breaker.fail() ?? pause.firstMs;
    if (wasThere) this.#parts.onGone(why);
    const isAside = probe.length > 0 && this.#isCrowd;
    const pauses = Math.min(ASIDE_PAUSES_MAX, Math.ceil(this.#probes.size / probers));
    this.#aside = isAside ? { ids: claimed, ms: waitMs * pauses + ASIDE_MS } : undefined;
    if (this.#isCalled) this.#callsInVain += 1;
    this.#isCalled = false;
    const calls = this.#callsInVain;
    this.#calledAfter = clock.monotonic() + (calls === 0 ? 0 : backoffMs(pause, calls - 1));
    this.#pause(waitMs);
  }

  #pause(ms: number): void {
    this.#cancelPause?.();
    this.#cancelPause = this.#parts.clock.after(ms, () => this.#probe());
  }

  #probe(): void {
    if (!this.#isClosed) this.#breaker.halfOpen();
  }

  #onChange(state: BreakerState): void {
    if (state !== 'open') this.#cancelPause?.();
    if (state !== 'half-open') {
      this.#asking = undefined;
      this.#cancelWait?.();
      this.#admitAll(state === 'closed');
    }
    this.#parts.onChange(state);
  }

  #unsent(): Failure {
    return failure('transient', 'broker.unavailable', this.#why.reason);
  }
}

/** One answer each; for a sink that throws, or is silent for too long, a failure that says so. */
async function answersOf(
  sink: Sink,
  parcels: readonly OutgoingMessage[],
  clock: Clock,
): Promise<readonly unknown[]> {
  const unanswered = (text: string): readonly unknown[] => {
    const reason = `sink "${sink.name}" did not answer: ${text}`;
    return parcels.map(() => failure('transient', UNANSWERED, reason));
  };
  const late = (): readonly unknown[] => unanswered(`nothing came within ${ANSWER_MAX_MS} ms`);
  try {
    return await withTimeout(clock, ANSWER_MAX_MS, answered(sink, parcels), late);
  } catch (error) {
    return unanswered(textOf(error));
  }
}

async function answered(
  sink: Sink,
  parcels: readonly OutgoingMessage[],
): Promise<readonly unknown[]> {
  const answers: unknown = await sink.send(parcels);
  if (!Array.isArray(answers)) throw new Error(`it returned ${show(answers)} and no list`);
  return parcels.map((_, at) => answers[at] as unknown);
}

function meaningOf(answer: unknown): SendAnswer['answer'] {
  if (!isSilent(answer)) return 'heard';
  return AWAY.has(answer.code) ? 'away' : 'silent';
}

function isSilent(answer: unknown): answer is Failure {
  if (typeof answer !== 'object' || answer === null) return false;
  const { code, permanence } = answer as Partial<Failure>;
  if (permanence === 'permanent' || typeof code !== 'string') return false;
  return UNSENT.has(code) || UNKNOWN.has(code);
}

/** Whether it is `http({ url })`, as it tells itself; with `urls` there are several. */
function hasOneAddress(deliver: Handler): boolean {
  const { describe } = deliver as { describe?: unknown };
  if (typeof describe !== 'function') return false;
  try {
    const { kind, url } = Object(describe.call(deliver)) as Readonly<Record<string, unknown>>;
    return kind === 'http' && typeof url === 'string';
  } catch {
    // What a handler cannot tell about itself must not keep it from delivering.
    return false;
  }
}

/** An outcome that is none is the business of the engine. */
function failureIn(result: HandlerResult): Failure | undefined {
  try {
    return isOutcome(result) && result.kind === 'failed' ? result.failure : undefined;
  } catch {
    return undefined;
  }
}

/** What became of one message in a send. */
interface SendAnswer {
  readonly id: string;
  /** `away`: no answer, and the target itself is said to be away. */
  readonly answer: 'heard' | 'silent' | 'away';
}

/** Outages while one message is sent before it is suspected of causing them. */
const AWAYS_MAX = 3;

/** Maximum number of messages that are remembered. */
const REMEMBERED_MAX = 20_000;

/**
 * Which messages had no answer, and whether that is their own fault. Pure.
 *
 * One message without an answer proves nothing: the target may be gone. It is the message when
 * others were answered since it had none, one of them right before it, and it alone has none again.
 * So a target that is gone charges no message, and one that comes and goes charges one each time.
 */
class Suspects {
  /** Sends that had an answer, and whether the last one had. */
  #heard = 0;
  #wasHeard = false;
  /** Messages without an answer, and how many sends had been answered by then. */
  readonly #silentAt = new Map<string, number>();
  readonly #aways = new Map<string, number>();

  get size(): number {
    return this.#silentAt.size;
  }

  has(id: string): boolean {
    return this.#silentAt.has(id);
  }

  /** Takes in what was said to one send. True: the one message of it is at fault. */
  hear(answers: readonly SendAnswer[]): boolean {
    const wasHeard = this.#wasHeard;
    const isHeard = answers.some(({ answer }) => answer === 'heard');
    this.#wasHeard = isHeard;
    if (isHeard) this.#heard += 1;
    const faults = answers.map((one) => this.#isFault(one, isHeard));
    return answers.length === 1 && wasHeard && faults[0] === true;
  }

  #isFault({ id, answer }: SendAnswer, isHeard: boolean): boolean {
    if (answer === 'heard') {
      this.#silentAt.delete(id);
      this.#aways.delete(id);
      return false;
    }
    const before = this.#silentAt.get(id);
    // Where others of the same send were answered, the target is not away.
    const isAway = answer === 'away' && !isHeard && before === undefined;
    if (isAway && this.#countAway(id) < AWAYS_MAX) return false;
    if (this.#silentAt.size >= REMEMBERED_MAX) this.#silentAt.clear();
    this.#silentAt.set(id, this.#heard);
    return before !== undefined && this.#heard > before;
  }

  #countAway(id: string): number {
    if (this.#aways.size >= REMEMBERED_MAX) this.#aways.clear();
    const aways = (this.#aways.get(id) ?? 0) + 1;
    this.#aways.set(id, aways);
    return aways;
  }
}

/** A handler that has not begun to send. */
interface Waiting {
  readonly signal: AbortSignal;
  readonly begin: () => void;
}

/** The interval of a look without a reported change. */
const LOOK_EVERY_MS = 100;

/**
 * Limits how many messages are sent, or on their way, and not yet settled, in the order in which
 * they came.
 *
 * The engine frees the slot of a handler before its outcome is in the store. While the database is
 * slow, a relay without this would go on sending what it cannot settle.
 */
class UnsettledWindow {
  readonly #parts: RelayBreakerOptions;
  #waiting: Waiting[] = [];
  #isLooking = false;
  #cancelLook: (() => void) | undefined;

  constructor(parts: RelayBreakerOptions) {
    this.#parts = parts;
  }

  /** Resolves when one more may begin; throws when it was aborted meanwhile. */
  async room(signal: AbortSignal): Promise<void> {
    // This one is running as well.
    if (this.#waiting.length === 0 && this.#room >= 0) return;
    await new Promise<void>((begin) => this.#wait({ signal, begin }));
    signal.throwIfAborted();
  }

  /** Looks for room, once for all that was settled in this turn of the loop. */
  look(): void {
    if (this.#waiting.length === 0 || this.#isLooking) return;
    this.#isLooking = true;
    this.#parts.clock.soon(() => {
      this.#isLooking = false;
      this.#admit();
    });
  }

  /** How many more may begin; what waits is running for the engine. */
  get #room(): number {
    const { running, settling } = this.#parts.engine.load;
    return this.#parts.max - (running - this.#waiting.length + settling);
  }

  #wait(one: Waiting): void {
    this.#waiting.push(one);
    this.#cancelLook ??= this.#parts.clock.after(LOOK_EVERY_MS, () => this.#admit());
  }

  #admit(): void {
    this.#cancelLook?.();
    this.#cancelLook = undefined;
    let room = this.#room;
    const isFree = ({ signal }: Waiting): boolean => {
      if (signal.aborted) return true;
      room -= 1;
      return room >= 0;
    };
    const free = this.#waiting.map(isFree);
    const waiting = this.#waiting;
    this.#waiting = waiting.filter((_, at) => free[at] !== true);
    for (const [at, { begin }] of waiting.entries()) if (free[at] === true) begin();
    if (this.#waiting.length === 0) return;
    this.#cancelLook = this.#parts.clock.after(LOOK_EVERY_MS, () => this.#admit());
  }
}
