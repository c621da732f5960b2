/**
 * world — processes around one shared store, in virtual time, everything drawn from one seed; and
 * the handlers in them, which succeed, fail, hang or crash at random.
 *
 *   boot() ─▶ runs ─kill(), powerCut()─▶ gone ─after a while─▶ boot()
 *                 └─restart(): stop(), then boot()
 */

import type { Millis } from '../../core/duration.ts';
import { RespoolError } from '../../core/errors.ts';
import { PermanentError, RetryableError } from '../../core/failure.ts';
import { held, type Outcome, postponed } from '../../core/verdict.ts';
import type { Delivery, Handler } from '../../ports/handler.ts';
import { createSpool, type Spool } from '../../spool/spool.ts';
import { seededDice } from '../virtual-time.ts';
import { type CheckScene, Findings } from './checks/check-scene.ts';
import { checkBody, checkEffect, checkStart } from './checks/deliveries.ts';
import { afterPowerCut } from './checks/world.ts';
import { SimFaults, StoreLine } from './connection.ts';
import { SimBodyDisk, SimDisk } from './disk.ts';
import { Observer } from './observer.ts';
import { drawSimPlan, type SimPlan, simSettings } from './plan.ts';
import { INSTANCE_LENGTH, SimProcess } from './process.ts';
import { type ClaimFact, type SimAnswer, SimLedger, type HandlerBehaviour } from './sim-ledger.ts';
import { simBodies, simStore } from './stores.ts';
import { Chance, Timeline } from './timeline.ts';

/** What a planted bug may replace. */
export interface PlantedBug {
  /** Another disk: the data and its rules. */
  readonly disk?: (timeline: Timeline) => SimDisk;
  /** Another disk for bodies. */
  readonly bodyDisk?: (timeline: Timeline) => SimBodyDisk;
  /** Another plan: what the bug needs to show. */
  readonly plan?: (plan: SimPlan) => SimPlan;
  /** A wrapper around the stores that a spool gets. */
  readonly stores?: (stores: SpoolStores, world: SimWorld) => SpoolStores;
  /** What happens besides when a process is killed. */
  readonly kill?: (world: SimWorld) => void;
}

/** The stores a spool gets. */
export interface SpoolStores {
  readonly entries: ReturnType<typeof simStore>;
  readonly bodies: ReturnType<typeof simBodies>;
}

/** One place for a process: who sits there now. */
export interface ProcessSlot {
  readonly number: number;
  runs: number;
  process: SimProcess;
  spool: Spool;
  /** What handles messages here. */
  handler: Handler;
  /** How wrong its machine's clock is (site `server`). */
  skewMs: number;
  isUp: boolean;
}

/** What the clocks show at the beginning: 2026-01-01T00:00:00Z. */
const START_AT: Millis = Date.UTC(2026, 0, 1);
const NEWS_MAX_MS = 250;
/** More calls than this at one moment mean that something spins without ever waiting. */
const CALLS_AT_ONCE_MAX = 20_000;
/** Apart from the seeds that people give, and not a multiple of what the dice step by. */
const KEYS_SALT = 0x2b_c0_ff_ee;

/**
 * One simulated world.
 *
 * @example
 * import { SimProcess, SimWorld } from 'respool/testkit';
 * const world = new SimWorld(7);
 * const { timeline } = world;
 * const process = new SimProcess(1, 1, { timeline, wall: () => world.storeNow() });
 * const { entries, bodies } = world.makeStores(process);
 */
export class SimWorld {
  readonly chance: Chance;
  /** For order keys alone. */
  readonly chanceOfKeys: Chance;
  readonly plan: SimPlan;
  readonly timeline: Timeline = new Timeline();
  readonly ledger: SimLedger = new SimLedger();
  readonly findings: Findings;
  readonly disk: SimDisk;
  readonly bodyDisk: SimBodyDisk;
  readonly faults: SimFaults;
  readonly scene: CheckScene;
  readonly observer: Observer;
  readonly processSlots: ProcessSlot[] = [];
  isHealed = false;
  kills = 0;
  /** How far the machine's clock was set (sites `one` and `machine`). */
  #jumpedMs = 0;
  #latestNow = 0;
  readonly #bug: PlantedBug;
  readonly #gone = new Set<string>();
  readonly #watchers = new Map<SimProcess, { onDue: () => void; isTold: boolean }>();

  constructor(seed: number, bug: PlantedBug = {}) {
    this.#bug = bug;
    this.chance = new Chance(seededDice(seed));
    this.chanceOfKeys = new Chance(seededDice(seed + KEYS_SALT));
    const plan = drawSimPlan(this.chance, this.chanceOfKeys);
    this.plan = bug.plan?.(plan) ?? plan;
    this.findings = new Findings(() => ({
      atMs: this.timeline.nowMs,
      step: this.timeline.steps,
    }));
    this.disk = bug.disk?.(this.timeline) ?? new SimDisk(this.timeline);
    this.bodyDisk = bug.bodyDisk?.(this.timeline) ?? new SimBodyDisk(this.timeline);
    const dice = new Chance(seededDice(this.chance.seed()));
    this.faults = new SimFaults(dice, this.timeline, this.plan.trouble);
    this.scene = {
      plan: this.plan,
      ledger: this.ledger,
      disk: this.disk,
      bodyDisk: this.bodyDisk,
      timeline: this.timeline,
      findings: this.findings,
      storeNow: () => this.storeNow(),
      latestNow: () => Math.max(this.storeNow(), this.#latestNow),
    };
    this.observer = new Observer(this.scene, {
      isGone: (holder) => this.#gone.has(holder.slice(0, INSTANCE_LENGTH)),
      onWriteBy: (process) => this.#tellOthers(process),
    });
    for (let number = 0; number < this.plan.processes; number += 1) this.#processSlot(number);
  }

  /** What the store's clock shows. */
  storeNow(): Millis {
    return START_AT + this.timeline.nowMs + this.#jumpedMs;
  }

  /** Sets a clock: the machine's, or that of one machine of several; a server's is never set. */
  jump(byMs: number, processSlot: ProcessSlot | undefined): void {
    this.#latestNow = Math.max(this.#latestNow, this.storeNow());
    if (this.plan.site !== 'server') this.#jumpedMs += byMs;
    else if (processSlot !== undefined) processSlot.skewMs += byMs;
  }

  /** A slot, at random, whose process can be asked something now. */
  runningSlot(): ProcessSlot | undefined {
    const up = this.processSlots.filter(({ isUp, process }) => isUp && process.isRunning);
    return up.length === 0 ? undefined : this.chance.pick(up);
  }

  /** Puts a new process into a slot and starts its spool. */
  boot(processSlot: ProcessSlot): void {
    processSlot.runs += 1;
    processSlot.process = this.#makeProcess(processSlot);
    processSlot.spool = this.makeSpool(processSlot.process);
    const { process, spool } = processSlot;
    this.#register(processSlot);
    processSlot.isUp = true;
    spool.start().catch(() => {
      // A process that cannot start is started again by its supervisor.
      if (!process.isDead) this.kill(processSlot, 1_000);
    });
  }

  /** Ends a process without a word; another takes its slot after a while. */
  kill(processSlot: ProcessSlot, downMs: number): void {
    if (!processSlot.process.isStopping && !this.isHealed) this.kills += 1;
    this.end(processSlot.process);
    this.#bug.kill?.(this);
    processSlot.isUp = false;
    this.timeline.after(downMs, () => {
      if (!processSlot.isUp) this.boot(processSlot);
    });
  }

  /** Stops a spool as one should, and boots it again. */
  restart(processSlot: ProcessSlot, withinMs: number, downMs: number): void {
    const { process, spool } = processSlot;
    if (process.isStopping || process.isDead) return;
    processSlot.isUp = false;
    void this.stop(process, spool, withinMs).then(() => {
      if (processSlot.process === process) this.kill(processSlot, downMs);
    });
  }

  /** Stops a spool; afterwards none of its timers may be left. */
  async stop(process: SimProcess, spool: Spool, withinMs: number): Promise<void> {
    process.isStopping = true;
    try {
      await spool.stop({ within: withinMs });
    } catch (error) {
      if (process.isDead) return;
      this.findings.add('liveness', `stop() failed: ${String(error)}`);
    }
    if (process.isDead || process.timers === 0) return;
    this.findings.add('timers', `${process.timers} timers were left after stop()`);
  }

  /** The power goes where the store is, and with it what was not durable. */
  powerCut(): void {
    this.faults.powerCuts += 1;
    if (this.plan.site !== 'server') {
      for (const processSlot of this.processSlots) {
        processSlot.process.lostPower = true;
        this.kill(processSlot, this.chance.between(100, 20_000));
      }
    }
    afterPowerCut(this.scene, this.disk.powerCut(this.chance));
  }

  /** A spool over the shared stores. */
  makeSpool(process: SimProcess): Spool {
    const dice = new Chance(seededDice(this.chance.seed()));
    const stores = this.makeStores(process);
    return createSpool({
      ...simSettings(this.plan),
      ...(this.#bug.stores?.(stores, this) ?? stores),
      clock: process.clock,
      dice,
    });
  }

  /** The shared stores as a process sees them. */
  makeStores(process: SimProcess): SpoolStores {
    const { timeline, faults, observer, plan, chance } = this;
    const isOver = (): boolean => {
      if (timeline.callsNow > CALLS_AT_ONCE_MAX) {
        this.findings.add('liveness', `${CALLS_AT_ONCE_MAX} calls at one moment: something spins`);
      }
      return this.findings.first !== undefined;
    };
    const line = new StoreLine({ process, timeline, faults, chance, isOver });
    const watch = (onDue: () => void): (() => void) => this.#watch(process, onDue);
    return {
      entries: simStore({ line, observer, faults, plan, watch }),
      bodies: simBodies({ line, observer, faults }),
    };
  }

  /** A process has ended and is not started again. */
  end(process: SimProcess): void {
    process.kill();
    this.#gone.add(process.instance);
    this.#watchers.delete(process);
  }

  #processSlot(number: number): void {
    const skewMs = this.plan.site === 'server' ? this.chance.between(-60_000, 60_000) : 0;
    const processSlot = { number, runs: 0, skewMs, isUp: false } as unknown as ProcessSlot;
    this.processSlots.push(processSlot);
    this.boot(processSlot);
  }

  #makeProcess(processSlot: ProcessSlot): SimProcess {
    const { timeline } = this;
    const wall = (): Millis =>
      this.plan.site === 'server' ? this.storeNow() + processSlot.skewMs : this.storeNow();
    return new SimProcess(processSlot.number, processSlot.runs, { timeline, wall });
  }

  #register(processSlot: ProcessSlot): void {
    const { process, spool } = processSlot;
    processSlot.handler = simHandler({
      scene: this.scene,
      process,
      chance: this.chance,
      isHealed: () => this.isHealed,
      crash: () => this.kill(processSlot, this.chance.between(0, 30_000)),
    });
    for (const { lane, pattern, processes, timeoutMs, concurrency, policy } of this.plan.routes) {
      if (!processes.includes(processSlot.number)) continue;
      const options = {
        timeout: timeoutMs,
        ...(concurrency === undefined ? {} : { concurrency }),
        ...(policy === undefined ? {} : { policy }),
      };
      if (lane === 'delivery') spool.handle(pattern, processSlot.handler, options);
      else spool.onBounce(pattern, processSlot.handler, options);
    }
  }

  #watch(process: SimProcess, onDue: () => void): () => void {
    this.#watchers.set(process, { onDue, isTold: false });
    return () => this.#watchers.delete(process);
  }

  #tellOthers(writer: SimProcess): void {
    for (const [process, watcher] of this.#watchers) {
      if (process === writer || watcher.isTold) continue;
      watcher.isTold = true;
      this.timeline.after(this.chance.spanMs(NEWS_MAX_MS), () => {
        process.gate('news', () => {
          watcher.isTold = false;
          if (this.#watchers.get(process) === watcher) watcher.onDue();
        });
      });
    }
  }
}

// The handlers of a simulated world: they succeed, fail, hang or crash at random.
//
// What a handler does is drawn when it starts; what it said is written into the ledger before the
// engine gets it.

/** What a handler is made of. */
interface SimHandlerOptions {
  readonly scene: CheckScene;
  readonly process: SimProcess;
  readonly chance: Chance;
  /** From then on nothing crashes or hangs any more. */
  readonly isHealed: () => boolean;
  /** Ends the process it runs in, here and now. */
  readonly crash: () => void;
}

type Act =
  | 'ok'
  | 'retry'
  | 'retryAfter'
  | 'permanent'
  | 'postpone'
  | 'hold'
  | 'text'
  | 'hang'
  | 'stubborn'
  | 'crash';

const BY_BEHAVIOUR: Readonly<Record<HandlerBehaviour, Readonly<Partial<Record<Act, number>>>>> = {
  calm: { ok: 90, retry: 7, postpone: 3 },
  flaky: { ok: 40, retry: 25, retryAfter: 5, postpone: 10, text: 10, hang: 5, stubborn: 5 },
  bad: { permanent: 50, retry: 50 },
  picky: { ok: 60, hold: 40 },
  killer: { ok: 40, crash: 50, retry: 10 },
  slow: { ok: 80, stubborn: 10, retry: 10 },
  probe: { ok: 1 },
};

const NOTICE: Readonly<Partial<Record<Act, number>>> = {
  ok: 70,
  retry: 15,
  permanent: 5,
  postpone: 4,
  crash: 2,
  hang: 2,
  hold: 2,
};

/** Once the world is healed nothing crashes, hangs or waits without end. */
const HEALED: Readonly<Partial<Record<Act, Act>>> = {
  crash: 'retry',
  hang: 'retry',
  stubborn: 'ok',
  postpone: 'ok',
};

/** A handler for one process. */
function simHandler(parts: SimHandlerOptions): Handler {
  return async (delivery) => {
    const { scene, process } = parts;
    if (process.isDead) return never();
    const claim = checkStart(scene, process, delivery);
    if (claim === undefined) return undefined;
    delivery.signal.addEventListener('abort', () => {
      claim.isAborted = true;
    });
    const act = drawAct(parts, claim);
    try {
      if (act !== 'hang') await readBody(parts, delivery, claim);
      return await perform(parts, delivery, claim, act);
    } finally {
      // A dead process runs no further: not even to its finally blocks.
      if (process.isDead) await never();
    }
  };
}

function drawAct({ scene, chance, isHealed }: SimHandlerOptions, claim: ClaimFact): Act {
  const behaviour = scene.ledger.histories.get(claim.id)?.invocation.behaviour ?? 'calm';
  const act = chance.weighted<Act>(claim.lane === 'notice' ? NOTICE : BY_BEHAVIOUR[behaviour]);
  return isHealed() ? (HEALED[act] ?? act) : act;
}

async function readBody(
  { scene, chance, process }: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
): Promise<void> {
  const way = chance.weighted({ whole: 5, stream: 3, none: 2 });
  if (way === 'none') return;
  try {
    const bytes = way === 'whole' ? await delivery.body() : await drained(delivery);
    if (!process.isDead) checkBody(scene, claim, bytes);
  } catch (error) {
    if (process.isDead) return never();
    claim.said = { kind: troubleOf(error) };
    throw error;
  }
}

function troubleOf(error: unknown): 'trouble' | 'outage' | 'retryable' {
  if (!(error instanceof RespoolError)) return 'retryable';
  if (error.code.startsWith('body.')) return 'trouble';
  return error.code === 'store.unavailable' ? 'outage' : 'retryable';
}

async function drained(delivery: Delivery): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of delivery.stream()) parts.push(part);
  return Buffer.concat(parts);
}

async function perform(
  parts: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
  act: Act,
): Promise<Outcome | undefined> {
  const { process, scene } = parts;
  const spanMs = spanOf(parts, act, claim);
  if (spanMs > 0) await sleep(parts, delivery, claim, spanMs, act === 'stubborn');
  if (process.isDead) return never();
  const say = (answer: SimAnswer): void => {
    claim.said = answer;
  };
  switch (act) {
    case 'crash':
      parts.crash();
      return never();
    case 'retry':
      say({ kind: 'retryable' });
      throw new RetryableError('sim.again', `attempt ${claim.attempt} did not work`);
    case 'retryAfter':
      say({ kind: 'retryable', afterMs: 7_000 });
      throw new RetryableError('sim.later', 'not for seven seconds', { retryAfter: '7s' });
    case 'permanent':
      say({ kind: 'permanent' });
      throw new PermanentError('sim.never', 'this will never work');
    case 'text':
      say({ kind: 'retryable' });
      // oxlint-disable-next-line typescript/only-throw-error -- what users do, we must bear
      throw 'a mere string';
    case 'postpone':
      say({ kind: 'postponed', delayMs: 4_000 });
      return postponed('4s', 'not now');
    case 'hold':
      say({ kind: 'held' });
      return held('needs an operator');
    default:
      checkEffect(scene, claim);
      delivery.note('done-by', process.instance);
      say({ kind: 'delivered' });
      return undefined;
  }
}

function spanOf({ chance, scene }: SimHandlerOptions, act: Act, claim: ClaimFact): number {
  const { leaseMs } = scene.plan;
  const behaviour = scene.ledger.histories.get(claim.id)?.invocation.behaviour;
  if (act === 'hang') return Number.POSITIVE_INFINITY;
  if (act === 'stubborn') return chance.between(leaseMs, leaseMs * 4);
  if (behaviour === 'slow') return chance.between(0, leaseMs * 3);
  if (behaviour === 'probe') return 0;
  return chance.happens(0.3) ? 0 : chance.spanMs(leaseMs);
}

/** Waits; an abort ends it with its reason, unless the handler does not care. */
function sleep(
  { process }: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
  spanMs: number,
  isStubborn: boolean,
): Promise<void> {
  const { signal } = delivery;
  return new Promise((resolve, reject) => {
    const cancel = Number.isFinite(spanMs) ? process.later(spanMs, resolve) : () => undefined;
    if (isStubborn) return;
    const onAbort = (): void => {
      cancel();
      if (process.isDead) return;
      claim.said ??= { kind: 'retryable' };
      reject(signal.reason as Error);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
}

function never(): Promise<undefined> {
  return new Promise(() => undefined);
}
