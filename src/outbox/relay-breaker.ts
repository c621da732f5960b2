/**
 * relay-breaker — the circuit breaker between a relay and its target: admits deliveries, sends
 * them, and decides from the answers whether the target or a message is at fault.
 *
 *   half-open ─an answer─▶ closed ─no answer─▶ open ─pause over, or target back─▶ half-open
 *       └──────────────no answer, the pause doubles──▲
 *
 * It begins half-open (for a route: closed), so that a relay that is restarted while its target is
 * down does not claim hundreds of messages each time. While it is open nothing is claimed. While it
 * is half-open a few messages are claimed, and one is sent as a probe: the one that was a probe the
 * fewest times. A message without an answer uses no attempt, and is sent alone the next time: if
 * others get an answer and it does not, the message is at fault (Suspects).
 *
 * Promise: at most `max` messages are sent and not settled (UnsettledWindow); a crash may send
 * these again.
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

/** What the breaker needs of its relay. */
interface RelayBreakerOptions {
  readonly clock: Clock;
  /** False for a target that is never down as a whole. */
  readonly isProbed: boolean;
  /** Maximum number of messages that are claimed for a probe. */
  readonly probers: number;
  /** Maximum number of messages that are sent and not settled. */
  readonly max: number;
  /** The engine whose handler this is. */
  readonly engine: { readonly load: Pick<EngineLoad, 'running' | 'settling'> };
  /** The first pause, and the longest. */
  readonly pause: BackoffRange;
  onChange(state: BreakerState): void;
  /** The target does not answer any more. */
  onUnreachable(why: Failure): void;
}

/** Codes that mean: the target could not be reached; seldom the fault of a message. */
const UNREACHABLE_CODES: ReadonlySet<string> = new Set([
  'broker.unavailable',
  'store.unavailable',
  'engine.stopping',
]);

/** Codes that mean: the message was not sent. */
const UNSENT_CODES: ReadonlySet<string> = new Set([
  ...UNREACHABLE_CODES,
  'store.full',
  'peer.missing',
  'config.invalid',
]);

/** Codes that mean: sent, with an unknown result; as AWAY of cli/commands/outbox/stats.ts. */
const UNANSWERED = 'sink.unanswered';
const UNKNOWN_RESULT_CODES: ReadonlySet<string> = new Set([UNANSWERED, 'broker.unconfirmed']);

/** The time limit of a sink (a route has none here): else all behind would wait for its answer. */
const ANSWER_MAX_MS: number = 2 * MINUTE_MS;

/** Messages that wait longer for a probe are postponed: their own time limits are running. */
const PROBE_MAX_MS: number = ANSWER_MAX_MS + 30 * SECOND_MS;

/** Added to the delay if all claimed messages were probes before: others are claimed first. */
const CLAIM_OTHERS_MS = 250;
/** The longest such delay, in pauses; it is shorter while few messages were probes. */
const CLAIM_OTHERS_PAUSES_MAX = 4;
/** Maximum number of messages whose probes are counted. */
const PROBE_COUNTS_MAX = 20_000;

/** A handler's failure with this code means the whole target. */
const TARGET_UNREACHABLE = 'broker.unavailable';
/** So does this code, of an HTTP handler with one address for all messages. */
const ADDRESS_UNREACHABLE = 'http.unreachable';

const NO_BODY: Uint8Array = new Uint8Array();

type HandlerResult = Awaited<ReturnType<Handler>>;

/** The circuit breaker of one target. */
export class RelayBreaker {
  readonly #parts: RelayBreakerOptions;
  readonly #breaker: Breaker;
  readonly #window: UnsettledWindow;
  #why: Failure = failure('transient', UNANSWERED, 'the target did not answer');
  readonly #suspects = new Suspects();
  /** Messages that are at fault for having no answer: it costs them an attempt. */
  readonly #atFault = new Set<string>();
  /** How often each message was an unanswered probe since the last answer. */
  readonly #probeCounts = new Map<string, number>();
  /** Messages that wait to be the probe, and the one that is. */
  readonly #candidates = new Map<string, (isAdmitted: boolean) => void>();
  #probingId: string | undefined;
  /** Whether all claimed messages had been probes before. */
  #haveAllProbed = false;
  /** Messages that were claimed for the last probe, and how long they are postponed. */
  #delayed: { readonly ids: ReadonlySet<string>; readonly ms: number } | undefined;
  #cancelWait: (() => void) | undefined;
  /**
   * Whether the target has reported to be back; and reports since the last answer that were wrong.
   */
  #isBackReported = false;
  #falseReports = 0;
  /** Until when (monotonic) its reports are ignored. */
  #ignoresReportsUntil = 0;
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
    const send: Sink['send'] = (messages) => this.#sendAll(sink, messages);
    const deliver = forward({ name: sink.name, send, close: () => Promise.resolve() }, options);
    return this.#admitting(async (delivery) =>
      this.#judge(delivery.id, (await deliver(delivery)) as Outcome),
    );
  }

  /**
   * Another handler as the target.
   *
   * A route may lead to many destinations, so each message is judged by itself: one destination
   * that is down must not delay messages to others. But if the target is known to be down as a
   * whole, all waiting messages would only use up their attempts: the breaker opens.
   */
  routeTo(deliver: Handler): Handler {
    const codes = hasOneAddress(deliver)
      ? [TARGET_UNREACHABLE, ADDRESS_UNREACHABLE]
      : [TARGET_UNREACHABLE];
    return this.#admitting((delivery) => this.#route(delivery, deliver, codes));
  }

  /** A message was settled: another may be sent. */
  readonly onSettled = (): void => this.#window.checkSoon();

  /** The target reports that it is back. If it does not answer then, later reports are delayed. */
  targetIsBack(): void {
    if (this.state !== 'open') return;
    this.#isBackReported = true;
    const waitMs = this.#ignoresReportsUntil - this.#parts.clock.monotonic();
    if (waitMs <= 0) this.#halfOpen();
    else this.#pause(waitMs);
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPause?.();
    this.#cancelWait?.();
    this.#admitAll(false);
  }

  /** The handler, which begins when there is room; while half-open, one message after the other. */
  #admitting(deliver: Handler): Handler {
    return async (delivery) => {
      const { id, signal } = delivery;
      await this.#window.waitForRoom(signal);
      if (!(await this.#waitForAdmission(id)))
        return this.#judge(id, failed(this.#notSentFailure()));
      // Also if it ends without a send, or is aborted and never ends.
      const next = (): void => {
        if (this.#probingId === id) this.#startProbe();
      };
      signal.addEventListener('abort', next, { once: true });
      try {
        return await deliver(delivery);
      } finally {
        signal.removeEventListener('abort', next);
        this.#atFault.delete(id);
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
      // Counted like a send without an answer, so that Suspects finds messages that are at fault.
      const silence = failure('transient', UNANSWERED, found.reason);
      await this.#report(delivery, silence);
      const judged = this.#judge(delivery.id, failed(silence));
      if (judged.kind !== 'failed') return judged;
    } else await this.#report(delivery, 'confirmed');
    if (thrown !== undefined) throw thrown.error;
    return result;
  }

  /**
   * Counts the answer of a handler as that of a send; the handler itself has no time limit here.
   */
  async #report(
    { id, topic, headers, envelope }: Delivery,
    answer: 'confirmed' | Failure,
  ): Promise<void> {
    const { enqueuedAt } = envelope;
    const message: OutgoingMessage = { id, topic, headers, body: NO_BODY, enqueuedAt };
    const route: Sink = {
      name: 'a route',
      send: () => Promise.resolve([answer]),
      close: () => Promise.resolve(),
    };
    await this.#sendAll(route, [message]);
  }

  /**
   * The outcome of a message; without an answer it is postponed, unless the message is at fault.
   */
  #judge(id: string, outcome: Outcome): Outcome {
    if (outcome.kind !== 'failed' || !isUnanswered(outcome.failure)) return outcome;
    if (this.#atFault.delete(id)) return outcome;
    const { code, reason } = outcome.failure;
    // Due at once: nothing is claimed here while it is open, and other relays may reach the target.
    const delayMs = this.#delayed?.ids.has(id) === true ? this.#delayed.ms : 0;
    return { kind: 'postponed', delayMs, reason, code };
  }

  #waitForAdmission(id: string): boolean | Promise<boolean> {
    const { state } = this;
    if (state !== 'half-open') return state === 'closed';
    if (this.#isClosed) return false;
    return new Promise((resolve) => {
      // If a message is delivered twice, the first delivery has lost its claim.
      this.#candidates.get(id)?.(false);
      this.#candidates.set(id, resolve);
      // Messages that were claimed together come in the same turn of the loop.
      if (this.#probingId === undefined) this.#parts.clock.soon(() => this.#startFirstProbe());
    });
  }

  #startFirstProbe(): void {
    if (this.#probingId === undefined && this.state === 'half-open') this.#startProbe();
  }

  /** Sends the message that was a probe the fewest times. */
  #startProbe(): void {
    this.#probingId = undefined;
    this.#cancelWait?.();
    if (this.state !== 'half-open' || this.#isClosed) return;
    const times = (id: string): number => this.#probeCounts.get(id) ?? 0;
    const [first] = [...this.#candidates.keys()].toSorted((a, b) => times(a) - times(b));
    if (first === undefined) return;
    this.#haveAllProbed = this.#candidates.size >= this.#parts.probers && times(first) > 0;
    this.#probingId = first;
    this.#cancelWait = this.#parts.clock.after(PROBE_MAX_MS, () => this.#admitAll(false));
    const admit = this.#candidates.get(first);
    this.#candidates.delete(first);
    admit?.(true);
  }

  #admitAll(isAdmitted: boolean): void {
    const probers = [...this.#candidates.values()];
    this.#candidates.clear();
    for (const admit of probers) admit(isAdmitted);
  }

  async #sendAll(
    sink: Sink,
    messages: readonly OutgoingMessage[],
  ): Promise<Awaited<ReturnType<Sink['send']>>> {
    const answers = new Map<OutgoingMessage, unknown>();
    for (const group of this.#groups(messages)) {
      const some = await this.#send(sink, group);
      for (const [at, message] of group.entries()) answers.set(message, some[at]);
    }
    // Not checked here: `forward` checks each answer.
    return messages.map((message) => answers.get(message)) as Awaited<ReturnType<Sink['send']>>;
  }

  /** Sends each suspect alone, so that neither it nor others are charged for the other's fault. */
  #groups(messages: readonly OutgoingMessage[]): readonly (readonly OutgoingMessage[])[] {
    if (this.#suspects.size === 0) return [messages];
    const isSuspect = ({ id }: OutgoingMessage): boolean => this.#suspects.has(id);
    const suspects = messages.filter(isSuspect).map((message) => [message]);
    if (suspects.length === messages.length) return suspects;
    return [messages.filter((message) => !isSuspect(message)), ...suspects];
  }

  async #send(sink: Sink, messages: readonly OutgoingMessage[]): Promise<readonly unknown[]> {
    // Claimed before it opened: each of these sends would wait in vain.
    if (this.state === 'open') return messages.map(() => this.#notSentFailure());
    const isProbe = this.state === 'half-open';
    const answers = await answersOf(sink, messages, this.#parts.clock);
    const meanings = messages.map(({ id }, at) => ({ id, answer: meaningOf(answers[at]) }));
    const isFault = this.#suspects.countSend(meanings);
    if (meanings.some(({ answer }) => answer === 'answered')) {
      this.#breaker.reset();
      this.#falseReports = 0;
      this.#probeCounts.clear();
    } else if (isProbe) this.#countProbes(messages);
    const why = answers.find(isUnanswered);
    if (why !== undefined && isFault) this.#atFault.add(messages[0]?.id ?? '');
    else if (this.#isClosed) return answers;
    else if (why === undefined) this.#breaker.succeed();
    else if (this.#breaker.state !== 'open') this.#open(why, isProbe ? messages : []);
    return answers;
  }

  #countProbes(messages: readonly OutgoingMessage[]): void {
    if (this.#probeCounts.size >= PROBE_COUNTS_MAX) this.#probeCounts.clear();
    for (const { id } of messages) this.#probeCounts.set(id, (this.#probeCounts.get(id) ?? 0) + 1);
  }

  /** `probe`: the messages of the probe that had no answer; none if it was closed. */
  #open(why: Failure, probe: readonly OutgoingMessage[]): void {
    const { clock, pause, probers } = this.#parts;
    this.#why = why;
    const claimed = new Set([...probe.map(({ id }) => id), ...this.#candidates.keys()]);
    const wasThere = this.#breaker.openings === 0;
    const waitMs = this.#breaker.fail() ?? pause.firstMs;
    if (wasThere) this.#parts.onUnreachable(why);
    const isAside = probe.length > 0 && this.#haveAllProbed;
    const pauses = Math.min(CLAIM_OTHERS_PAUSES_MAX, Math.ceil(this.#probeCounts.size / probers));
    this.#delayed = isAside ? { ids: claimed, ms: waitMs * pauses + CLAIM_OTHERS_MS } : undefined;
    if (this.#isBackReported) this.#falseReports += 1;
    this.#isBackReported = false;
    const calls = this.#falseReports;
    this.#ignoresReportsUntil = clock.monotonic() + (calls === 0 ? 0 : backoffMs(pause, calls - 1));
    this.#pause(waitMs);
  }

  #pause(ms: number): void {
    this.#cancelPause?.();
    this.#cancelPause = this.#parts.clock.after(ms, () => this.#halfOpen());
  }

  #halfOpen(): void {
    if (!this.#isClosed) this.#breaker.halfOpen();
  }

  #onChange(state: BreakerState): void {
    if (state !== 'open') this.#cancelPause?.();
    if (state !== 'half-open') {
      this.#probingId = undefined;
      this.#cancelWait?.();
      this.#admitAll(state === 'closed');
    }
    this.#parts.onChange(state);
  }

  #notSentFailure(): Failure {
    return failure('transient', 'broker.unavailable', this.#why.reason);
  }
}

/** One answer for each message; a failure if the sink throws or does not answer in time. */
async function answersOf(
  sink: Sink,
  messages: readonly OutgoingMessage[],
  clock: Clock,
): Promise<readonly unknown[]> {
  const unanswered = (text: string): readonly unknown[] => {
    const reason = `sink "${sink.name}" did not answer: ${text}`;
    return messages.map(() => failure('transient', UNANSWERED, reason));
  };
  const late = (): readonly unknown[] => unanswered(`nothing came within ${ANSWER_MAX_MS} ms`);
  try {
    return await withTimeout(clock, ANSWER_MAX_MS, sendAnswers(sink, messages), late);
  } catch (error) {
    return unanswered(textOf(error));
  }
}

async function sendAnswers(
  sink: Sink,
  messages: readonly OutgoingMessage[],
): Promise<readonly unknown[]> {
  const answers: unknown = await sink.send(messages);
  if (!Array.isArray(answers)) throw new Error(`it returned ${show(answers)} and no list`);
  return messages.map((_, at) => answers[at] as unknown);
}

function meaningOf(answer: unknown): SendAnswer['answer'] {
  if (!isUnanswered(answer)) return 'answered';
  return UNREACHABLE_CODES.has(answer.code) ? 'unreachable' : 'unanswered';
}

function isUnanswered(answer: unknown): answer is Failure {
  if (typeof answer !== 'object' || answer === null) return false;
  const { code, permanence } = answer as Partial<Failure>;
  if (permanence === 'permanent' || typeof code !== 'string') return false;
  return UNSENT_CODES.has(code) || UNKNOWN_RESULT_CODES.has(code);
}

/** Whether it is `http({ url })`, by its `describe`; with `urls` it has several addresses. */
function hasOneAddress(deliver: Handler): boolean {
  const { describe } = deliver as { describe?: unknown };
  if (typeof describe !== 'function') return false;
  try {
    const { kind, url } = Object(describe.call(deliver)) as Readonly<Record<string, unknown>>;
    return kind === 'http' && typeof url === 'string';
  } catch {
    // A handler whose `describe` fails must still deliver.
    return false;
  }
}

/** The failure in an outcome; the engine refuses values that are no outcomes. */
function failureIn(result: HandlerResult): Failure | undefined {
  try {
    return isOutcome(result) && result.kind === 'failed' ? result.failure : undefined;
  } catch {
    return undefined;
  }
}

/** The answer to one message of a send. */
interface SendAnswer {
  readonly id: string;
  /** `unreachable`: no answer, and the failure says that the target could not be reached. */
  readonly answer: 'answered' | 'unanswered' | 'unreachable';
}

/** Outages while one message is sent before it is suspected of causing them. */
const OUTAGES_MAX = 3;

/** Maximum number of messages without an answer that are remembered. */
const REMEMBERED_MAX = 20_000;

/**
 * Which messages had no answer, and whether that is their own fault. No I/O.
 *
 * One message without an answer proves nothing: the target may be down. The message is at fault if
 * others were answered since then, one of them right before it, and it alone has no answer again.
 * So while the target is down no message is charged; a target that goes down and up charges one
 * each time.
 */
class Suspects {
  /** Number of sends that had an answer, and whether the last one had. */
  #answeredSends = 0;
  #wasAnswered = false;
  /** Messages without an answer, and the number of answered sends at that time. */
  readonly #unansweredAt = new Map<string, number>();
  readonly #outages = new Map<string, number>();

  get size(): number {
    return this.#unansweredAt.size;
  }

  has(id: string): boolean {
    return this.#unansweredAt.has(id);
  }

  /** Counts the answers to one send. True: its only message is at fault. */
  countSend(answers: readonly SendAnswer[]): boolean {
    const wasAnswered = this.#wasAnswered;
    const hasAnswer = answers.some(({ answer }) => answer === 'answered');
    this.#wasAnswered = hasAnswer;
    if (hasAnswer) this.#answeredSends += 1;
    const faults = answers.map((one) => this.#isFault(one, hasAnswer));
    return answers.length === 1 && wasAnswered && faults[0] === true;
  }

  #isFault({ id, answer }: SendAnswer, hasAnswer: boolean): boolean {
    if (answer === 'answered') {
      this.#unansweredAt.delete(id);
      this.#outages.delete(id);
      return false;
    }
    const before = this.#unansweredAt.get(id);
    // If others of the same send were answered, the target is reachable.
    const isUnreachable = answer === 'unreachable' && !hasAnswer && before === undefined;
    if (isUnreachable && this.#countOutage(id) < OUTAGES_MAX) return false;
    if (this.#unansweredAt.size >= REMEMBERED_MAX) this.#unansweredAt.clear();
    this.#unansweredAt.set(id, this.#answeredSends);
    return before !== undefined && this.#answeredSends > before;
  }

  #countOutage(id: string): number {
    if (this.#outages.size >= REMEMBERED_MAX) this.#outages.clear();
    const outages = (this.#outages.get(id) ?? 0) + 1;
    this.#outages.set(id, outages);
    return outages;
  }
}

/** A handler that has not begun to send. */
interface WaitingSend {
  readonly signal: AbortSignal;
  readonly begin: () => void;
}

/** How often to check for room without a reported change. */
const CHECK_EVERY_MS = 100;

/**
 * Limits how many messages are being sent, or sent and not yet settled; others wait in their order.
 *
 * The engine frees the slot of a handler before its outcome is in the store. Without this limit, a
 * relay with a slow database would continue to send messages that it cannot settle.
 */
class UnsettledWindow {
  readonly #parts: RelayBreakerOptions;
  #waiting: WaitingSend[] = [];
  #willCheck = false;
  #cancelCheck: (() => void) | undefined;

  constructor(parts: RelayBreakerOptions) {
    this.#parts = parts;
  }

  /** Resolves when one more may begin; throws if it was aborted meanwhile. */
  async waitForRoom(signal: AbortSignal): Promise<void> {
    // `running` includes this one.
    if (this.#waiting.length === 0 && this.#room >= 0) return;
    await new Promise<void>((begin) => this.#wait({ signal, begin }));
    signal.throwIfAborted();
  }

  /** Checks for room, once for all messages that are settled in this turn of the loop. */
  checkSoon(): void {
    if (this.#waiting.length === 0 || this.#willCheck) return;
    this.#willCheck = true;
    this.#parts.clock.soon(() => {
      this.#willCheck = false;
      this.#admit();
    });
  }

  /** How many more may begin; the engine counts waiting messages as running. */
  get #room(): number {
    const { running, settling } = this.#parts.engine.load;
    return this.#parts.max - (running - this.#waiting.length + settling);
  }

  #wait(one: WaitingSend): void {
    this.#waiting.push(one);
    this.#cancelCheck ??= this.#parts.clock.after(CHECK_EVERY_MS, () => this.#admit());
  }

  #admit(): void {
    this.#cancelCheck?.();
    this.#cancelCheck = undefined;
    let room = this.#room;
    const isFree = ({ signal }: WaitingSend): boolean => {
      if (signal.aborted) return true;
      room -= 1;
      return room >= 0;
    };
    const free = this.#waiting.map(isFree);
    const waiting = this.#waiting;
    this.#waiting = waiting.filter((_, at) => free[at] !== true);
    for (const [at, { begin }] of waiting.entries()) if (free[at] === true) begin();
    if (this.#waiting.length === 0) return;
    this.#cancelCheck = this.#parts.clock.after(CHECK_EVERY_MS, () => this.#admit());
  }
}
