/**
 * faults — nodes work on a server of their own while it crashes and comes back, and while their
 * connections to it are spoiled in every way.
 *
 *   load ─▶ fault ─▶ a while ─▶ return ─▶ every node has an effect again ─▶ load …
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type PrivateServer, privateServer } from '../services/index.ts';
import type { ServerPlace } from '../torture/places.ts';
import { Fleet, type FleetResult } from './fleet.ts';
import { pathOn, query, SERVERS_OF } from './ground.ts';
import { LEASE_MS } from './node-order.ts';
import { FaultProxy, type Spoil, SPOILS } from './proxy.ts';

/** What is done, and how often. */
export interface FaultOptions {
  /** Crashes of each server, with a return. */
  readonly restarts: number;
  /** Connections spoiled, in turn in every way. */
  readonly cuts: number;
  readonly nodes: number;
  readonly seed: number;
  /** The longest time that a server is away or connections are spoiled. */
  readonly longestMs: number;
  /** A promise for a machine that does nothing else; default: at work again at some time. */
  readonly resumeMaxMs?: number;
  /** Default 2 s: shorter than a call waits for its answer. */
  readonly leaseMs?: number;
}

/** What came of it. */
export interface FaultResult extends FleetResult {
  readonly faults: number;
  /** The longest time from the return of a server until every node had an effect again. */
  readonly worstResumeMs: number;
}

/** After this long nobody believes any more that it will be at work again. */
const RESUME_GIVEN_UP_MS = 240_000;
const LOOK_EVERY_MS = 100;
/** A fault begins after so many words to the ledger. */
const WORDS = [20, 120] as const;
const SILENCE_MAX_MS = 3_000;
/** After this long, lazy writes are on the disk for sure; what was done before is not forgotten. */
const LAZY_MS = 2_000;
/** Connections of a node: two pools of PostgreSQL and one that listens; two of NATS. */
const CONNECTIONS_MAX: Readonly<Record<ServerPlace, number>> = {
  postgres: 17,
  nats: 2,
  'postgres-s3': 60,
};

/** Mistreats the servers of a place and returns the verdict. */
export async function faults(place: ServerPlace, options: FaultOptions): Promise<FaultResult> {
  await using stack = new AsyncDisposableStack();
  const servers: PrivateServer[] = [];
  const proxies: FaultProxy[] = [];
  for (const name of SERVERS_OF[place]) {
    const server = stack.use(await privateServer(name));
    servers.push(server);
    proxies.push(stack.use(await FaultProxy.start(server.url)));
  }
  const path = pathOn(
    place,
    proxies.map(({ url }) => url),
  );
  const { nodes, seed, leaseMs = LEASE_MS } = options;
  const fleet = new Fleet({ place, path, nodes, seed, leaseMs, isRough: true });
  stack.defer(() => fleet.close());
  await fleet.start();
  const run = new FaultRun(fleet, place, options);
  const turns = Math.max(options.restarts, options.cuts);
  for (let turn = 0; turn < turns; turn += 1) {
    const spoil = SPOILS[turn % SPOILS.length];
    const proxy = proxies[turn % proxies.length];
    if (turn < options.cuts && proxy && spoil) await run.spoil(proxy, spoil);
    if (turn < options.restarts) {
      for (const server of servers) await run.restart(server);
      await run.freeze(servers[turn % servers.length] as PrivateServer);
    }
  }
  await run.countSockets();
  await fleet.drain();
  for (const proxy of proxies) proxy.dropVanished();
  await run.countConnections(servers[0]?.url ?? '', proxies);
  const { worstResumeMs } = run;
  return { ...(await fleet.verdict()), faults: run.faults, worstResumeMs };
}

class FaultRun {
  faults = 0;
  worstResumeMs = 0;
  readonly #fleet: Fleet;
  readonly #place: ServerPlace;
  readonly #longestMs: number;
  readonly #resumeMaxMs: number;

  constructor(
    fleet: Fleet,
    place: ServerPlace,
    { longestMs, resumeMaxMs = RESUME_GIVEN_UP_MS }: FaultOptions,
  ) {
    this.#fleet = fleet;
    this.#place = place;
    this.#longestMs = longestMs;
    this.#resumeMaxMs = resumeMaxMs;
  }

  /** The server crashes and comes back. */
  async restart(server: PrivateServer): Promise<void> {
    await this.#load();
    const killedAt = Date.now();
    await server.kill();
    // NATS has given all that it acknowledged to the operating system, which lives on.
    if (this.#place !== 'nats') this.#fleet.forgotten += this.#begunSince(killedAt - LAZY_MS);
    await this.#aWhile();
    await server.restart();
    await this.#resumed('a restart');
  }

  /** The server stops answering and goes on after a while. */
  async freeze(server: PrivateServer): Promise<void> {
    await this.#load();
    await server.freeze();
    await this.#aWhile();
    await server.thaw();
    await this.#resumed('a freeze');
  }

  async spoil(proxy: FaultProxy, how: Spoil): Promise<void> {
    const { chance, complaints } = this.#fleet;
    await this.#load();
    const before = proxy.spoiled;
    proxy.spoil(how, chance.between(0, 100) / 100);
    await this.#aWhile();
    proxy.recover();
    if (proxy.spoiled === before) complaints.push(`no connection was met by "${how}"`);
    await this.#resumed(how);
  }

  /** No more sockets than the pools may have: those that broke were let go. */
  async countSockets(): Promise<void> {
    const max = CONNECTIONS_MAX[this.#place] + 1;
    for (const sockets of await this.#fleet.sockets()) {
      if (sockets > max) this.#fleet.complaints.push(`a node has ${sockets} sockets, not ${max}`);
    }
  }

  /** Nodes that ended leave no connection behind. */
  async countConnections(url: string, proxies: readonly FaultProxy[]): Promise<void> {
    const untilMs = performance.now() + RESUME_GIVEN_UP_MS;
    for (;;) {
      const open = proxies.reduce((sum, { connections }) => sum + connections, 0);
      const kept = this.#place === 'nats' ? 0 : await connectionCount(url);
      if (open === 0 && kept === 0) return;
      if (performance.now() > untilMs) {
        this.#fleet.complaints.push(`${open} connections and ${kept} sessions were left open`);
        return;
      }
      await sleep(LOOK_EVERY_MS);
    }
  }

  async #load(): Promise<void> {
    const { ledger, chance } = this.#fleet;
    await Promise.race([ledger.heard(chance.between(...WORDS)), sleep(SILENCE_MAX_MS)]);
    this.faults += 1;
  }

  #aWhile(): Promise<void> {
    return sleep(this.#fleet.chance.between(0, this.#longestMs));
  }

  #begunSince(at: number): number {
    const begun = this.#fleet.ledger.effects.filter((effect) => (effect.at ?? 0) >= at);
    return begun.length;
  }

  /** Waits until every node has begun something that it cannot have had before. */
  async #resumed(after: string): Promise<void> {
    const { ledger, nodes, complaints } = this.#fleet;
    const [returnedAt, beganAt] = [Date.now(), performance.now()];
    const first = ledger.effects.length;
    const isBack = (pid: number): boolean =>
      ledger.effects.findIndex(
        (effect, at) => at >= first && effect.pid === pid && (effect.at ?? 0) > returnedAt,
      ) >= 0;
    const isOver = await Promise.race([
      ledger.until(() => nodes.every(({ pid }) => isBack(pid))).then(() => true),
      sleep(RESUME_GIVEN_UP_MS, false),
    ]);
    const tookMs = Math.round(performance.now() - beganAt);
    this.worstResumeMs = Math.max(this.worstResumeMs, tookMs);
    if (isOver && tookMs <= this.#resumeMaxMs) return;
    const trouble = nodes.map(({ lines }) => lines.findLast((line) => line.startsWith('trouble')));
    const how = isOver ? `resumed ${tookMs} ms after` : 'not resumed after';
    complaints.push(`${how} "${after}"; last ${trouble.join(' | ')}`);
  }
}

async function connectionCount(url: string): Promise<number> {
  const [row] = await query(
    url,
    `SELECT count(*)::int FROM pg_stat_activity
     WHERE application_name IN ('respool', 'respool listen')`,
  );
  return Number(row?.[0]);
}
