/** places — a fresh place in every kind of store, by its address; all of it gone afterwards. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import pg from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { service, skipReason } from '../services/index.ts';

/** Downloads included, as in test/services. */
const START_TIMEOUT_MS = 15 * 60_000;

const SERVERS = ['postgres', 'nats', 's3'] as const;

/** Where entries can be; what is skipped on this machine is not in the list. */
export const ENTRIES: readonly string[] = [
  'filesystem',
  'sqlite',
  'postgres',
  'nats',
  'memory',
].filter(isHad);
export const BODIES: readonly string[] = [
  'filesystem',
  'sqlite',
  'postgres',
  'nats',
  's3',
  'memory',
].filter(isHad);

/** Fresh places, while the tests of a file run. */
export interface Places {
  /** The URL of a server. */
  readonly server: (name: (typeof SERVERS)[number]) => string;
  /** An address in which nothing is yet. */
  readonly address: (kind: string, holds: 'entries' | 'bodies') => string;
  /** A name that no other test uses. */
  readonly freshName: () => string;
}

/** Starts the servers before the first test, and takes everything away after the last. */
export function usePlaces(): Places {
  const urls = new Map<string, string>();
  const schemas: string[] = [];
  const buckets: string[] = [];
  let folder = '';
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'respool-places-'));
    for (const name of SERVERS.filter(isHad)) urls.set(name, await service(name));
  }, START_TIMEOUT_MS);
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    if (schemas.length > 0) await dropSchemas(urls.get('postgres') ?? '', schemas);
    if (buckets.length > 0) await removeBuckets(urls.get('nats') ?? '', buckets);
  });
  const freshName = (): string => `t${randomBytes(8).toString('hex')}`;
  const server = (name: string): string => urls.get(name) ?? '';
  const address = (kind: string, holds: 'entries' | 'bodies'): string => {
    const name = freshName();
    if (kind === 'memory') return 'memory:';
    if (kind === 'filesystem') return `file:${path.join(folder, name, holds)}`;
    if (kind === 'sqlite') return `sqlite:${path.join(folder, name)}`;
    if (kind === 'postgres') {
      schemas.push(name);
      return `${server('postgres')}${joint(server('postgres'))}schema=${name}`;
    }
    if (kind === 'nats') {
      buckets.push(name);
      return `${server('nats')}?bucket=${name}`;
    }
    const endpoint = encodeURIComponent(server('s3'));
    return `s3://${name}/app?endpoint=${endpoint}&createBucket=true`;
  };
  return { server, address, freshName };
}

function isHad(name: string): boolean {
  const known = SERVERS.find((one) => one === name);
  return known === undefined || skipReason(known) === undefined;
}

function joint(url: string): string {
  return url.includes('?') ? '&' : '?';
}

async function dropSchemas(url: string, schemas: readonly string[]): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('SET client_min_messages = warning');
  // One at a time: all in one statement need more locks than a server has.
  for (const schema of schemas) await client.query(`DROP SCHEMA IF EXISTS "${schema}" CASCADE`);
  await client.end();
}

async function removeBuckets(url: string, buckets: readonly string[]): Promise<void> {
  const connection = await connect({ servers: url });
  const manager = await jetstreamManager(connection);
  for (const name of buckets.flatMap((bucket) => [`KV_${bucket}`, `OBJ_${bucket}`])) {
    await manager.streams.delete(name).catch(() => undefined);
  }
  await connection.close();
}
