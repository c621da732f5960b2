/**
 * attempt — one claim from its start to its verdict on disk.
 *
 *   judged before any handler: lost holder, expiry, no handler
 *   running ─handler ends─▶ judged ─settle()─▶ done | stale
 *   running ─time limit─▶ failed(timeout)     running ─stop, no answer─▶ release
 */

import { formatDuration, type Millis } from '../core/duration.ts';
import type { AttemptRecord, Envelope, Headers } from '../core/entry.ts';
import { RespoolError, unreachable } from '../core/errors.ts';
import type { EventKind } from '../core/event.ts';
import { classify, failure, reasonText } from '../core/failure.ts';
import { delivered, failed, held, isOutcome, type Outcome } from '../core/outcome.ts';
import { judge, judgeExpiry, judgeLost, type Verdict } from '../core/verdict.ts';
import type { Claim, Settlement } from '../ports/source.ts';
import type { AttemptSpan } from '../ports/tracer.ts';
import { backoffMs, Sleeper } from '../system/wait.ts';
import { BodyInvalid, EngineDelivery } from './delivery.ts';
import type { TimedClaim, LeaseTimer } from './lease-timer.ts';
import type { EngineParts } from './parts.ts';
import type { Route } from './routes.ts';

// Run one handler once and turn whatever happens into an Outcome. Nothing
// escapes from here.

/** After an outage of what a body is read from, the wait before the message is tried again. */
const OUTAGE_WAIT_MS = 10_000;

/** Runs the route's middleware and handler over the delivery. */
export async function runAttempt(route: Route, delivery: EngineDelivery): Promise<Outcome> {
  let outcome: Outcome;
  try {
    // The answer is known, except when it throws (see routes.ts).
    route.picks?.(delivery.envelope);
    if (route.schema !== undefined) await delivery.fit(route.schema);
    outcome =
      route.middleware.length === 0
        ? outcomeOf(await route.handler(delivery))
        : await throughMiddleware(route, delivery);
  } catch (thrown) {
    const misfit = misfitOf(thrown);
    outcome = misfit === undefined ? failed(classify(thrown)) : held(misfit.message, misfit.code);
  }
  return despiteTrouble(delivery, outcome);
}

/** A body that cannot be read is nobody's success, whatever the handler made of the error. */
function despiteTrouble({ trouble, outage }: EngineDelivery, outcome: Outcome): Outcome {
  if (trouble !== undefined) return held(trouble.message, trouble.code);
  if (outage === undefined) return outcome;
  const { message: reason, code } = outage;
  return { kind: 'postponed', delayMs: OUTAGE_WAIT_MS, reason, code };
}

function misfitOf(thrown: unknown): BodyInvalid | undefined {
  try {
    return thrown instanceof BodyInvalid ? thrown : undefined;
  } catch {
    // What is thrown may be a proxy that does not even say what it is an instance of.
    return undefined;
  }
}

/** The outcome of an attempt that took longer than its time limit. */
function timedOut(timeoutMs: number, delivery: EngineDelivery): Outcome {
  const text = `the handler did not finish within ${formatDuration(timeoutMs)}`;
  return despiteTrouble(delivery, failed(failure('transient', 'timeout', text)));
}

/** What a handler's return value means: nothing, or an outcome. */
function outcomeOf(answer: unknown): Outcome {
  if (isOutcome(answer)) return answer;
  // Anything else a function happens to return (a response, a number) says no more than "done".
  return delivered();
}

async function throughMiddleware(route: Route, delivery: EngineDelivery): Promise<Outcome> {
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

// The event of a settled verdict. Built only when somebody hears its kind.

const KIND_OF: Readonly<Record<Verdict['kind'], EventKind>> = {
  ack: 'delivered',
  defer: 'deferred',
  bounce: 'bounced',
  hold: 'held',
  release: 'released',
};

/** Tells listeners what became of a claim. */
function tellVerdict(
  engine: { readonly parts: Pick<EngineParts, 'events' | 'source'>; now(): Millis },
  claim: Claim,
  verdict: Verdict,
  tookMs: number,
): void {
  const { events, source } = engine.parts;
  const isAnnounced = verdict.kind === 'ack' && claim.lane === 'notice';
  // Who counts deliveries must not have every deferral built as well.
  if (!events.hears(isAnnounced ? 'announced' : KIND_OF[verdict.kind])) return;
  const about = {
    at: engine.now(),
    id: claim.id,
    topic: claim.envelope.topic,
    lane: claim.lane,
    attempt: claim.attempt,
  };
  switch (verdict.kind) {
    case 'ack':
      if (isAnnounced) events.emit({ ...about, kind: 'announced' });
      else {
        // A clock that was set back must not make a message younger than new.
        const ageMs = Math.max(0, about.at - claim.envelope.enqueuedAt);
        events.emit({ ...about, kind: 'delivered', tookMs, ageMs });
      }
      return;
    case 'defer': {
      // Not computed from the time of now: that is later than when it was written.
      const dueAt = source.deferredTo?.(claim) ?? about.at + verdict.delayMs;
      const { because, failure } = verdict;
      events.emit({
        ...about,
        kind: 'deferred',
        dueAt,
        because,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'bounce': {
      const { because, spent, failure } = verdict;
      events.emit({
        ...about,
        kind: 'bounced',
        because,
        spent,
        ...(failure === undefined ? {} : { failure }),
      });
      return;
    }
    case 'hold':
      events.emit({ ...about, kind: 'held', because: verdict.because });
      return;
    case 'release':
      events.emit({ ...about, kind: 'released' });
      return;
    default:
      unreachable(verdict);
  }
}

/**
 * The wait before a verdict that did not get through is tried again, doubling up to the maximum.
 */
const SETTLE_WAIT = { firstMs: 50, maxMs: 5_000 };

/** The engine, as far as an attempt needs it. */
export interface AttemptHost {
  readonly parts: EngineParts;
  readonly watchman: LeaseTimer;
  /** The engine is stopped and waits for nobody: what cannot be settled at once is not. */
  readonly hasGivenUp: boolean;
  now(): Millis;
  /** The handler is done or given up: its slot is free. */
  handlerEnded(route: Route | undefined, envelope: Envelope): void;
  attemptEnded(attempt: LiveAttempt): void;
  trouble(doing: string, thrown: unknown): void;
}

/** How an attempt starts. */
interface AttemptStart {
  readonly route: Route | undefined;
  /** When its lease ends (monotonic), counted from when it was asked for. */
  readonly leaseEndsAt: number;
  /** Give it back at once instead of running it. */
  readonly isReleased?: boolean;
  /** Told once when the verdict is settled, or cannot be. */
  readonly onSettled?: (verdict: Verdict, answer: 'done' | 'stale' | 'lost') => void;
}

/** One claim in an engine's hands. */
export class LiveAttempt implements TimedClaim {
  readonly claim: Claim;
  readonly #engine: AttemptHost;
  readonly #route: Route | undefined;
  readonly #delivery: EngineDelivery;
  readonly #onSettled: AttemptStart['onSettled'];
  readonly #startedAt: number;
  timeoutAt: number = Number.POSITIVE_INFINITY;
  leaseEndsAt: number;
  isFenced = false;
  watchedAt: number | undefined;
  liveAt: number | undefined;
  /** Waits for another try to settle. */
  #sleeper: Sleeper | undefined;
  /** Where somebody writes spans. */
  #span: AttemptSpan | undefined;
  /** Its handler was called. */
  #isRunning = false;
  #isJudged = false;
  #isStopping = false;

  constructor(engine: AttemptHost, claim: Claim, start: AttemptStart) {
    const { clock, source } = engine.parts;
    const { route } = start;
    this.#engine = engine;
    this.claim = claim;
    this.#route = route;
    this.#delivery = new EngineDelivery(claim, source);
    this.#onSettled = start.onSettled;
    this.#startedAt = clock.monotonic();
    this.leaseEndsAt = start.leaseEndsAt;
    if (engine.parts.events.hears('claimed')) {
      engine.parts.events.emit({ ...this.#about(), kind: 'claimed' });
    }
    const verdict = start.isReleased === true ? RELEASE : this.#verdictBefore();
    if (verdict === undefined && route !== undefined) {
      this.timeoutAt = this.#startedAt + route.timeoutMs;
      engine.watchman.add(this);
      void this.#run(route);
    } else {
      engine.watchman.add(this);
      this.#finish(verdict ?? RELEASE);
    }
  }

  /** The handler has had its time. */
  onTimeout(): void {
    const timeoutMs = this.#route?.timeoutMs ?? 0;
    const outcome = timedOut(timeoutMs, this.#delivery);
    this.#delivery.abort(
      new RespoolError('limit.exceeded', `the handler's time limit of ${timeoutMs} ms is over`),
    );
    this.#judge(outcome);
  }

  /** The lease is about to be over and could not be kept: the handler must stop side effects. */
  onFence(): void {
    const { events } = this.#engine.parts;
    if (events.hears('lease-lost')) events.emit({ ...this.#about(), kind: 'lease-lost' });
    this.#delivery.abort(
      new RespoolError('store.unavailable', 'the lease of this message could not be kept'),
    );
  }

  /** The engine stops: the handler is told, and a failure from now on is not the message's. */
  stop(reason: Error): void {
    this.#isStopping = true;
    this.#delivery.abort(reason);
  }

  /** The handler did not answer in time while stopping: give the message back without cost. */
  release(): void {
    this.#finish(RELEASE);
  }

  /** The store did not take it back in time while stopping: one more try, no more waiting. */
  abandon(): void {
    this.isFenced = true;
    this.#sleeper?.wake();
  }

  /** What is decided before any handler runs. */
  #verdictBefore(): Verdict | undefined {
    const { claim } = this;
    if (claim.claimedFrom === 'active') {
      const { events } = this.#engine.parts;
      if (events.hears('lease-lost')) events.emit({ ...this.#about(), kind: 'lease-lost' });
      return judgeLost(this.#judgement());
    }
    const { expiresAt } = claim.envelope;
    const expired = judgeExpiry({ lane: claim.lane, expiresAt }, this.#engine.now());
    if (expired !== undefined) return expired;
    return this.#route === undefined ? this.#withoutHandler() : undefined;
  }

  #withoutHandler(): Verdict {
    const { events } = this.#engine.parts;
    const { id } = this.claim;
    const { topic } = this.claim.envelope;
    events.emit({ at: this.#engine.now(), kind: 'handler-missing', id, topic });
    const text = `no handler is registered for topic "${topic}"; register one, then release`;
    const because = { code: 'handler.missing', text, by: 'engine' };
    return { kind: 'hold', because, costsAttempt: false };
  }

  async #run(route: Route): Promise<void> {
    const { events, tracing } = this.#engine.parts;
    this.#isRunning = true;
    if (events.hears('started')) events.emit({ ...this.#about(), kind: 'started' });
    const span = tracing === undefined ? undefined : this.#begin(tracing);
    if (span === undefined) return this.#judge(await runAttempt(route, this.#delivery));
    this.#span = span;
    this.#delivery.trace = span.headers;
    this.#judge(await span.run(() => runAttempt(route, this.#delivery)));
  }

  #begin({ tracer, place }: NonNullable<EngineParts['tracing']>): AttemptSpan | undefined {
    if (tracer.isIdle?.() === true) return undefined;
    return tracer.attempt(this.claim, place(this.claim));
  }

  #judge(outcome: Outcome): void {
    if (this.#isJudged) return;
    // A handler that our own shutdown interrupted did not fail: same attempt number, due at once.
    if (this.#isStopping && outcome.kind === 'failed') this.#finish(RELEASE);
    else this.#finish(this.#verdictOn(outcome), outcome);
  }

  #verdictOn(outcome: Outcome): Verdict {
    const { trouble, outage } = this.#delivery;
    if (trouble === undefined && outage !== undefined) return waitingFor(outage);
    const verdict = judge({ ...this.#judgement(), outcome });
    // A body that is damaged or locked is no fault of the delivery: it costs no attempt.
    if (verdict.kind !== 'hold' || trouble === undefined) return verdict;
    return { ...verdict, costsAttempt: false };
  }

  #judgement(): Omit<Parameters<typeof judge>[0], 'outcome'> {
    const { claim } = this;
    const { parts } = this.#engine;
    return {
      claim: {
        lane: claim.lane,
        attempt: claim.attempt,
        lost: claim.lost,
        enqueuedAt: claim.envelope.enqueuedAt,
      },
      policy: parts.policyFor(claim, this.#route),
      now: this.#engine.now(),
      random: parts.dice.random(),
      backoffs: parts.backoffs,
    };
  }

  /** One attempt, one verdict: the second one finds it judged. */
  #finish(verdict: Verdict, outcome?: Outcome): void {
    if (this.#isJudged) return;
    this.#isJudged = true;
    this.timeoutAt = Number.POSITIVE_INFINITY;
    const tookMs = this.#engine.parts.clock.monotonic() - this.#startedAt;
    this.#engine.handlerEnded(this.#route, this.claim.envelope);
    if (this.#isRunning) this.#tellEnd(outcome, tookMs);
    this.#span?.end(outcome);
    const noted = verdict.kind === 'ack' ? this.#delivery.noted : this.#noted();
    const settlement: Settlement = {
      verdict,
      ...(noted === undefined ? {} : { notes: noted }),
      ...(outcome === undefined ? {} : { attempt: this.#record(outcome, tookMs) }),
    };
    void this.#settle(settlement, tookMs);
  }

  /** What the handler noted, and what the span of this attempt wants to be known by. */
  #noted(): Headers | undefined {
    const { noted } = this.#delivery;
    const own = this.#span?.notes;
    return own === undefined ? noted : { ...own, ...noted };
  }

  #tellEnd(outcome: Outcome | undefined, tookMs: number): void {
    const { events } = this.#engine.parts;
    if (!events.hears('ended')) return;
    const said =
      outcome === undefined
        ? ({ outcome: 'given up', code: 'released' } as const)
        : { outcome: outcome.kind, code: saying(outcome).code };
    events.emit({ ...this.#about(), kind: 'ended', ...said, tookMs });
  }

  async #settle(settlement: Settlement, tookMs: number): Promise<void> {
    const { source, events } = this.#engine.parts;
    let failures = 0;
    let answer: 'done' | 'stale' | 'lost' = 'lost';
    let failed: unknown;
    const settling = this.#span?.settle(settlement.verdict);
    for (;;) {
      try {
        answer = await source.settle(this.claim, settlement);
        if (answer === 'done') tellVerdict(this.#engine, this.claim, settlement.verdict, tookMs);
        else if (events.hears('stale')) events.emit({ ...this.#about(), kind: 'stale' });
        break;
      } catch (error) {
        failed = error;
        this.#engine.trouble(`settling message "${this.claim.id}"`, error);
        // Past the fence somebody else may own it soon; its lost lease will tell the rest.
        if (this.isFenced || this.#engine.hasGivenUp) break;
      }
      this.#sleeper ??= new Sleeper(this.#engine.parts.clock);
      await this.#sleeper.sleep(backoffMs(SETTLE_WAIT, failures));
      failures += 1;
    }
    settling?.end(answer, answer === 'lost' ? failed : undefined);
    this.#engine.watchman.remove(this);
    this.#engine.attemptEnded(this);
    this.#onSettled?.(settlement.verdict, answer);
  }

  #record(outcome: Outcome, tookMs: number): AttemptRecord {
    const said = saying(outcome);
    return {
      at: this.#engine.now(),
      tookMs: Math.round(tookMs),
      by: this.#engine.parts.name,
      lane: this.claim.lane,
      attempt: this.claim.attempt,
      code: said.code,
      ...(said.reason === undefined ? {} : { reason: said.reason }),
    };
  }

  #about(): { at: number; id: string; topic: string; lane: Claim['lane']; attempt: number } {
    const { id, envelope, lane, attempt } = this.claim;
    return { at: this.#engine.now(), id, topic: envelope.topic, lane, attempt };
  }
}

/** Not by the policy: our own outage may not use up the attempts, or the age, of a message. */
function waitingFor({ code, message }: RespoolError): Verdict {
  const because = { code, text: reasonText(message), by: 'engine' };
  return { kind: 'defer', delayMs: OUTAGE_WAIT_MS, because, costsAttempt: false };
}

const RELEASE: Verdict = { kind: 'release' };
const HISTORY_REASON_MAX_CHARS = 200;

function saying(outcome: Outcome): { code: string; reason?: string } {
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
