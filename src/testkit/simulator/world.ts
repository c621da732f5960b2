/**
 * world — processes around one shared store, in virtual time, everything drawn from one seed.
 *
 *   boot() ─▶ runs ─kill(), powerCut()─▶ gone ─after a while─▶ boot()
 *                 └─restart(): stop(), then boot()
 */

import type { Millis } from '../../core/duration.ts';
import type { Handler } from '../../ports/handler.ts';
import { createSpool, type Spool } from '../../spool/spool.ts';
import { seededDice } from '../virtual-time.ts';
import { simBodies, simStore } from './stores.ts';
import { Chance, Timeline } from './timeline.ts';
import { type CheckContext, Findings } from './checks/check-context.ts';
import { afterPowerCut } from './checks/world.ts';
import { SimBodyDisk, SimDisk } from './disk.ts';
import { SimFaults, StoreLine } from './connection.ts';
import { simHandler } from './handlers.ts';
import { SimLedger } from './sim-ledger.ts';
import { Observer } from './observer.ts';
import { drawSimPlan, type SimPlan, simSettings } from './plan.ts';
import { INSTANCE_LENGTH, SimProcess } from './process.ts';

/** What a planted bug may replace. */
export interface Mutation {
  /** Another disk: the data and its rules. */
  readonly disk?: (timeline: Timeline) => SimDisk;
  /** Another shelf: the bodies. */
  readonly shelf?: (timeline: Timeline) => SimBodyDisk;
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
  readonly shelf: SimBodyDisk;
  readonly faults: SimFaults;
  readonly scene: CheckContext;
  readonly observer: Observer;
  readonly seats: ProcessSlot[] = [];
  isHealed = false;
  kills = 0;
  /** How far the machine's clock was set (sites `one` and `machine`). */
  #jumpedMs = 0;
  #latestNow = 0;
  readonly #mutation: Mutation;
  readonly #gone = new Set<string>();
  readonly #watchers = new Map<SimProcess, { onDue: () => void; isTold: boolean }>();

  constructor(seed: number, mutation: Mutation = {}) {
    this.#mutation = mutation;
    this.chance = new Chance(seededDice(seed));
    this.chanceOfKeys = new Chance(seededDice(seed + KEYS_SALT));
    const plan = drawSimPlan(this.chance, this.chanceOfKeys);
    this.plan = mutation.plan?.(plan) ?? plan;
    this.findings = new Findings(() => ({
      atMs: this.timeline.nowMs,
      step: this.timeline.steps,
    }));
    this.disk = mutation.disk?.(this.timeline) ?? new SimDisk(this.timeline);
    this.shelf = mutation.shelf?.(this.timeline) ?? new SimBodyDisk(this.timeline);
    const dice = new Chance(seededDice(this.chance.seed()));
    this.faults = new SimFaults(dice, this.timeline, this.plan.trouble);
    this.scene = {
      plan: this.plan,
      ledger: this.ledger,
      disk: this.disk,
      shelf: this.shelf,
      timeline: this.timeline,
      findings: this.findings,
      storeNow: () => this.storeNow(),
      latestNow: () => Math.max(this.storeNow(), this.#latestNow),
    };
    this.observer = new Observer(this.scene, {
      isGone: (holder) => this.#gone.has(holder.slice(0, INSTANCE_LENGTH)),
      onWriteBy: (process) => this.#tellOthers(process),
    });
    for (let number = 0; number < this.plan.processes; number += 1) this.#seat(number);
  }

  /** What the store's clock shows. */
  storeNow(): Millis {
    return START_AT + this.timeline.nowMs + this.#jumpedMs;
  }

  /** Sets a clock: the machine's, or that of one machine of several; a server's is never set. */
  jump(byMs: number, seat: ProcessSlot | undefined): void {
    this.#latestNow = Math.max(this.#latestNow, this.storeNow());
    if (this.plan.site !== 'server') this.#jumpedMs += byMs;
    else if (seat !== undefined) seat.skewMs += byMs;
  }

  /** A seat whose process can be asked something now. */
  someone(): ProcessSlot | undefined {
    const up = this.seats.filter(({ isUp, process }) => isUp && process.isRunning);
    return up.length === 0 ? undefined : this.chance.pick(up);
  }

  /** Puts a new process into a seat and starts its spool. */
  boot(seat: ProcessSlot): void {
    seat.runs += 1;
    seat.process = this.#makeProcess(seat);
    seat.spool = this.makeSpool(seat.process);
    const { process, spool } = seat;
    this.#register(seat);
    seat.isUp = true;
    spool.start().catch(() => {
      // A process that cannot start is started again by its supervisor.
      if (!process.isDead) this.kill(seat, 1_000);
    });
  }

  /** Ends a process without a word; another takes its seat after a while. */
  kill(seat: ProcessSlot, downMs: number): void {
    if (!seat.process.isStopping && !this.isHealed) this.kills += 1;
    this.end(seat.process);
    this.#mutation.kill?.(this);
    seat.isUp = false;
    this.timeline.after(downMs, () => {
      if (!seat.isUp) this.boot(seat);
    });
  }

  /** Stops a spool as one should, and boots it again. */
  restart(seat: ProcessSlot, withinMs: number, downMs: number): void {
    const { process, spool } = seat;
    if (process.isStopping || process.isDead) return;
    seat.isUp = false;
    void this.stop(process, spool, withinMs).then(() => {
      if (seat.process === process) this.kill(seat, downMs);
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
      for (const seat of this.seats) {
        seat.process.lostPower = true;
        this.kill(seat, this.chance.between(100, 20_000));
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
      ...(this.#mutation.stores?.(stores, this) ?? stores),
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

  #seat(number: number): void {
    const skewMs = this.plan.site === 'server' ? this.chance.between(-60_000, 60_000) : 0;
    const seat = { number, runs: 0, skewMs, isUp: false } as unknown as ProcessSlot;
    this.seats.push(seat);
    this.boot(seat);
  }

  #makeProcess(seat: ProcessSlot): SimProcess {
    const { timeline } = this;
    const wall = (): Millis =>
      this.plan.site === 'server' ? this.storeNow() + seat.skewMs : this.storeNow();
    return new SimProcess(seat.number, seat.runs, { timeline, wall });
  }

  #register(seat: ProcessSlot): void {
    const { process, spool } = seat;
    seat.handler = simHandler({
      scene: this.scene,
      process,
      chance: this.chance,
      isHealed: () => this.isHealed,
      crash: () => this.kill(seat, this.chance.between(0, 30_000)),
    });
    for (const { lane, pattern, processes, timeoutMs, concurrency, policy } of this.plan.routes) {
      if (!processes.includes(seat.number)) continue;
      const options = {
        timeout: timeoutMs,
        ...(concurrency === undefined ? {} : { concurrency }),
        ...(policy === undefined ? {} : { policy }),
      };
      if (lane === 'delivery') spool.handle(pattern, seat.handler, options);
      else spool.onBounce(pattern, seat.handler, options);
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
