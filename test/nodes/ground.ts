/**
 * ground — where nodes meet: a folder, a schema, a bucket; fresh for each run, gone afterwards.
 * Buckets of S3 stay until their server goes, with the tests.
 */
import { randomBytes } from 'node:crypto';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import pg from 'pg';
import { service } from '../services/index.ts';
import { inFolder } from '../torture/folder.ts';
import { joinPath, type Place, type ServerPlace } from '../torture/places.ts';

/** The servers that a place needs, by the names of the test services. */
export const SERVERS_OF = {
  postgres: ['postgres'],
  nats: ['nats'],
  'postgres-s3': ['postgres', 's3'],
} as const satisfies Record<ServerPlace, readonly string[]>;

/** Runs `work` with the `path` of a fresh place, and removes what it left. */
export async function onGround<Value>(
  place: Place,
  work: (path: string) => Promise<Value>,
): Promise<Value> {
  if (!isServerPlace(place)) return inFolder(work);
  const urls: string[] = [];
  for (const name of SERVERS_OF[place]) urls.push(await service(name));
  const name = freshName();
  try {
    return await work(pathOn(place, urls, name));
  } finally {
    await clear(place, urls[0] ?? '', name);
  }
}

/** The `path` of a place on these servers; the same name is the same place. */
export function pathOn(
  place: ServerPlace,
  [url = '', bodiesUrl = '']: readonly string[],
  name: string = freshName(),
): string {
  if (place !== 'postgres-s3') return joinPath(url, name);
  return joinPath(url, name, bodiesUrl, name.replaceAll('_', '-'));
}

export function isServerPlace(place: Place): place is ServerPlace {
  return Object.hasOwn(SERVERS_OF, place);
}

/** A name that no other run uses, good for a schema and for a bucket. */
export function freshName(): string {
  return `nodes_${randomBytes(6).toString('hex')}`;
}

async function clear(place: ServerPlace, url: string, name: string): Promise<void> {
  if (place !== 'nats') {
    await query(url, `DROP SCHEMA IF EXISTS "${name}" CASCADE`);
    return;
  }
  const connection = await connect({ servers: url });
  const { streams } = await jetstreamManager(connection);
  for (const stream of [`KV_${name}`, `OBJ_${name}`]) {
    // It is not there when the run ended before it made one.
    await streams.delete(stream).catch(() => undefined);
  }
  await connection.close();
}

/** Asks PostgreSQL beside the nodes; rows as arrays. */
export async function query(url: string, sql: string): Promise<readonly unknown[][]> {
  const client = new pg.Client({ connectionString: url, application_name: 'respool test' });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return (await client.query<unknown[]>({ text: sql, rowMode: 'array' })).rows;
  } finally {
    await client.end();
  }
}
