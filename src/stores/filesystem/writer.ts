/**
 * writer — the one line on which all calls that change something go to the disk.
 *
 *   ask() ─▶ line ─▶ plan every call ─▶ one batch to the thread ─▶ finish every plan ─▶ answers
 *
 * entry-store.ts and list.ts call it. While a batch is at the disk, calls queue up and share the
 * next one. Lazy changes are brought to the disk by the next durable batch, or by a flush of our
 * own soon after.
 */

import type { Clock } from '../../ports/clock.ts';
import { type BatchLine, createBatchLine } from '../shared/batching.ts';
import { type CountPart, itemsOf, type Operations } from '../shared/operations.ts';
import type { Catalog } from './catalog.ts';
import type { BatchDone, Damage } from './disk-protocol.ts';
import { storeError } from './errors.ts';
import { planClaim } from './claim.ts';
import { planCommit, planSetAside } from './commit.ts';
import { planInsert } from './insert.ts';
import type { WriterCall, WriterPlan, WriterRound } from './plan.ts';
import type { DiskThread } from './thread.ts';

/** Calls that go to the disk together. */
const BATCH_MAX = 500;

/** A lazy change goes to the disk this soon: the rest of the promised 250 ms is the disk's. */
const LAZY_MS = 150;

/** What the line works with. */
interface WriterOptions {
  readonly thread: Pick<DiskThread, 'run'>;
  readonly catalog: Catalog;
  readonly damages: Damage[];
  readonly clock: Clock;
  readonly operations: Operations;
  /** For error texts. */
  readonly path: string;
}

type Answer = { readonly value: unknown } | { readonly error: Error };

/** Changes entries, one batch at a time. */
export class Writer {
  readonly #parts: WriterOptions;
  readonly #line: BatchLine<WriterCall, Answer>;
  #running: Promise<unknown> = Promise.resolve();
  #callOffFlush: (() => void) | undefined;

  constructor(parts: WriterOptions) {
    this.#parts = parts;
    const run = parts.operations.mixed(
      (calls: readonly WriterCall[]) => this.#run(calls),
      countPart,
    );
    this.#line = createBatchLine(run, { batchMax: BATCH_MAX });
  }

  /** Carries out a call; throws when the disk could not. */
  async ask<Value>(call: WriterCall): Promise<Value> {
    const [answer] = await this.#line.add([call]);
    if (answer !== undefined && 'value' in answer) return answer.value as Value;
    throw answer?.error ?? new Error('bug in respool: a call was not answered');
  }

  /** Resolves when the batch that is at the disk now is through. */
  async settled(): Promise<void> {
    await this.#running;
  }

  /** Resolves when nothing is queued or at the disk, and no flush of our own will come. */
  async idle(): Promise<void> {
    await this.#line.idle();
    this.#callOffFlush?.();
  }

  #run(calls: readonly WriterCall[]): Promise<readonly Answer[]> {
    const answers = this.#answerAll(calls);
    this.#running = answers;
    return answers;
  }

  async #answerAll(calls: readonly WriterCall[]): Promise<readonly Answer[]> {
    const { catalog, damages } = this.#parts;
    const answers: Answer[] = [];
    let waiting = calls.map((call, at) => ({ call, at }));
    while (waiting.length > 0) {
      const round = createRound(catalog, damages);
      const plans: WriterPlan[] = [];
      const places: number[] = [];
      const later: typeof waiting = [];
      for (const item of waiting) {
        const plan = planCall(item.call, round);
        if (plan === 'later') later.push(item);
        else {
          plans.push(plan);
          places.push(item.at);
        }
      }
      const done = await this.#carryOut(plans, round);
      done.forEach((answer, index) => {
        answers[places[index] ?? 0] = answer;
      });
      waiting = later;
    }
    return answers;
  }

  async #carryOut(plans: readonly WriterPlan[], round: WriterRound): Promise<readonly Answer[]> {
    const atDisk = plans.filter(({ needsDisk }) => needsDisk);
    const isDurable = atDisk.some((plan) => plan.isDurable);
    let done: BatchDone = { calls: [], contents: new Uint8Array(0) };
    try {
      if (atDisk.length > 0) {
        const calls = atDisk.map(({ steps }) => steps);
        done = await this.#parts.thread.run({ calls, bodies: joinBodies(round), isDurable });
      }
    } catch (error) {
      // The thread itself failed: nothing of this batch may be believed.
      for (const plan of plans) plan.drop();
      return plans.map(() => ({ error: error as Error }));
    }
    if (isDurable) this.#callOffFlush?.();
    else if (atDisk.some(({ isLazy }) => isLazy)) this.#flushSoon();
    const outcomes = new Map(atDisk.map((plan, at) => [plan, done.calls[at]]));
    return plans.map((plan) => this.#conclude(plan, outcomes.get(plan) ?? [], done.contents));
  }

  #conclude(plan: WriterPlan, outcome: BatchDone['calls'][number], contents: Uint8Array): Answer {
    if ('code' in outcome) {
      plan.drop();
      return { error: storeError(`write to the store "${this.#parts.path}"`, outcome) };
    }
    return { value: plan.finish(outcome, contents) };
  }

  #flushSoon(): void {
    if (this.#callOffFlush !== undefined) return;
    const callOff = this.#parts.clock.after(LAZY_MS, () => {
      this.#callOffFlush = undefined;
      // An error is not lost: the disk is broken then, and every later call says so.
      this.#line.add([{ kind: 'flush' }]).catch(() => undefined);
    });
    this.#callOffFlush = () => {
      this.#callOffFlush = undefined;
      callOff();
    };
  }
}

/** Plans a call, or says that it has to wait for another one of this batch. */
function planCall(call: WriterCall, round: WriterRound): WriterPlan | 'later' {
  switch (call.kind) {
    case 'insert':
      return planInsert(call, round);
    case 'claim':
      return planClaim(call.request, round);
    case 'commit':
      return planCommit(call, round);
    case 'setAside':
      return planSetAside(call, round);
    default:
      return {
        steps: [],
        needsDisk: true,
        isDurable: true,
        isLazy: false,
        finish: () => undefined,
        drop: () => undefined,
      };
  }
}

/** The parts of a batch that are counted: inserts, claims, commits, and all the rest. */
const countPart: CountPart<WriterCall, Answer> = (call, answer, add) => {
  const isDone = answer !== undefined && 'value' in answer;
  if (call.kind === 'insert') add('insert', call.entries.length, isDone);
  else if (call.kind === 'commit') add('commit', call.changes.length, isDone);
  else if (call.kind === 'claim') add('claim', isDone ? itemsOf(answer.value) : 0, isDone);
  else add('write', 1, isDone);
};

function createRound(catalog: Catalog, damages: Damage[]): WriterRound {
  return { catalog, damages, ids: new Map(), keys: new Map(), bodies: [], bodiesBytes: 0 };
}

function joinBodies({ bodies, bodiesBytes }: WriterRound): Uint8Array {
  // Its own memory, not a piece of a shared pool: it is transferred to the thread.
  const joined = new Uint8Array(bodiesBytes);
  let at = 0;
  for (const body of bodies) {
    joined.set(body, at);
    at += body.length;
  }
  return joined;
}
