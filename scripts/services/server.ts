/**
 * server — one private server: the processes it is made of, and what a test may do to it.
 *
 *   start() ─▶ running ─kill()▶ dead ─restart()▶ running ─freeze()▶ still ─thaw()▶ running ─stop()▶ gone
 *
 * A server is a row of units, started in order. Tests do to the last one, the front, what they do
 * to the server: killing the gateway of Ceph is a crash of S3, killing its storage a loss of data.
 */

import path from 'node:path';
import type { ServiceName } from './words.ts';
import {
  type Account,
  endFamily,
  familyOf,
  killFamily,
  type Launched,
  launch,
  signalAll,
  untilReady,
} from './processes.ts';

/** Where and how a server is started. */
export interface Site {
  /** A folder of its own, which is removed with it. */
  readonly dir: string;
  /** Told of every process that is started or has ended, so that none outlives us. */
  readonly ledger: Ledger;
  /** The URL of another server, which is started when it is not there. */
  readonly urlOf: (service: ServiceName) => Promise<string>;
}

/** Who remembers which processes are ours. */
export interface Ledger {
  add(pid: number): void;
  remove(pid: number): void;
  /** A container is removed in the end in any case; twice is no harm. */
  addContainer(name: string): void;
}

/** One process of a server. */
export interface UnitPlan {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  readonly account?: Account | undefined;
  /** Whether it does its work. */
  readonly isReady: () => Promise<boolean>;
  /** How it is asked to end; its data are thrown away, so the quickest way that leaves nothing. */
  readonly stopSignal: NodeJS.Signals;
  /** What a crash of it is; without it, the whole family gets SIGKILL. */
  readonly crashSignal?: NodeJS.Signals;
}

/** The program of a server by which its operator speaks to it. */
export interface Operator {
  readonly command: string;
  /** What leads it to this server and to no other. */
  readonly env: Readonly<Record<string, string>>;
}

/** A server that runs. */
export interface Server {
  readonly urls: Readonly<Partial<Record<ServiceName, string>>>;
  /** Where the server has one, and it can be reached from here. */
  readonly operator?: Operator;
  /** Ends the front at once, without a goodbye; with SIGKILL or in the server's own crash mode. */
  kill(how?: 'SIGKILL'): Promise<void>;
  /** Lets the front stand still: connections stay, nothing answers. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Starts the front again, on the same port with the same data; ends it first if it runs. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

const READY_TIMEOUT_MS = 40_000;
const STOP_GRACE_MS = 5_000;

/** A process of a server that can be started again. */
export class Unit {
  readonly #site: Site;
  readonly #plan: UnitPlan;
  #process: Launched | undefined;

  constructor(site: Site, plan: UnitPlan) {
    this.#site = site;
    this.#plan = plan;
  }

  /** Starts it and waits until it is ready. */
  async start(): Promise<void> {
    const { command, args, env, account, name } = this.#plan;
    const { dir, ledger } = this.#site;
    const logFile = path.join(dir, `${name}.log`);
    const started = await launch(command, args, {
      logFile,
      cwd: dir,
      account,
      ...(env === undefined ? {} : { env }),
    });
    this.#process = started;
    ledger.add(started.pid);
    void started.ended.then(() => ledger.remove(started.pid));
    await untilReady(name, this.#plan.isReady, {
      process: started,
      logFile,
      timeoutMs: READY_TIMEOUT_MS,
    });
  }

  async kill(how?: 'SIGKILL'): Promise<void> {
    const { crashSignal } = this.#plan;
    const child = this.#living();
    if (child === undefined) return;
    if (how === 'SIGKILL' || crashSignal === undefined) await killFamily(child.pid);
    else await endFamily(child.pid, { signal: crashSignal, graceMs: STOP_GRACE_MS });
  }

  async freeze(): Promise<void> {
    const child = this.#living();
    // The first first: it cannot start more while the others are stopped.
    if (child !== undefined) signalAll(await familyOf(child.pid), 'SIGSTOP');
  }

  async thaw(): Promise<void> {
    const child = this.#living();
    if (child !== undefined) signalAll(await familyOf(child.pid), 'SIGCONT');
  }

  async stop(): Promise<void> {
    const child = this.#living();
    if (child === undefined) return;
    await endFamily(child.pid, { signal: this.#plan.stopSignal, graceMs: STOP_GRACE_MS });
  }

  #living(): Launched | undefined {
    return this.#process?.hasEnded() === false ? this.#process : undefined;
  }
}

/** A server out of its units, the front last. */
export function serverOfUnits(urls: Server['urls'], units: readonly Unit[]): Server {
  const front = units.at(-1);
  if (front === undefined) throw new Error('a server has at least one process');
  return {
    urls,
    kill: (how) => front.kill(how),
    freeze: () => front.freeze(),
    thaw: () => front.thaw(),
    async restart() {
      await front.stop();
      await front.start();
    },
    stop: () => stopUnits(units),
  };
}

/** Ends units, the last that was started first. */
export async function stopUnits(units: readonly Unit[]): Promise<void> {
  for (const unit of [...units].reverse()) await unit.stop();
}
