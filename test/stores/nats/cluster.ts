/**
 * cluster — three NATS servers that keep every message three times, to kill one at a time.
 *
 * By the server that the tests run on, or another one by name.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect } from '@nats-io/transport-node';
import { jetstreamManager } from '@nats-io/jetstream';
import { vi } from 'vitest';
import { thisMachine } from '../../../scripts/services/machine.ts';
import { fetchNats, natsVersion } from '../../../scripts/services/nats.ts';
import { freePort } from '../../../scripts/services/ports.ts';
import { isBefore } from '../../../src/stores/nats/schema.ts';
import { skipReason } from '../../services/index.ts';

/** Names another server than the one of the other tests. */
export const VARIABLE = 'RESPOOL_TEST_NATS_SERVER';
const OLDEST = [2, 9, 21] as const;
const NAMES = ['one', 'two', 'three'] as const;
const READY_TIMEOUT_MS = 120_000;
/** How long a server that was started again may stay behind before it is started once more. */
const CATCH_UP_MS = 40_000;
const RESTARTS_MAX = 4;

/** The server to use, or why there is none. */
export async function clusterServer(): Promise<
  { readonly command: string } | { readonly reason: string }
> {
  const skipped = skipReason('nats');
  if (skipped !== undefined) return { reason: skipped };
  const machine = thisMachine();
  try {
    const chosen = process.env[VARIABLE] ?? '';
    const command = chosen === '' ? ((await fetchNats(machine))['nats-server'] ?? '') : chosen;
    const version = await natsVersion(machine, command);
    if (!isBefore(version, OLDEST)) return { command };
    return { reason: `${command} is ${version}, and replicas need ${OLDEST.join('.')} or newer` };
  } catch (error) {
    return { reason: `there is no server of ${OLDEST.join('.')} or newer: ${String(error)}` };
  }
}

/** Servers that run. */
export interface Cluster extends AsyncDisposable {
  /** All of them, joined by commas. */
  readonly url: string;
  /** Each of them. */
  readonly urls: readonly string[];
  /** Their names, in the same order. */
  readonly names: readonly string[];
  /** The name of the server that leads a stream. */
  leaderOf(stream: string): Promise<string>;
  /** SIGKILL; resolves when the process is gone. */
  kill(name: string): Promise<void>;
  /** Starts a killed one with its data. */
  restart(name: string): Promise<void>;
}

interface Member {
  readonly name: string;
  readonly url: string;
  readonly monitor: number;
  readonly config: string;
  child: ChildProcess | undefined;
}

/**
 * Starts three servers, and waits until they take a stream of three replicas. n.b. A port that was
 * free may be taken before its server listens: then the cluster is never whole, and is made anew.
 */
export async function startCluster(command: string): Promise<Cluster> {
  try {
    return await startOnce(command);
  } catch {
    return startOnce(command);
  }
}

async function startOnce(command: string): Promise<Cluster> {
  const dir = await mkdtemp(path.join(tmpdir(), 'respool-nats-'));
  const members = await layOut(dir);
  const url = members.map((member) => member.url).join(',');
  const start = async (member: Member): Promise<void> => {
    member.child = spawn(command, ['-c', member.config], { stdio: 'ignore' });
    await once(member.child, 'spawn');
  };
  const end = async (member: Member): Promise<void> => {
    const { child } = member;
    if (child === undefined) return;
    member.child = undefined;
    const ended = once(child, 'exit');
    if (child.exitCode === null && child.kill('SIGKILL')) await ended;
  };
  const byName = (name: string): Member => {
    const member = members.find((one) => one.name === name);
    if (member === undefined) throw new Error(`there is no server "${name}"`);
    return member;
  };
  const dispose = async (): Promise<void> => {
    for (const member of members) await end(member);
    await rm(dir, { recursive: true, force: true });
  };
  try {
    for (const member of members) await start(member);
    for (const member of members) await untilHealthy(member);
    await untilReplicating(url);
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    url,
    urls: members.map((member) => member.url),
    names: NAMES,
    leaderOf: (stream) => leaderOf(url, stream),
    kill: (name) => end(byName(name)),
    async restart(name) {
      const member = byName(name);
      // A server that was killed can stay behind for good: it is started again, as by an operator.
      for (let tries = 1; ; tries += 1) {
        await start(member);
        const isLast = tries === RESTARTS_MAX;
        const isHealthy = untilHealthy(member, isLast ? READY_TIMEOUT_MS : CATCH_UP_MS);
        if (isLast) return isHealthy;
        if (
          await isHealthy.then(
            () => true,
            () => false,
          )
        )
          return undefined;
        await end(member);
      }
    },
    [Symbol.asyncDispose]: dispose,
  };
}

async function layOut(dir: string): Promise<readonly Member[]> {
  const doors: number[] = [];
  for (const _ of NAMES) doors.push(await freePort());
  const routes = doors.map((door) => `nats://127.0.0.1:${door}`).join(', ');
  const members: Member[] = [];
  for (const [at, name] of NAMES.entries()) {
    const [port, monitor] = [await freePort(), await freePort()];
    const streams = path.join(dir, name);
    await mkdir(streams);
    const config = path.join(dir, `${name}.conf`);
    await writeFile(
      config,
      `server_name: ${name}
listen: 127.0.0.1:${port}
http: 127.0.0.1:${monitor}
jetstream { store_dir: "${streams}" }
cluster { name: ${path.basename(dir)}, listen: 127.0.0.1:${doors[at]}, routes: [${routes}] }
`,
    );
    members.push({ name, url: `nats://127.0.0.1:${port}`, monitor, config, child: undefined });
  }
  return members;
}

async function untilHealthy({ monitor }: Member, timeout = READY_TIMEOUT_MS): Promise<void> {
  await vi.waitFor(
    async () => {
      const { status } = await fetch(`http://127.0.0.1:${monitor}/healthz`);
      if (status !== 200) throw new Error(`the server answers ${status}`);
    },
    { timeout, interval: 50 },
  );
}

async function untilReplicating(url: string): Promise<void> {
  const connection = await connect({ servers: url.split(',') });
  try {
    const made = { name: 'probe', subjects: ['probe'], num_replicas: 3 };
    await vi.waitFor(
      async () => {
        const manager = await jetstreamManager(connection);
        await manager.streams.add(made);
        await manager.streams.delete('probe');
      },
      { timeout: READY_TIMEOUT_MS, interval: 100 },
    );
  } finally {
    await connection.close();
  }
}

async function leaderOf(url: string, stream: string): Promise<string> {
  const connection = await connect({ servers: url.split(',') });
  try {
    const manager = await jetstreamManager(connection);
    return (await manager.streams.info(stream)).cluster?.leader ?? '';
  } finally {
    await connection.close();
  }
}
