/**
 * What a dump of the stores shows when bodies are encrypted and entries sealed: after a life with
 * secrets in every place that is promised to hide them, and with every place of the stores written
 * down that is not hidden.
 */

import Sqlite from 'better-sqlite3';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  type BodyStore,
  createSpool,
  type EntryStore,
  fixed,
  held,
  PermanentError,
  postponed,
  RetryableError,
  type Spool,
} from 'respool';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import { encrypt, seal } from 'respool/transforms';
import { withService } from '../services/index.ts';
import { connect, dropFileSchemas, newSchema } from '../stores/postgres/setup.ts';
import { atEnd, KEYS, makeFolder } from './seal-setup.ts';

/** In everything that is secret. In no base64 text by chance: it has a full stop. */
const CANARY = 'canary.7f3a';
const secret = (part: string): string => `${CANARY}.${part}`;
const SECRETS = [
  'name value destination elsewhere running policy body note noted code reason final no later look',
  'why operator pauser retrier remover gone',
].flatMap((line) => line.split(' '));

interface Places {
  readonly entries: EntryStore;
  readonly bodies: BodyStore;
}

/** A spool over these stores, with `encrypt` and `seal` unless it is to be read by everybody. */
function spoolOver({ entries, bodies }: Places, isHidden = true): Spool {
  const keys = { k1: KEYS.k1 };
  const spool = createSpool({
    entries: isHidden ? seal(entries, { keys }) : entries,
    bodies,
    transforms: isHidden ? [encrypt({ keys })] : [],
    policies: { [secret('policy')]: fixed('1h', { attempts: 5 }) },
    retention: { delivered: { archive: '1d' } },
    settle: 'durable',
  });
  atEnd(() => spool.stop());
  return spool;
}

const WAYS = ['delivered', 'fails', 'bounces', 'waits', 'held', 'large'] as const;

/**
 * Messages that go every way there is, with secrets everywhere but where all may see them. The last
 * one is still active when it resolves, until `release` is called.
 */
async function live(spool: Spool, hasOrder = true): Promise<{ release: () => void }> {
  const gate = Promise.withResolvers<void>();
  const running = Promise.withResolvers<void>();
  spool.handle('shown.topic', async (delivery) => {
    delivery.note(secret('note'), secret('noted'));
    await delivery.text();
    if (delivery.id === 'fails') throw new RetryableError(secret('code'), secret('reason'));
    if (delivery.id === 'bounces') throw new PermanentError(secret('final'), secret('no'));
    if (delivery.id === 'waits') return postponed('1h', secret('later'));
    if (delivery.id === 'held') return held(secret('look'));
    return undefined;
  });
  spool.handle('shown.running', async () => {
    running.resolve();
    await gate.promise;
  });
  const ended = all(spool, WAYS);
  await spool.start();
  for (const id of WAYS) {
    await spool.enqueue({
      id,
      topic: 'shown.topic',
      headers: { [secret('name')]: secret('value') },
      destination: secret('destination'),
      policy: secret('policy'),
      dedupeKey: `shown-dedupe-${id}`,
      ...(hasOrder ? { orderKey: `shown-order-${id}` } : {}),
      body: secret('body').padEnd(id === 'large' ? 100_000 : 20, ' '),
    });
  }
  await ended;
  await operate(spool);
  await spool.enqueue({ topic: 'shown.running', destination: secret('running') });
  await running.promise;
  return { release: gate.resolve };
}

/** Resolves when something has become of each of these. */
function all(spool: Spool, ids: readonly string[]): Promise<void> {
  const left = new Set(ids);
  return new Promise<void>((resolve) => {
    for (const kind of ['delivered', 'deferred', 'bounced', 'held'] as const) {
      spool.on(kind, ({ id }) => {
        left.delete(id);
        if (left.size === 0) resolve();
      });
    }
  });
}

/** What operators do, each under a name and with a reason of their own. */
async function operate(spool: Spool): Promise<void> {
  const topic = 'shown.topic';
  const destination = secret('elsewhere');
  await spool.enqueue({ topic, id: 'delayed', delay: '1d', expires: '2d', destination });
  await spool.operator({ by: secret('operator') }).hold(['delayed'], { reason: secret('why') });
  await spool.operator({ by: secret('pauser') }).pause(topic);
  await spool.operator({ by: secret('retrier') }).retry(['bounces']);
  await spool.operator({ by: secret('remover') }).remove(['fails'], { reason: secret('gone') });
}

/** Every file of a folder, as text of one byte each, names included. */
async function filesOf(folder: string): Promise<string> {
  const files = await readdir(folder, { recursive: true });
  const texts = await Promise.all(
    files.map((file) => readFile(path.join(folder, file), 'latin1').catch(() => '')),
  );
  return [...files, ...texts].join('\n');
}

/** Where something stands in the clear: `table.column`, with the path in it where it is JSON. */
type Shown = Map<string, Set<unknown>>;

function addShown(shown: Shown, place: string, value: unknown): void {
  // Nothing, or bytes that a cipher made.
  if (value === null || value === undefined || ArrayBuffer.isView(value)) return;
  const inside = typeof value === 'string' && value.startsWith('{') ? JSON.parse(value) : value;
  if (typeof inside === 'object') {
    for (const [name, part] of Object.entries(inside as object)) {
      addShown(shown, Array.isArray(inside) ? place : `${place}.${name}`, part);
    }
    return;
  }
  if (inside === 0 || inside === '' || isHiddenText(inside)) return;
  shown.set(place, (shown.get(place) ?? new Set()).add(inside));
}

/** Sealed texts, tokens and keyed digests. */
function isHiddenText(value: unknown): boolean {
  const hidden = /^(?:v1:k1:[\w-]+|sealed\.[\w-]{16}|hmac-sha256:[0-9a-f]{64})$/;
  return typeof value === 'string' && hidden.test(value);
}

async function rowsOfSqlite(folder: string): Promise<Shown> {
  const database = new Sqlite(path.join(folder, 'respool.db'), { timeout: 5_000 });
  const shown: Shown = new Map();
  const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all();
  for (const { name: table } of tables as { name: string }[]) {
    for (const row of database.prepare(`SELECT * FROM "${table}"`).all() as object[]) {
      for (const [column, value] of Object.entries(row)) {
        addShown(shown, `${table}.${column}`, value);
      }
    }
  }
  database.close();
  return shown;
}

/** The columns of tables, and the names in what is JSON there, that a dump of SQLite may show. */
const ON_THE_LIST = {
  ids: 'entries.id contents.envelope.id contents.envelope.ownId',
  topics: 'flows.topic contents.envelope.topic',
  dedupeKeys: 'entries.dedupe_key contents.envelope.dedupeKey',
  orderKeys: 'entries.order_key contents.envelope.orderKey',
  times:
    'entries.due_at entries.enqueued_at entries.updated_at bodies.written_at ' +
    'contents.envelope.enqueuedAt contents.envelope.expiresAt',
  sizes:
    'contents.envelope.body.size contents.envelope.body.storedSize bodies.size bodies.complete ' +
    'chunks.at',
  howBodiesAreKept:
    'contents.envelope.body.place contents.envelope.body.ref contents.envelope.body.encodings ' +
    'bodies.ref chunks.ref',
  priorities: 'entries.priority contents.envelope.priority flows.priority',
  states: 'entries.slot entries.claimed_from entries.memory.ending',
  counters: 'entries.attempts entries.lost entries.notices entries.revision',
  holders: 'entries.holder',
  // The same in every row: the true word is sealed.
  constants: 'entries.memory.lastFailure.permanence',
  sequence: 'entries.seq entries.behind contents.seq',
  messagesPerFlow:
    'entries.flow flows.flow flows.n0 flows.n1 flows.n2 flows.n3 flows.n4 flows.n5 flows.n6 ' +
    'flows.n7 flows.n8 flows.n9 flows.n10 flows.n11',
  tables: 'meta.key meta.value',
  records: 'log_heads.kind log_heads.last logs.kind logs.sequence maps.kind maps.key maps.revision',
};

describe('a dump of encrypted and sealed stores', () => {
  const inSqlite = (folder: string): Places => ({
    entries: sqlite({ path: folder, thread: false }),
    bodies: sqliteBodies({ path: folder }),
  });

  test('would show all secrets without: the test looks in the right places', async () => {
    const folder = await makeFolder();
    const { release } = await live(spoolOver(inSqlite(folder), false));
    const dump = await filesOf(folder);
    for (const part of SECRETS) expect(dump, part).toContain(secret(part));
    release();
  });

  test('on SQLite, log and locks included, shows nothing but what is on the list', async () => {
    const folder = await makeFolder();
    const { release } = await live(spoolOver(inSqlite(folder)));
    const shown = await rowsOfSqlite(folder);
    const listed = new Set(Object.values(ON_THE_LIST).flatMap((line) => line.split(' ')));
    expect([...shown.keys()].filter((place) => !listed.has(place))).toEqual([]);
    expect([...(shown.get('entries.holder') ?? [])]).toEqual([
      expect.stringMatching(/^[0-9a-z]{12}\/[0-9a-z]+$/),
    ]);
    // The paused topic, and the digest of the patterns that the process handles.
    expect(shown.get('maps.key')).toEqual(
      new Set([expect.stringMatching(/^[0-9a-f]{32}$/), 'shown.topic']),
    );
    const dump = await filesOf(folder);
    expect(dump).toContain('respool.db-wal');
    expect(dump).toContain('shown-dedupe-fails');
    expect(dump).not.toContain(CANARY);
    release();
  });

  test('on a filesystem shows none of the secrets, in files or in their names', async () => {
    const folder = await makeFolder();
    const entries = filesystem({ path: path.join(folder, 'entries') });
    const bodies = filesystemBodies({ path: path.join(folder, 'bodies') });
    const { release } = await live(spoolOver({ entries, bodies }), false);
    const dump = await filesOf(folder);
    expect(dump).toContain('shown-dedupe-fails');
    expect(dump).not.toContain(CANARY);
    release();
  });
});

withService('postgres', (url) => {
  dropFileSchemas();

  test('a dump of PostgreSQL shows none of the secrets in any table', async () => {
    const schema = newSchema();
    const place = { url: url(), schema };
    const spool = spoolOver({ entries: postgres(place), bodies: postgresBodies(place) });
    const { release } = await live(spool);
    const dump = await tablesOfPostgres(schema);
    expect(dump).toContain('shown-dedupe-fails');
    expect(dump).not.toContain(CANARY);
    release();
  });
});

/** All rows of a schema, bytes as text of one byte each. */
async function tablesOfPostgres(schema: string): Promise<string> {
  const client = await connect();
  const sql = 'SELECT tablename FROM pg_tables WHERE schemaname = $1';
  const { rows: tables } = await client.query<{ tablename: string }>(sql, [schema]);
  const texts: string[] = [];
  for (const { tablename } of tables) {
    const { rows } = await client.query<object>(`SELECT * FROM "${schema}"."${tablename}"`);
    for (const value of rows.flatMap((row) => Object.values(row) as unknown[])) {
      texts.push(Buffer.isBuffer(value) ? value.toString('latin1') : JSON.stringify(value));
    }
  }
  await client.end();
  return texts.join('\n');
}
