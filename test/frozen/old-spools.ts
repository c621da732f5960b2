/**
 * old-spools — what test/fixtures/frozen/ holds, put where today's stores can open it: folders,
 * tables of a fresh schema, streams of a fresh server.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { jetstreamManager, type StreamConfig } from '@nats-io/jetstream';
import { connect, headers, type NatsConnection } from '@nats-io/transport-node';
import type { BodyStore, EntryStore } from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { nats, natsBodies } from 'respool/stores/nats';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import { seal } from 'respool/transforms';
import { onTestFinished } from 'vitest';
import { privateServer } from '../services/index.ts';
import { openClient, ownSchema, serverUrl } from '../stores/postgres/setup.ts';
import { makeFolder } from '../stores/sqlite/setup.ts';

const FIXTURES = path.join(import.meta.dirname, '../fixtures/frozen');

/** The keys that bodies and sealed entries were written with. */
export const KEYS = { k1: '11'.repeat(32), k2: '22'.repeat(32) };

/** An old spool in its place. */
export interface OldSpool {
  /** The folder, the schema or the bucket. */
  readonly place: string;
  /** New stores over the place at each call. */
  readonly stores: () => { readonly entries: EntryStore; readonly bodies: BodyStore };
}

/** What has to be found in it. */
export async function expectedOf<T>(kind: string): Promise<T> {
  return JSON.parse(await readFile(path.join(FIXTURES, `${kind}.json`), 'utf8')) as T;
}

export async function oldSqlite(kind: 'sqlite' | 'sealed' = 'sqlite'): Promise<OldSpool> {
  const place = await unpackFiles(kind);
  const file = { path: path.join(place, 'app.db') };
  const sealing = { keys: { k1: KEYS.k1 }, primary: 'k1' };
  return {
    place,
    stores: () => ({
      entries: kind === 'sealed' ? seal(sqlite(file), sealing) : sqlite(file),
      bodies: sqliteBodies(file),
    }),
  };
}

export async function oldFilesystem(): Promise<OldSpool> {
  const place = await unpackFiles('filesystem');
  return {
    place,
    stores: () => ({
      entries: filesystem({ path: place }),
      bodies: filesystemBodies({ path: place }),
    }),
  };
}

export async function oldPostgres(): Promise<OldSpool> {
  const schema = ownSchema();
  const url = await serverUrl();
  const { name, sql, tables, sequences } = await dataOf<Rows>('postgres');
  const client = await openClient();
  for (const text of sql) await client.query(text.replaceAll(name, schema));
  for (const [table, rows] of Object.entries(tables)) {
    const into = `"${schema}"."${table}"`;
    await client.query(`DELETE FROM ${into}`);
    await client.query(
      `INSERT INTO ${into} OVERRIDING SYSTEM VALUE
         SELECT * FROM json_populate_recordset(NULL::${into}, $1)`,
      [`[${rows.join(',')}]`],
    );
  }
  for (const { name, value } of sequences) {
    await client.query('SELECT setval($1::regclass, $2)', [`"${schema}"."${name}"`, value]);
  }
  return {
    place: schema,
    stores: () => ({
      entries: postgres({ url, schema }),
      bodies: postgresBodies({ url, schema }),
    }),
  };
}

export async function oldNats(): Promise<OldSpool> {
  const { name: bucket, streams } = await dataOf<Streams>('nats');
  const server = await privateServer('nats');
  onTestFinished(() => server.stop());
  const { url } = server;
  const connection = await connect({ servers: url });
  for (const stream of streams) await restore(connection, stream);
  await connection.close();
  return {
    place: bucket,
    stores: () => ({ entries: nats({ url, bucket }), bodies: natsBodies({ url, bucket }) }),
  };
}

/** Rows of tables as JSON, with the SQL that made the tables then. */
interface Rows {
  /** That of the schema. */
  readonly name: string;
  readonly sql: readonly string[];
  readonly tables: Readonly<Record<string, readonly string[]>>;
  readonly sequences: readonly { readonly name: string; readonly value: string }[];
}

interface Streams {
  /** That of the bucket. */
  readonly name: string;
  readonly streams: readonly OldStream[];
}

interface OldStream {
  readonly config: StreamConfig;
  readonly lastSeq: number;
  readonly messages: readonly {
    readonly seq: number;
    readonly subject: string;
    readonly headers: readonly (readonly [name: string, values: readonly string[]])[];
    readonly data: string;
  }[];
}

async function dataOf<T>(kind: string): Promise<T> {
  const data = await readFile(path.join(FIXTURES, `${kind}.data.json.gz`));
  return JSON.parse(gunzipSync(data).toString('utf8')) as T;
}

async function unpackFiles(kind: string): Promise<string> {
  const { files } = await dataOf<{ readonly files: Readonly<Record<string, string>> }>(kind);
  const folder = await makeFolder();
  for (const [name, data] of Object.entries(files)) {
    const file = path.join(folder, name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, Buffer.from(data, 'base64'));
  }
  return folder;
}

/** Each message under the sequence it had: what was removed between them is filled and removed. */
async function restore(connection: NatsConnection, stream: OldStream): Promise<void> {
  const manager = await jetstreamManager(connection);
  const { config, lastSeq, messages } = stream;
  await manager.streams.add(config);
  const filler = `${config.subjects[0]?.replace('>', '') ?? ''}filler`;
  const bySeq = new Map(messages.map((message) => [message.seq, message]));
  for (let seq = 1; seq <= lastSeq; seq += 1) {
    const message = bySeq.get(seq);
    const all = headers();
    for (const [name, values] of message?.headers ?? []) {
      // An order to the server of then, not a part of the message.
      if (name.startsWith('Nats-Expected')) continue;
      for (const value of values) all.append(name, value);
    }
    const data = Buffer.from(message?.data ?? '', 'base64');
    const answer = await connection.request(message?.subject ?? filler, data, {
      headers: all,
      timeout: 60_000,
    });
    const stored = answer.json<{ readonly seq?: number }>();
    if (stored.seq !== seq) throw new Error(`NATS stored ${seq} as ${answer.string()}`);
  }
  await manager.streams.purge(config.name, { filter: filler });
}
