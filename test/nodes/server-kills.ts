/**
 * server-kills — nodes work on a server that is killed again and again with SIGKILL and started
 * anew, while processes that only burn time keep the machine busy: a starved server has the most
 * that it acknowledged and did not write yet.
 *
 *   load ─▶ kill ─▶ a while ─▶ restart ─▶ load … ─▶ drain ─▶ kill ─▶ restart ─▶ look ─▶ verdict
 *
 * The last kill shows what a later restart brings back into sight.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { type PrivateServer, privateServer } from '../services/index.ts';
import { Fleet, type FleetResult } from './fleet.ts';
import { pathOn } from './ground.ts';

/** What is done, and how often. */
export interface ServerKillOptions {
  readonly kills: number;
  readonly nodes: number;
  readonly seed: number;
  /** Processes that do nothing but burn time. */
  readonly spinners: number;
  /** Chooses the server: another program, another `sync_interval`. */
  readonly env?: Readonly<Record<string, string>>;
}

/** What came of it. */
export interface ServerKillResult extends FleetResult {
  readonly serverKills: number;
}

/** A kill falls after so many words to the ledger. */
const WORDS = [20, 200] as const;
const BETWEEN_MS = [0, 15] as const;
const SILENCE_MAX_MS = 5_000;
const AWAY_MAX_MS = 300;
const RESTARTS_MAX = 20;
/** Longer than a call is tried (10 s): on a starved machine an answer takes seconds. */
const LEASE_MS = 15_000;

/** Kills a NATS server of its own `kills` times and returns the verdict. */
export async function serverKills(options: ServerKillOptions): Promise<ServerKillResult> {
  await using stack = new AsyncDisposableStack();
  const { nodes, seed, spinners, env = {} } = options;
  const server = stack.use(await privateServer('nats', { env }));
  const path = pathOn('nats', [server.url]);
  const fleet = new Fleet({ place: 'nats', path, nodes, seed, leaseMs: LEASE_MS, isRough: true });
  stack.defer(() => fleet.close());
  await fleet.start();
  for (let count = 0; count < spinners; count += 1) {
    const spinner = spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' });
    stack.defer(() => ended(spinner));
  }
  for (let kill = 0; kill < options.kills; kill += 1) await killOnce(fleet, server);
  await fleet.drain();
  await server.kill('SIGKILL');
  await restart(server);
  return { ...(await fleet.verdict()), serverKills: options.kills };
}

async function killOnce({ ledger, chance }: Fleet, server: PrivateServer): Promise<void> {
  await Promise.race([ledger.heard(chance.between(...WORDS)), sleep(SILENCE_MAX_MS)]);
  await sleep(chance.between(...BETWEEN_MS));
  await server.kill('SIGKILL');
  await sleep(chance.between(0, AWAY_MAX_MS));
  await restart(server);
}

/** Its port may be another process's for a moment. */
async function restart(server: PrivateServer): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await server.restart();
    } catch (error) {
      if (tries === RESTARTS_MAX) throw error;
      await sleep(AWAY_MAX_MS);
    }
  }
}

async function ended(spinner: ChildProcess): Promise<void> {
  const over = new Promise((resolve) => spinner.once('exit', resolve));
  if (spinner.exitCode === null && spinner.kill('SIGKILL')) await over;
}
