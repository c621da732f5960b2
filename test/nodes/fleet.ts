/**
 * fleet — several nodes on one store, with the ledger that hears them all.
 *
 *   start ─▶ load ─faults─▶ finish (no new messages) ─▶ drain (nothing left) ─▶ look ─▶ verdict
 *
 * A node that dies is replaced at once, whoever killed it, unless it shall not be.
 */
import { type Chance, createChance } from '../torture/chance.ts';
import { type Judged, judgeRun } from '../torture/checker.ts';
import { type Child, startChild } from '../torture/child.ts';
import { sightComplaints } from '../torture/crash.ts';
import { inspect } from '../torture/inspect.ts';
import { Ledger } from '../torture/ledger.ts';
import type { Place } from '../torture/places.ts';
import { ATTEMPTS_MAX, CONCURRENCY, LEASE_MS, NODE_OPTIONS, type NodeOrder } from './node-order.ts';

/** How a fleet is made up. */
export interface FleetOptions {
  readonly place: Place;
  readonly path: string;
  readonly nodes: number;
  readonly seed: number;
  /** Nodes that produce; default all. */
  readonly producing?: number;
  /** Default 10 ms. */
  readonly paceMs?: number;
  readonly isRough?: boolean;
  readonly settle?: NodeOrder['settle'];
  /** Default 2 s. */
  readonly leaseMs?: number;
  /** Whether another node takes the place of one that died; default true. */
  readonly replaces?: boolean;
}

/** What came of a run. */
export interface FleetResult extends Judged {
  readonly place: Place;
  readonly seed: number;
  readonly kills: number;
  /** Verdicts that came too late and were not accepted. */
  readonly stale: number;
  readonly expiries: number;
}

const PRODUCERS = 2;
const PACE_MS = 10;
/** Nodes that drain may be killed by their messages; more often than this is a fault of ours. */
const DRAINS_MAX = 50;

export class Fleet {
  readonly ledger: Ledger = new Ledger();
  readonly chance: Chance;
  readonly complaints: string[] = [];
  /** Every process that was killed, by us or by a message. */
  readonly gone: Set<number> = new Set();
  /** What crashed servers may have forgotten. */
  forgotten = 0;
  readonly #options: FleetOptions;
  readonly #children: Child[] = [];
  readonly #burials = new Map<Child, Promise<void>>();
  #port = 0;
  #started = 0;
  #asked = 0;
  #isFinishing = false;
  #isEnding = false;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.chance = createChance(options.seed);
  }

  /** The nodes that live. */
  get nodes(): readonly Child[] {
    return this.#children;
  }

  /** Starts all nodes; resolves when they are at work. */
  async start(): Promise<void> {
    this.#port = await this.ledger.listen();
    const { nodes, producing = nodes } = this.#options;
    for (let node = 0; node < nodes; node += 1) this.#add(node < producing ? PRODUCERS : 0);
    await Promise.all(this.#children.map((child) => child.line('started')));
  }

  /** Kills a node; another one takes its place. */
  async kill(child: Child): Promise<void> {
    child.signal('SIGKILL');
    await this.#burials.get(child);
  }

  /** No node produces any more; those that die meanwhile get no producers again. */
  async finish(): Promise<void> {
    this.#isFinishing = true;
    const asked = new Set<Child>();
    for (;;) {
      const child = this.#children.find((one) => !asked.has(one));
      if (child === undefined) return;
      asked.add(child);
      child.say('finish');
      // One that dies has nothing to answer.
      await child.line('finished').catch(() => this.#burials.get(child));
    }
  }

  /** The open sockets of each node, the one to the ledger included. */
  async sockets(): Promise<readonly number[]> {
    this.#asked += 1;
    const word = `sockets ${this.#asked} `;
    return Promise.all(
      this.#children.map(async (child) => {
        child.say(word);
        return Number((await child.line(word)).slice(word.length));
      }),
    );
  }

  /** Lets the nodes work until nothing is left, and end by themselves. */
  async drain(): Promise<void> {
    await this.finish();
    this.#isEnding = true;
    for (let tries = 0; tries < DRAINS_MAX; tries += 1) {
      for (const child of this.#children) child.say('drain');
      const ended = await Promise.all(this.#children.map(({ ended }) => ended));
      await Promise.all(this.#burials.values());
      if (ended.some(({ code }) => code === 0)) return this.ledger.alone();
      this.#add(0);
      await this.#children[0]?.line('started').catch(() => undefined);
    }
    this.complaints.push(`the store did not come to rest in ${DRAINS_MAX} starts`);
  }

  /** Looks into the store, as a fresh process would, and judges. */
  async verdict(): Promise<FleetResult> {
    const { place, path, seed, leaseMs = LEASE_MS } = this.#options;
    const options = { ...NODE_OPTIONS, caretaker: { orphanGrace: '0ms' } } as const;
    const first = await inspect(place, path, { options, repair: true });
    const second = await inspect(place, path, { options });
    const kills = this.gone.size;
    const judged = judgeRun({
      facts: this.ledger,
      found: first.entries,
      kills,
      concurrency: CONCURRENCY,
      attemptsMax: ATTEMPTS_MAX,
      leaseMs,
      // SQLite asks the operating system who lives; a server only knows leases.
      ...(place.startsWith('sqlite') ? { seenGone: this.gone } : {}),
      forgotten: this.forgotten,
    });
    const complaints = [
      ...judged.complaints,
      ...this.complaints,
      ...sightComplaints(first, second),
    ];
    const { stale, expiries } = this.ledger;
    return { ...judged, complaints, place, seed, kills, stale, expiries };
  }

  /** Ends what still runs. */
  async close(): Promise<void> {
    this.#isEnding = true;
    for (const child of this.#children) child.signal('SIGKILL');
    await Promise.all(this.#children.map(({ ended }) => ended));
    this.ledger.close();
  }

  #add(producers: number): void {
    const { place, path, paceMs = PACE_MS, isRough = false } = this.#options;
    const { settle = 'lazy', leaseMs = LEASE_MS } = this.#options;
    this.#started += 1;
    const order: NodeOrder = {
      place,
      path,
      port: this.#port,
      seed: this.chance.between(1, 2 ** 30),
      name: `n${this.#started}`,
      producers,
      paceMs,
      isRough,
      settle,
      leaseMs,
    };
    const child = startChild('../nodes/node-child.ts', order);
    this.#children.push(child);
    this.#burials.set(child, this.#bury(child, producers));
  }
  async #bury(child: Child, producers: number): Promise<void> {
    const { code, signal } = await child.ended;
    this.#burials.delete(child);
    this.#children.splice(this.#children.indexOf(child), 1);
    if (child.complaint() !== '') this.complaints.push(child.complaint().slice(0, 500));
    if (signal === 'SIGKILL') this.gone.add(child.pid);
    else if (code !== 0) this.complaints.push(`a node ended with ${code ?? signal}`);
    const { replaces = true } = this.#options;
    if (replaces && !this.#isEnding) this.#add(this.#isFinishing ? 0 : producers);
  }
}
