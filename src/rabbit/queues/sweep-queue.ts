/**
 * sweep-queue — sweeps one queue: what died more often than it may is copied to the target and
 * acked, the rest stays.
 *
 *   look ─within─▶ left as it is
 *     └─over─▶ published ─confirmed─▶ (journal) ─▶ acked
 *                 ├─refused, returned, late, unknown─▶ stays here; the sweep of this queue ends
 *                 └─cannot be written by this client─▶ stays here, is reported; the others go on
 *
 * Promise: killed before the publish, the message is here; killed after the publish and before the
 * ack, it is in both places, and the next run copies it again unless a journal names it
 * (sweep-dedupe-file.ts); refused by the broker, it is here, and the report says why; the network
 * failed, it is here, and may be there too.
 *
 * Called by sweep.ts.
 *
 * Why: docs/decisions/0035-a-sweep-holds-what-stays.md
 */

import { asError, isRespoolError, show, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import {
  type AmqpConnection,
  type AmqpMessage,
  type Outgoing,
  type AmqpTable,
  versionOf,
} from '../connection/amqp.ts';
import type { Management } from '../management/management.ts';
import { changedCopy, HEADER, likelyOwner, sureOwner } from '../message-history.ts';
import type { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import { ensureTarget, intoItself, isThere, requireTarget, type SweepPair } from './discover.ts';
import { createDeathCounter, xDeathsOf, digestOf } from './letter.ts';
import { cautionOf } from './delivery-limit.ts';
import { lockQueue, type QueueLock } from './lock.ts';
import type { PassEnd } from './queue-pass.ts';
import type { SweepJournal } from './sweep-dedupe-file.ts';
import {
  type CarryResult,
  type DrainDecision,
  LEAVE,
  openDrain,
  type QueueDrain,
} from './queue-drain.ts';

/**
 * How the sweep of a queue ended: as a pass does, with the limit of the run, with another
 * process at work on it, because looking could drop messages, or with another error.
 */
export type SweepEnd = PassEnd | 'limit' | 'locked' | 'refused' | 'failed';

/** What came of one queue. */
export interface QueueSweep {
  readonly queue: string;
  readonly target: string;
  /** Messages that were there at the beginning. */
  readonly total: number;
  readonly seen: number;
  /** Gone to the target; in a dry run: would have. */
  readonly moved: number;
  /** Seen and not moved, within the limit or because of an error. */
  readonly left: number;
  /** Taken out without a copy: a run that was killed had made it. */
  readonly already: number;
  readonly end: SweepEnd;
  /** Why it did not go as it should. */
  readonly error?: string;
  readonly tookMs: number;
}

/** What is reported while a queue is swept. */
export interface SweepProgress {
  readonly queue: string;
  readonly total: number;
  readonly seen: number;
  readonly moved: number;
}

/** What an audit record says of a queue, before its first message is moved. */
export interface SweepDetails extends SweepPair {
  readonly total: number;
  readonly max: number;
}

/** What is the same for all queues of a run. */
export interface SweepRule {
  /** A message that died more often is moved. */
  readonly max: number;
  readonly window: number;
  readonly createsTarget: boolean;
  readonly reasons: readonly string[];
  readonly queues: readonly string[];
  readonly dryRun: boolean;
  readonly isTrusted: boolean;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: SweepProgress) => void) | undefined;
  readonly audit: ((details: SweepDetails) => Promise<void>) | undefined;
}

interface SweepTools {
  /** The connection that consumes, as it is now. */
  connect(): Promise<AmqpConnection>;
  readonly publisher: ConfirmPublisher;
  readonly management: Management | undefined;
  readonly clock: Clock;
  readonly journal: SweepJournal | undefined;
  /** How many may still be moved in this run. */
  readonly budget: { left: number };
}

// The copy of a message that goes to the queue for what is given up. Pure.

/** Where from, where to, and why. */
interface SweepTarget {
  readonly queue: string;
  readonly target: string;
  readonly deaths: number;
  readonly now: number;
}

/**
 * The message with its past and how it ended, persistent, without what the broker would act upon
 * in its new place: neither a time to live nor a user id.
 */
function sweepCopy(message: AmqpMessage, { queue, target, deaths, now }: SweepTarget): Outgoing {
  const headers = message.properties.headers ?? {};
  const owner = [sureOwner(message), likelyOwner(message)].find(
    (owner) => owner !== undefined && owner !== queue,
  );
  const copy = changedCopy(message, {
    to: { exchange: '', key: target },
    owner: owner ?? queue,
    id: message.properties.messageId ?? digestOf(message),
    keepsEnding: true,
  });
  const { properties } = copy;
  // Unknown values are left out: a replay would take the dead queue for its home.
  const home = headers[HEADER.routingKey] === undefined ? beginningOf(message, queue) : {};
  return {
    ...copy,
    properties: {
      ...properties,
      headers: {
        ...properties.headers,
        ...home,
        [HEADER.queue]: owner,
        [HEADER.sweptFrom]: queue,
        [HEADER.sweptAt]: now,
        [HEADER.sweptDeaths]: deaths,
      },
    },
  };
}

/**
 * n.b. The delivery itself tells only how it came into the dead queue; its oldest death, more. As
 * `beginningOf` of letter.ts, which reads past headers too. In docs/reference/rabbit.md.
 */
function beginningOf({ properties }: AmqpMessage, queue: string): Record<string, unknown> {
  const oldest = xDeathsOf(properties.headers ?? {})
    .filter((death) => death.queue !== queue)
    .at(-1);
  return { [HEADER.exchange]: oldest?.exchange, [HEADER.routingKey]: oldest?.keys[0] };
}

/** The size of a message where the management API does not tell it. */
const AVERAGE_BYTES: number = 16 * 2 ** 10;
/** Progress is reported once for this many messages that were seen, and at the end. */
const PROGRESS_EVERY = 100;
/**
 * The pass ends when this many stay: what is behind them is not seen. Also in queue-letters.ts,
 * docs/reference/dead-letters.md and docs/guarantees.md, and in decision 0035.
 */
const HELD_MAX = 1_000_000;

/** Sweeps one queue; what goes wrong is in the report. */
export async function sweepOne(
  pair: SweepPair,
  rule: SweepRule,
  tools: SweepTools,
): Promise<QueueSweep> {
  const sweep = new Sweep(pair, rule, tools);
  await sweep.run();
  return sweep.report;
}

class Sweep {
  readonly #pair: SweepPair;
  readonly #rule: SweepRule;
  readonly #tools: SweepTools;
  readonly #deaths: (headers: AmqpTable | undefined) => number;
  readonly #startedAt: number;
  #drain: QueueDrain | undefined;
  #seen = 0;
  #moved = 0;
  #left = 0;
  #already = 0;
  /** Of what was acked and may still be there, the oldest first; undefined: it has no identity. */
  readonly #acked: (string | undefined)[] = [];
  /** What died too often and came, by its identity, until it is gone. */
  readonly #near = new Map<string, 'one' | 'several'>();
  #end: SweepEnd | undefined;
  #error: Error | undefined;
  /** Of the first message that could not be copied. */
  #misfit: Error | undefined;
  #isRecorded = false;
  #tookMs = 0;
  readonly #fail = (error: unknown): void => {
    this.#error ??= asError(error);
  };

  constructor(pair: SweepPair, rule: SweepRule, tools: SweepTools) {
    this.#pair = pair;
    this.#rule = rule;
    this.#tools = tools;
    const { reasons, queues } = rule;
    this.#deaths = createDeathCounter({ sweptQueue: pair.queue, reasons, queues });
    this.#startedAt = tools.clock.monotonic();
  }

  get report(): QueueSweep {
    const error = this.#error ?? this.#misfit;
    return {
      ...this.#pair,
      total: this.#drain?.pass.total ?? 0,
      seen: this.#seen,
      moved: this.#moved,
      left: this.#left,
      already: this.#already,
      end: this.#end ?? (this.#error === undefined ? (this.#drain?.pass.end ?? 'done') : 'failed'),
      ...(error === undefined ? {} : { error: textOf(error) }),
      tookMs: Math.round(this.#tookMs),
    };
  }

  async run(): Promise<void> {
    let lock: QueueLock | undefined;
    try {
      const connection = await this.#tools.connect();
      if (await this.#mayLook(connection)) {
        lock = await this.#lock(connection);
        if (lock !== undefined) await this.#sweep(connection);
      }
    } catch (error) {
      this.#fail(error);
    } finally {
      await lock?.release();
      this.#tookMs = this.#tools.clock.monotonic() - this.#startedAt;
      this.#tell();
    }
  }

  async #mayLook(connection: AmqpConnection): Promise<boolean> {
    const { queue, target } = this.#pair;
    const { management } = this.#tools;
    if (queue === target) throw intoItself(queue);
    if (!(await isThere(connection, queue))) {
      return this.#refuse(
        'failed',
        `cannot sweep the queue ${show(queue)}: there is no such queue`,
      );
    }
    const { isTrusted } = this.#rule;
    const version = versionOf(connection);
    const caution = await cautionOf({ queue, management, version, isTrusted });
    if (caution.kind !== 'refused') return true;
    const text = `cannot sweep the queue ${show(queue)}: ${caution.text}; ${caution.remedy}`;
    return this.#refuse('refused', text);
  }

  async #lock(connection: AmqpConnection): Promise<QueueLock | undefined> {
    const { queue } = this.#pair;
    const lock = await lockQueue(connection, queue);
    if (lock !== 'elsewhere') return lock;
    const what = `cannot sweep the queue ${show(queue)}`;
    this.#refuse('locked', `${what}: another process is working on it; try again later`);
    return undefined;
  }

  #refuse(end: SweepEnd, text: string): false {
    this.#end = end;
    this.#error = new Error(text);
    return false;
  }

  async #sweep(connection: AmqpConnection): Promise<void> {
    const { queue, target } = this.#pair;
    const { clock, journal, publisher } = this.#tools;
    const { window, signal, createsTarget } = this.#rule;
    if (!createsTarget) await requireTarget(connection, target);
    const averageBytes = await this.#averageBytes();
    const onArrival =
      journal === undefined ? undefined : (message: AmqpMessage): void => this.#meet(message);
    const order = { queue, window, heldMax: HELD_MAX, averageBytes, onArrival, signal };
    const drain = await openDrain(order, { connection, clock, publisher });
    this.#drain = drain;
    if (this.#error !== undefined) drain.stop();
    try {
      const hasEnded = await drain.run((message) => this.#decide(drain, message));
      if (hasEnded && drain.pass.end === undefined) this.#end = 'aborted';
    } finally {
      await drain.close();
    }
    const error = drain.error ?? (this.#rule.dryRun ? undefined : drain.lostError);
    if (error !== undefined) this.#fail(error);
    const { pass } = drain;
    const isAllSeen = pass.end === 'done' && this.#end === undefined && this.#error === undefined;
    if (!pass.isLost) await journal?.forget(queue, isAllSeen);
  }

  async #averageBytes(): Promise<number> {
    // Asked a moment ago for its limit: the answer is cached. Without one the default will do.
    const { management } = this.#tools;
    const info = await management?.queue(this.#pair.queue).catch(() => undefined);
    const { bytes, messages = 0 } = info ?? {};
    return bytes === undefined || messages === 0 ? AVERAGE_BYTES : bytes / messages;
  }

  #decide(drain: QueueDrain, message: AmqpMessage): DrainDecision | Promise<DrainDecision> {
    this.#seen += 1;
    if (this.#seen % PROGRESS_EVERY === 0) this.#tell();
    const deaths = this.#deaths(message.properties.headers);
    if (deaths <= this.#rule.max) return this.#leave();
    const { budget } = this.#tools;
    if (budget.left <= 0) {
      this.#end = 'limit';
      drain.stop();
      return this.#leave();
    }
    budget.left -= 1;
    if (this.#rule.dryRun) {
      this.#moved += 1;
      return LEAVE;
    }
    if (!this.#isRecorded) return this.#recordAndTake(drain, message, deaths);
    return this.#take(drain, message, deaths);
  }

  /** Nothing is made or moved without a record. */
  async #recordAndTake(
    drain: QueueDrain,
    message: AmqpMessage,
    deaths: number,
  ): Promise<DrainDecision> {
    const { max, audit, createsTarget, signal } = this.#rule;
    try {
      await audit?.({ ...this.#pair, total: drain.pass.total, max });
      if (createsTarget) await ensureTarget(await this.#tools.connect(), this.#pair.target);
      this.#isRecorded = true;
    } catch (error) {
      drain.fail(error);
    }
    // n.b. With its channel the message went back: anyone who copies it now copies it twice.
    if (this.#isRecorded && !drain.pass.isLost && signal?.aborted !== true) {
      return this.#take(drain, message, deaths);
    }
    this.#tools.budget.left += 1;
    return this.#leave();
  }

  #take(drain: QueueDrain, message: AmqpMessage, deaths: number): DrainDecision {
    const { journal, clock } = this.#tools;
    const identity = journal?.identityOf(this.#pair.queue, message);
    // What was never delivered before cannot have been moved.
    if (identity !== undefined && message.fields.redelivered && journal?.take(identity) === true) {
      if (!this.#isSingle(identity)) this.#strike(identity);
      const onResult = (result: CarryResult): void => {
        if (result.kind === 'done') this.#already += 1;
        this.#note(drain, result, identity);
        this.#tools.budget.left += 1;
      };
      return { kind: 'ack', onResult };
    }
    const outgoing = sweepCopy(message, { ...this.#pair, deaths, now: clock.now() });
    const onResult = (result: CarryResult): void => {
      if (result.kind === 'done') this.#moved += 1;
      else this.#tools.budget.left += 1;
      this.#note(drain, result, identity);
    };
    if (identity === undefined) return { kind: 'publish', outgoing, onResult };
    // n.b. Acked also when that fails: left, it would be copied again by every run.
    const confirmed = async (): Promise<void> => {
      if (this.#isSingle(identity)) await journal?.add(identity);
    };
    return { kind: 'publish', outgoing, confirmed, onResult };
  }

  /** Forgets those that the broker is known to have removed. */
  #note(drain: QueueDrain, result: CarryResult, identity: string | undefined): void {
    if (result.kind !== 'done') {
      this.#left += 1;
      // What cannot be written at all is a failure of this message alone.
      if (isRespoolError(result.error, 'message.invalid')) this.#misfit ??= result.error;
      else drain.fail(result.error);
      return;
    }
    const { journal } = this.#tools;
    if (journal === undefined) return;
    this.#acked.push(identity);
    for (const gone of this.#acked.splice(0, this.#acked.length - drain.pass.unsure)) {
      if (gone === undefined || !this.#isSingle(gone)) continue;
      journal.settle(gone);
      this.#near.delete(gone);
    }
  }

  /** Equal ones here together cannot be told apart after a kill: none of them is remembered. */
  #meet(message: AmqpMessage): void {
    const { max, dryRun } = this.#rule;
    if (dryRun || this.#deaths(message.properties.headers) <= max) return;
    const identity = this.#tools.journal?.identityOf(this.#pair.queue, message);
    if (identity === undefined) return;
    const known = this.#near.get(identity);
    this.#near.set(identity, known === undefined ? 'one' : 'several');
    if (known === 'one') this.#strike(identity);
  }

  #strike(identity: string): void {
    this.#tools.journal?.strike(identity).catch((error: unknown) => {
      this.#fail(error);
      this.#drain?.stop();
    });
  }

  #isSingle(identity: string): boolean {
    return this.#near.get(identity) !== 'several';
  }

  #leave(): DrainDecision {
    this.#left += 1;
    return LEAVE;
  }

  #tell(): void {
    const { queue } = this.#pair;
    const total = this.#drain?.pass.total ?? 0;
    this.#rule.onProgress?.({ queue, total, seen: this.#seen, moved: this.#moved });
  }
}
