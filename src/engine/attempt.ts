/**
 * attempt — one claim, from its start to its verdict in the source (`Attempt`), how a handler is
 * run with its middleware (`runHandler`), and the delivery that the handler gets
 * (`EngineDelivery`).
 *
 *   begin() ─▶ deliver() ─▶ judge() ─▶ settle() ─▶ done | stale | lost
 *      └ lost holder, expired, no handler: the verdict is known before any handler runs
 *
 * The engine calls these one after the other (`Engine.#attempt`); nothing here calls the engine
 * back. While the handler runs, the lease timer may end the attempt (time limit, fence), and so may
 * a stop of the engine: a later answer of the handler is ignored.
 *
 * Promise: an attempt has one outcome and one verdict. If its body could not be read, it never
 * counts as delivered, even if the handler returned normally (invariant 11, ARCHITECTURE.md).
 */

import { formatDuration } from '../core/duration.ts';
import type { AttemptRecord, Envelope, Headers } from '../core/entry.ts';
import { type ErrorCode, isRespoolError, RespoolError, textOf } from '../core/errors.ts';
import { classify, failure, type Failure, reasonText } from '../core/failure.ts';
import { HEADER_NAME_PATTERN } from '../core/limits.ts';
import type { Lane } from '../core/state.ts';
import {
  delivered,
  failed,
  held,
  isOutcome,
  judge,
  judgeExpiry,
  judgeLost,
  type Outcome,
  type Verdict,
} from '../core/verdict.ts';
import type { Delivery } from '../ports/handler.ts';
import type { SchemaIssue, StandardSchema } from '../ports/schema.ts';
import type { Claim, Settlement, Source } from '../ports/source.ts';
import type { AttemptSpan } from '../ports/tracer.ts';
import { readWhole } from '../system/memory.ts';
import { backoffMs, Sleeper } from '../system/wait.ts';
import { emitVerdict } from './events.ts';
import type { TimedClaim } from './lease-timer.ts';
import { type EngineParts, emitTrouble } from './parts.ts';
import type { HandlerRoute } from './handler-slots.ts';

/**
 * The wait before a verdict that did not get through is tried again, doubling up to the maximum.
 */
const SETTLE_WAIT = { firstMs: 50, maxMs: 5_000 };
/**
 * After an outage of what a body is read from, the wait before the message is tried again. Also in
 * docs/reference/errors.md; testkit/simulator/checks/deliveries.ts expects no less.
 */
const OUTAGE_WAIT_MS = 10_000;
const RELEASE: Verdict = { kind: 'release' };

/** How an attempt starts. */
export interface AttemptStart {
  readonly route: HandlerRoute | undefined;
  /** When its lease ends (monotonic), counted from when it was asked for. */
  readonly leaseEndsAt: number;
  /** Give it back at once instead of running it. */
  readonly isReleased?: boolean;
  /** The engine has stopped waiting: what cannot be settled at once is not. */
  readonly isAbandoned?: boolean;
}

/** `done`: the source has the verdict; `stale`: another holder has the message; `lost`: unknown. */
export type SettleAnswer = 'done' | 'stale' | 'lost';

/** One claim, from its start to its verdict. */
export class Attempt implements TimedClaim {
  readonly claim: Claim;
  readonly route: HandlerRoute | undefined;
  readonly #parts: EngineParts;
  readonly #delivery: EngineDelivery;
  readonly #isReleased: boolean;
  readonly #startedAt: number;
  timeoutAt: number = Number.POSITIVE_INFINITY;
  leaseEndsAt: number;
  isFenced = false;
  watchedAt: number | undefined;
  /** Resolves the promise of `deliver`; undefined unless a handler runs. */
  #resolve: ((outcome: Outcome | undefined) => void) | undefined;
  /** Waits for another try to settle. */
  #sleeper: Sleeper | undefined;
  #span: AttemptSpan | undefined;
  /** Its handler was called. */
  #isStarted = false;
  #isStopping = false;
  #isAbandoned: boolean;

  constructor(parts: EngineParts, claim: Claim, start: AttemptStart) {
    this.#parts = parts;
    this.claim = claim;
    this.route = start.route;
    this.#delivery = new EngineDelivery(claim, parts.source);
    this.#isReleased = start.isReleased === true;
    this.#isAbandoned = start.isAbandoned === true;
    this.#startedAt = parts.clock.monotonic();
    this.leaseEndsAt = start.leaseEndsAt;
  }

  /** The verdict, if it is known before any handler runs; otherwise the time limit begins. */
  begin(): Verdict | undefined {
    const { claim, route } = this;
    const { events, source } = this.#parts;
    if (events.hears('claimed')) events.emit({ ...this.#about(), kind: 'claimed' });
    if (this.#isReleased) return RELEASE;
    if (claim.claimedFrom === 'active') {
      if (events.hears('lease-lost')) events.emit({ ...this.#about(), kind: 'lease-lost' });
      return judgeLost(this.#judgement());
    }
    const { expiresAt } = claim.envelope;
    const expired = judgeExpiry({ lane: claim.lane, expiresAt }, source.now());
    if (expired !== undefined) return expired;
    if (route === undefined) return this.#withoutHandler();
    this.timeoutAt = this.#startedAt + route.timeoutMs;
    return undefined;
  }

  #withoutHandler(): Verdict {
    const { events, source } = this.#parts;
    const { id } = this.claim;
    const { topic } = this.claim.envelope;
    events.emit({ at: source.now(), kind: 'handler-missing', id, topic });
    const text = `no handler is registered for topic "${topic}"; register one, then release`;
    const because = { code: 'handler.missing', text, by: 'engine' };
    return { kind: 'hold', because, costsAttempt: false };
  }

  /** Runs the handler; undefined: the message is released, which costs no attempt. */
  deliver(route: HandlerRoute): Promise<Outcome | undefined> {
    const { events } = this.#parts;
    this.#isStarted = true;
    if (events.hears('started')) events.emit({ ...this.#about(), kind: 'started' });
    const ended = new Promise<Outcome | undefined>((resolve) => {
      this.#resolve = resolve;
    });
    void this.#runHandler(route);
    return ended;
  }

  /**
   * Ends the delivery, unless it has ended; undefined: the message is released. n.b. A method, not
   * closures over the promise: with those, each attempt that reached the old generation kept later
   * ones in memory until the next full collection. (V8 13.6, 2026-11-20: twice the time in garbage
   * collection, 0.88 of the rate end to end on SQLite)
   */
  end(outcome: Outcome | undefined): void {
    const resolve = this.#resolve;
    if (resolve === undefined) return;
    this.#resolve = undefined;
    this.timeoutAt = Number.POSITIVE_INFINITY;
    // A handler that our own shutdown interrupted did not fail: same attempt, due at once.
    resolve(this.#isStopping && outcome?.kind === 'failed' ? undefined : outcome);
  }

  #runHandler(route: HandlerRoute): Promise<Outcome> {
    const { tracing } = this.#parts;
    if (tracing !== undefined && tracing.tracer.isIdle?.() !== true) {
      this.#span = tracing.tracer.attempt(this.claim, tracing.place(this.claim));
    }
    const span = this.#span;
    if (span === undefined) return runHandler(route, this.#delivery, this);
    this.#delivery.trace = span.headers;
    return span.run(() => runHandler(route, this.#delivery, this));
  }

  /** The verdict for an outcome; without one the message is released. */
  judge(outcome: Outcome | undefined): Verdict {
    if (outcome === undefined) return RELEASE;
    const { bodyError, bodyOutage } = this.#delivery;
    if (bodyError === undefined && bodyOutage !== undefined) return deferForOutage(bodyOutage);
    const verdict = judge({ ...this.#judgement(), outcome });
    // A body that is damaged, or whose key is missing, is not the handler's fault: no attempt is
    // used.
    if (verdict.kind !== 'hold' || bodyError === undefined) return verdict;
    return { ...verdict, costsAttempt: false };
  }

  #judgement(): Omit<Parameters<typeof judge>[0], 'outcome'> {
    const { claim } = this;
    const parts = this.#parts;
    return {
      claim: {
        lane: claim.lane,
        attempt: claim.attempt,
        lost: claim.lost,
        enqueuedAt: claim.envelope.enqueuedAt,
      },
      policy: parts.policyFor(claim, this.route),
      now: parts.source.now(),
      random: parts.dice.random(),
      backoffs: parts.backoffs,
    };
  }

  /** Gives the verdict to the source; retries while the lease lasts. */
  async settle(verdict: Verdict, outcome: Outcome | undefined): Promise<SettleAnswer> {
    const { source, events, clock } = this.#parts;
    const tookMs = clock.monotonic() - this.#startedAt;
    if (this.#isStarted) this.#emitEnded(outcome, tookMs);
    this.#span?.end(outcome);
    const settlement = this.#settlement(verdict, outcome, tookMs);
    const settling = this.#span?.settle(verdict);
    for (let failures = 0; ; failures += 1) {
      try {
        const answer = await source.settle(this.claim, settlement);
        if (answer === 'done') emitVerdict(this.#parts, this.claim, verdict, tookMs);
        else if (events.hears('stale')) events.emit({ ...this.#about(), kind: 'stale' });
        settling?.end(answer);
        return answer;
      } catch (error) {
        emitTrouble(this.#parts, `settling message "${this.claim.id}"`, error);
        // After the fence another process may claim it soon, and judges it as a lost holder.
        if (this.isFenced || this.#isAbandoned) {
          settling?.end('lost', error);
          return 'lost';
        }
      }
      this.#sleeper ??= new Sleeper(clock);
      await this.#sleeper.sleep(backoffMs(SETTLE_WAIT, failures));
    }
  }

  #settlement(verdict: Verdict, outcome: Outcome | undefined, tookMs: number): Settlement {
    const { addedNotes } = this.#delivery;
    const traced = verdict.kind === 'ack' ? undefined : this.#span?.notes;
    const notes = traced === undefined ? addedNotes : { ...traced, ...addedNotes };
    return {
      verdict,
      ...(notes === undefined ? {} : { notes }),
      ...(outcome === undefined ? {} : { attempt: this.#record(outcome, tookMs) }),
    };
  }

  #emitEnded(outcome: Outcome | undefined, tookMs: number): void {
    const { events } = this.#parts;
    if (!events.hears('ended')) return;
    const said =
      outcome === undefined
        ? ({ outcome: 'given up', code: 'released' } as const)
        : { outcome: outcome.kind, code: codeAndReason(outcome).code };
    events.emit({ ...this.#about(), kind: 'ended', ...said, tookMs });
  }

  #record(outcome: Outcome, tookMs: number): AttemptRecord {
    const said = codeAndReason(outcome);
    return {
      at: this.#parts.source.now(),
      tookMs: Math.round(tookMs),
      by: this.#parts.name,
      lane: this.claim.lane,
      attempt: this.claim.attempt,
      code: said.code,
      ...(said.reason === undefined ? {} : { reason: said.reason }),
    };
  }

  #about(): { at: number; id: string; topic: string; lane: Claim['lane']; attempt: number } {
    const { id, envelope, lane, attempt } = this.claim;
    return { at: this.#parts.source.now(), id, topic: envelope.topic, lane, attempt };
  }

  // Called by the lease timer and the engine while the attempt runs.

  /** The time limit of the handler is over. */
  onTimeout(): void {
    const timeoutMs = this.route?.timeoutMs ?? 0;
    const outcome = timedOut(timeoutMs, this.#delivery);
    this.#delivery.abort(
      new RespoolError('limit.exceeded', `the handler's time limit of ${timeoutMs} ms is over`),
    );
    this.end(outcome);
  }

  /** The lease is about to end and could not be extended: the handler must stop side effects. */
  onFence(): void {
    const { events } = this.#parts;
    if (events.hears('lease-lost')) events.emit({ ...this.#about(), kind: 'lease-lost' });
    this.#delivery.abort(
      new RespoolError('store.unavailable', 'the lease of this message could not be kept'),
    );
  }

  /** The engine stops: aborts the handler; a failure from now on does not count as an attempt. */
  stop(reason: Error): void {
    this.#isStopping = true;
    this.#delivery.abort(reason);
  }

  /** The handler did not answer in time while stopping: give the message back without cost. */
  release(): void {
    this.end(undefined);
  }

  /** The source did not take it back in time while stopping: one more try, no more waiting. */
  abandon(): void {
    this.#isAbandoned = true;
    this.#sleeper?.wake();
  }
}

/** Not by the policy: an outage of the store must not bounce a message for attempts or age. */
function deferForOutage({ code, message }: RespoolError): Verdict {
  const because = { code, text: reasonText(message), by: 'engine' };
  return { kind: 'defer', delayMs: OUTAGE_WAIT_MS, because, costsAttempt: false };
}

/** Also in docs/reference/limits.md. */
const HISTORY_REASON_MAX_CHARS = 200;

function codeAndReason(outcome: Outcome): { code: string; reason?: string } {
  switch (outcome.kind) {
    case 'delivered':
      return { code: 'delivered' };
    case 'failed':
      return { code: outcome.failure.code, reason: cut(outcome.failure.reason) };
    case 'postponed':
      return { code: outcome.code ?? 'postponed', reason: cut(outcome.reason) };
    default:
      return { code: outcome.code ?? 'held', reason: cut(outcome.reason) };
  }
}

function cut(reason: string): string {
  return reason.slice(0, HISTORY_REASON_MAX_CHARS);
}

/**
 * Runs the route's middleware and handler on the delivery. Never throws: an error becomes an
 * outcome. `attempt` gets the outcome one microtask before the caller: a settlement that comes
 * after the next inserts of the same turn misses their batch. (2026-11-19: end to end on SQLite
 * with 50 in flight, p50 0.83 ms instead of 1.15)
 */
export async function runHandler(
  route: HandlerRoute,
  delivery: EngineDelivery,
  attempt?: Pick<Attempt, 'end'>,
): Promise<Outcome> {
  let outcome: Outcome;
  try {
    // It has picked this message already; if it threw then, it throws again here
    // (handler-slots.ts).
    route.picks?.(delivery.envelope);
    if (route.schema !== undefined) await delivery.validate(route.schema);
    outcome =
      route.middleware.length === 0
        ? outcomeOf(await route.handler(delivery))
        : await runMiddleware(route, delivery);
  } catch (thrown) {
    const invalid = bodyInvalidOf(thrown);
    outcome =
      invalid === undefined ? failed(classify(thrown)) : held(invalid.message, invalid.code);
  }
  outcome = unlessBodyFailed(delivery, outcome);
  attempt?.end(outcome);
  return outcome;
}

/** The outcome, unless the body could not be read: then that is the outcome instead. */
function unlessBodyFailed({ bodyError, bodyOutage }: EngineDelivery, outcome: Outcome): Outcome {
  if (bodyError !== undefined) return held(bodyError.message, bodyError.code);
  if (bodyOutage === undefined) return outcome;
  const { message: reason, code } = bodyOutage;
  return { kind: 'postponed', delayMs: OUTAGE_WAIT_MS, reason, code };
}

function bodyInvalidOf(thrown: unknown): BodyInvalid | undefined {
  try {
    return thrown instanceof BodyInvalid ? thrown : undefined;
  } catch {
    // The thrown value may be a proxy that throws at `instanceof`.
    return undefined;
  }
}

/** The outcome of an attempt that took longer than its time limit. */
function timedOut(timeoutMs: number, delivery: EngineDelivery): Outcome {
  const text = `the handler did not finish within ${formatDuration(timeoutMs)}`;
  return unlessBodyFailed(delivery, failed(failure('transient', 'timeout', text)));
}

/** What a handler's return value means: nothing, or an outcome. */
function outcomeOf(answer: unknown): Outcome {
  if (isOutcome(answer)) return answer;
  // Anything else a function happens to return (a response, a number) says no more than "done".
  return delivered();
}

async function runMiddleware(route: HandlerRoute, delivery: EngineDelivery): Promise<Outcome> {
  const { middleware, handler } = route;
  const step = async (at: number): Promise<Outcome> => {
    const wrap = middleware[at];
    if (wrap === undefined) return outcomeOf(await handler(delivery));
    let isCalled = false;
    return outcomeOf(
      await wrap(delivery, () => {
        if (isCalled) throw new Error('a middleware called next() twice');
        isCalled = true;
        return step(at + 1);
      }),
    );
  };
  return step(0);
}

// One attempt as the handler sees it.
//
// Errors of the body are remembered here, so that a damaged body holds the message even if the
// handler swallows the error (invariant 11), and an outage of the store is not taken for a failure
// of the handler.

/**
 * The largest body that `body()`, `text()` and `json()` hold in memory unless told otherwise. Also
 * in ports/handler.ts, docs/reference/limits.md and docs/how-to/stream-large-bodies.md.
 */
export const WHOLE_BODY_MAX_BYTES: number = 64 * 2 ** 20;
/**
 * What one attempt may note. Also in docs/reference/limits.md, docs/how-to/handle-failures.md and
 * test/engine/delivery.test.ts.
 */
export const NOTES_MAX = 64;
export const NOTE_VALUE_MAX_CHARS = 4_096;

/** Body errors that a retry cannot fix: an operator has to. As in UNREADABLE of spool/check.ts. */
const LASTING_BODY_ERRORS: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'body.missing',
  'body.corrupt',
  'key.unavailable',
  'transform.missing',
  'peer.missing',
]);

const decoder = new TextDecoder('utf-8', { fatal: true });

/** The body cannot be what the handler needs: held, not retried. */
export class BodyInvalid extends Error {
  override readonly name = 'BodyInvalid';
  readonly code = 'body.invalid';
}

/** The delivery handed to a handler. */
export class EngineDelivery implements Delivery {
  readonly #claim: Claim;
  readonly #source: Source;
  #abort: AbortController | undefined;
  #whole: Promise<Uint8Array> | undefined;
  #value: { readonly value: unknown } | undefined;
  #notes: Record<string, string> | undefined;
  /** Set when the stored body is missing or damaged, or its key or transform is missing. */
  bodyError: RespoolError | undefined;
  /** Set when the body store could not be reached, until `stream()` has read to the end. */
  bodyOutage: RespoolError | undefined;
  /** Set if tracing is on. */
  trace: Headers | undefined;

  constructor(claim: Claim, source: Source) {
    this.#claim = claim;
    this.#source = source;
  }

  get id(): string {
    return this.#claim.id;
  }
  get envelope(): Envelope {
    return this.#claim.envelope;
  }
  get topic(): string {
    return this.#claim.envelope.topic;
  }
  get headers(): Headers {
    return this.#claim.envelope.headers;
  }
  get lane(): Lane {
    return this.#claim.lane;
  }
  get attempt(): number {
    return this.#claim.attempt;
  }
  get fence(): string {
    return this.#claim.fence;
  }
  get lastFailure(): Failure | undefined {
    return this.#claim.lastFailure;
  }
  get notes(): Headers {
    return this.#claim.notes;
  }

  get signal(): AbortSignal {
    // Made when it is first asked for: most handlers of small messages never do.
    this.#abort ??= new AbortController();
    return this.#abort.signal;
  }

  /** Aborts the signal; a handler that asks for it later finds it aborted. */
  abort(reason: Error): void {
    this.#abort ??= new AbortController();
    this.#abort.abort(reason);
  }

  /** What the handler noted in this attempt. */
  get addedNotes(): Headers | undefined {
    return this.#notes;
  }

  async body(options: { readonly maxBytes?: number } = {}): Promise<Uint8Array> {
    const maxBytes = options.maxBytes ?? WHOLE_BODY_MAX_BYTES;
    const { size } = this.#claim.envelope.body;
    if (size > maxBytes) {
      await this.#readBeyond(maxBytes);
      throw new RespoolError(
        'limit.exceeded',
        `cannot read the body of message "${this.id}" whole: it has ${size} bytes, allowed are ` +
          `${maxBytes}; use stream(), or body({ maxBytes })`,
      );
    }
    this.#whole ??= this.#readWhole();
    return this.#whole;
  }

  async *stream(): AsyncIterable<Uint8Array> {
    try {
      yield* this.#source.body(this.#claim);
      this.bodyOutage = undefined;
    } catch (error) {
      throw this.#noteBodyError(error);
    }
  }

  async text(): Promise<string> {
    try {
      return decoder.decode(await this.body());
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      throw new BodyInvalid(`the body of message "${this.id}" is not UTF-8 text`, { cause: error });
    }
  }

  async json(): Promise<unknown> {
    if (this.#value !== undefined) return this.#value.value;
    const text = await this.text();
    try {
      this.#value = { value: JSON.parse(text) as unknown };
    } catch (error) {
      throw new BodyInvalid(`the body of message "${this.id}" is not JSON`, { cause: error });
    }
    return this.#value.value;
  }

  /** Validates the JSON body; `json()` then returns the value that the schema returned. */
  async validate(schema: StandardSchema): Promise<void> {
    const result = await schema['~standard'].validate(await this.json());
    if (result.issues !== undefined) {
      const why = describeIssues(result.issues);
      throw new BodyInvalid(`the body of message "${this.id}" does not fit its schema: ${why}`);
    }
    this.#value = { value: result.value };
  }

  note(name: string, value: string): void {
    const notes = (this.#notes ??= {});
    const isNew = !Object.hasOwn(notes, name);
    if (isNew && Object.keys(notes).length >= NOTES_MAX) {
      throw new RespoolError('limit.exceeded', `cannot note "${name}": ${NOTES_MAX} notes at most`);
    }
    const fits =
      HEADER_NAME_PATTERN.test(name) && name !== '__proto__' && typeof value === 'string';
    if (!fits) {
      throw new RespoolError(
        'message.invalid',
        `cannot note ${JSON.stringify(name)}: a name has 1 to 128 of A-Z a-z 0-9 . _ -, ` +
          'a value is a string',
      );
    }
    notes[name] = value.slice(0, NOTE_VALUE_MAX_CHARS);
  }

  /** Finds out whether the recorded size is damaged, which must not use up the attempts. */
  async #readBeyond(maxBytes: number): Promise<void> {
    let bytes = 0;
    for await (const part of this.stream()) {
      bytes += part.byteLength;
      if (bytes > maxBytes) return;
    }
  }

  async #readWhole(): Promise<Uint8Array> {
    try {
      const atHand = this.#source.bytes?.(this.#claim);
      // Awaited only where it has to be, and inside the try: what it fails with is remembered.
      if (atHand !== undefined) return atHand instanceof Promise ? await atHand : atHand;
      const { size } = this.#claim.envelope.body;
      return await readWhole(this.#source.body(this.#claim), size);
    } catch (error) {
      throw this.#noteBodyError(error);
    }
  }

  #noteBodyError(error: unknown): unknown {
    if (isRespoolError(error) && LASTING_BODY_ERRORS.has(error.code)) this.bodyError = error;
    if (isRespoolError(error, 'store.unavailable')) this.bodyOutage = error;
    return error;
  }
}

function describeIssues(issues: readonly SchemaIssue[]): string {
  return issues
    .slice(0, 5)
    .map((issue) => {
      const path = (issue.path ?? []).map((part) =>
        String(typeof part === 'object' ? part.key : part),
      );
      return path.length === 0 ? textOf(issue.message) : `${path.join('.')}: ${issue.message}`;
    })
    .join('; ');
}
