/** standby — a PostgreSQL that follows another one, which waits for it at every commit. */

import { existsSync } from 'node:fs';
import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { expect } from 'vitest';
import { thisMachine } from '../../../scripts/services/machine.ts';
import { postgres } from '../../../scripts/services/postgres.ts';
import { run } from '../../../scripts/services/processes.ts';
import { type PrivateServer, privateServer } from '../../services/index.ts';
import { atEnd, connect } from './setup.ts';

/** A primary and the standby it waits for. */
interface Pair {
  readonly primary: PrivateServer;
  readonly standby: PrivateServer;
  /** The standby, with the password it has from its primary. */
  readonly standbyUrl: string;
}

/** The program that copies a server, where this machine has it. */
export function copier(): string | undefined {
  const programs = postgres.find(thisMachine());
  if (typeof programs === 'string') return undefined;
  const file = path.join(path.dirname(programs['initdb'] ?? ''), 'pg_basebackup');
  return existsSync(file) ? file : undefined;
}

/** Starts both; the primary waits for the standby from here on. */
export async function startPair(copy: string): Promise<Pair> {
  const [primary, standby] = await Promise.all([
    privateServer('postgres'),
    privateServer('postgres'),
  ]);
  atEnd(() => primary.stop());
  atEnd(() => standby.stop());
  await follow(copy, primary, standby);
  const client = await connect(primary.url);
  await client.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
  await client.query('SELECT pg_reload_conf()');
  const sql = "SELECT count(*)::int AS n FROM pg_stat_replication WHERE sync_state = 'sync'";
  await expect.poll(async () => (await client.query(sql)).rows[0].n).toBe(1);
  await client.end();
  const standbyUrl = new URL(primary.url);
  standbyUrl.port = new URL(standby.url).port;
  return { primary, standby, standbyUrl: standbyUrl.href };
}

/** Puts a copy of the one where the other has its data, and lets it start from there. */
async function follow(copy: string, primary: PrivateServer, standby: PrivateServer) {
  const client = await connect(standby.url);
  const data = (await client.query('SHOW data_directory')).rows[0].data_directory as string;
  await client.end();
  await standby.kill();
  const { uid, gid } = await stat(data);
  for (const name of await readdir(data)) {
    await rm(path.join(data, name), { recursive: true, force: true });
  }
  const account = process.getuid?.() === 0 ? { uid, gid } : undefined;
  const args = ['-d', primary.url, '-D', data, '-R', '-X', 'stream', '-c', 'fast', '--no-sync'];
  await run(copy, args, { cwd: path.dirname(data), account });
  await standby.restart();
}
