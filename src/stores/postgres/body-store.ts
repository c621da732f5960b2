/**
 * postgresBodies — bodies in rows of at most 256 KiB, streamed both ways.
 *
 *   first chunk ─▶ chunk … chunk ─▶ last chunk, complete   visible and durable from here
 *
 * Chunks are committed as they come, and no transaction is open while a caller's stream runs. Only
 * the last write waits for the disk: it takes along what was written before, and counts it, since a
 * server that crashed meanwhile may have forgotten a chunk. A body that fits one chunk is a row of
 * a batch that it shares with anyone who writes at the same time.
 *
 * Beside entries in the same schema, commit.ts removes bodies by a statement of its own
 * (`dropBodiesSql`), which has to do what `remove` of `bodySql` does. `respool doctor --sql` prints
 * the statements (statements.ts).
 */

import { RespoolError, textOf } from '../../core/errors.ts';
import { checkKey } from '../../core/limits.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { Durability } from '../../ports/entry-store.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { InFlight } from '../../system/wait.ts';
import { type BatchLine, createBatchLine } from '../shared/batching.ts';
import { Lifetime } from '../shared/lifetime.ts';
import { Operations } from '../shared/operations.ts';
import {
  bodyTakenError,
  inChunks,
  noBodyError,
  REFS_PAGE,
  readChunks,
} from '../shared/sql-body.ts';
import { Blob, numberArray, textArray } from './row.ts';
import { readDurability, warnOfPowerLoss } from './durability.ts';
import type { PostgresParts } from './entry-store.ts';
import { migrateSchema } from './schema.ts';
import {
  type CheckedOptions,
  checkStoreOptions,
  type Names,
  type PostgresOptions,
} from './options.ts';
import { type QueryRequest, Server } from './connection.ts';

/** Bodies of one chunk that go in one statement: 8 MiB with `CHUNK_BYTES` of shared/sql-body.ts. */
const BATCH_MAX = 32;
const BATCHES_MAX = 2;

/** A body that fits one chunk. */
interface Small {
  readonly ref: string;
  readonly token: string;
  readonly bytes: Uint8Array;
}

interface Opened {
  readonly server: Server;
  readonly sql: ReturnType<typeof bodySql>;
  readonly line: BatchLine<Small, boolean>;
  readonly durability: Durability;
  readonly calls: InFlight;
}

/** A body store in a PostgreSQL database. Needs the package `pg` when it is given a URL. */
export function postgresBodies(
  options: PostgresOptions,
  parts: Partial<PostgresParts> = {},
): BodyStore {
  const { clock, dice } = { clock: systemClock, dice: systemDice, ...parts };
  const operations = new Operations('bodies', clock);
  const checked = checkStoreOptions('the PostgreSQL body store', options);
  let durability: Durability = 'power-loss';
  const life = new Lifetime(async () => {
    const opened = await openAll(checked, new Server(checked, clock));
    ({ durability } = opened);
    return opened;
  }, closeAll);

  function use(): Opened {
    if (life.opened !== undefined) return life.opened;
    throw new RespoolError(
      'store.unavailable',
      `cannot use the body store in schema "${checked.names.schema}": it is not open; ` +
        'call open() first',
    );
  }

  return {
    name: 'postgres',
    traits: {
      get durability() {
        return durability;
      },
    },
    open: () => life.open(),
    close: () => life.close(),
    ...operations.bodies({
      async put(ref, stream) {
        checkKey('body ref', ref);
        return { size: await put({ use, ref, token: randomName(dice), stream }) };
      },
      get: (ref) => read(use, ref),
      async remove(refs) {
        await run(use, 'remove bodies', (ask, { sql }) => ask(sql.remove, [textArray(refs)]));
      },
    }),
    onOperation: operations.on,
    async *refs(writtenBefore) {
      let after = '';
      for (;;) {
        const from = after;
        const page = await run(use, 'list bodies', (ask, { sql }) =>
          ask(sql.refs, [from, writtenBefore, REFS_PAGE]),
        );
        for (const [ref, writtenAt] of page) {
          yield { ref: textOf(ref), writtenAt: Number(writtenAt) };
        }
        after = textOf(page.at(-1)?.[0]);
        if (page.length < REFS_PAGE) return;
      }
    },
  };
}

async function openAll(options: CheckedOptions, server: Server): Promise<Opened> {
  const { names } = options;
  await server.open();
  try {
    const { durability, isForced } = await server.run('open the body store', async (ask) => {
      await migrateSchema(ask, names, options.migrate);
      return readDurability(ask);
    });
    warnOfPowerLoss(durability, options);
    const sql = bodySql(names, isForced);
    const line = createBatchLine<Small, boolean>(
      (items) => server.run('put bodies', (ask, isUnknown) => putSmall(ask, sql, items, isUnknown)),
      { batchMax: BATCH_MAX, inFlightMax: BATCHES_MAX },
    );
    return { server, sql, line, durability, calls: new InFlight() };
  } catch (error) {
    await server.close();
    throw error;
  }
}

async function closeAll({ server, line, calls }: Opened): Promise<void> {
  try {
    await line.idle();
    await calls.idle();
  } finally {
    await server.close();
  }
}

/** Runs something that close() waits for. */
async function run<T>(
  use: () => Opened,
  doing: string,
  work: (ask: QueryRequest, opened: Opened, isUnknown: boolean) => Promise<T>,
): Promise<T> {
  const opened = use();
  return opened.calls.track(
    opened.server.run(doing, (ask, isUnknown) => work(ask, opened, isUnknown)),
  );
}

interface Put {
  readonly use: () => Opened;
  readonly ref: string;
  /** Tells this put from every other of the same ref. */
  readonly token: string;
  readonly stream: AsyncIterable<Uint8Array>;
}

async function put(value: Put): Promise<number> {
  const { use, ref, token, stream } = value;
  // Refused before the caller's stream is touched; the first write decides again.
  const found = await run(use, 'look for a body', (ask, { sql }) => ask(sql.exists, [ref]));
  if (found.length > 0) throw bodyTakenError(ref);
  let kept: Uint8Array | undefined;
  let size = 0;
  let chunks = 0;
  try {
    for await (const bytes of inChunks(stream)) {
      // The newest chunk is held back: the last one is written with the end of the body.
      if (kept !== undefined) {
        await writeChunk(value, chunks === 0, size - kept.byteLength, kept);
        chunks += 1;
      }
      kept = bytes;
      size += bytes.byteLength;
    }
    if (chunks > 0 && kept !== undefined) await finish(value, size, chunks + 1, kept);
    else {
      const bytes = kept ?? new Uint8Array(0);
      const [isDone] = await use().line.add([{ ref, token, bytes }]);
      if (isDone !== true) throw bodyTakenError(ref);
    }
    return size;
  } catch (error) {
    // If this fails too, the half body stays unseen, and the caretaker finds it through `refs`.
    if (chunks > 0) await dropHalf(value).catch(() => undefined);
    throw error;
  }
}

async function dropHalf({ use, ref, token }: Put): Promise<void> {
  await run(use, 'remove half a body', (ask, { sql }) => ask(sql.dropHalf, [ref, token]));
}

async function writeChunk(
  { use, ref, token }: Put,
  isFirst: boolean,
  at: number,
  bytes: Uint8Array,
): Promise<void> {
  const written = await run(use, 'write a body', async (ask, { sql }, isUnknown) => {
    if (isFirst) {
      const begun = await ask(sql.begin, [ref, token]);
      const isOurs =
        begun.length > 0 || (isUnknown && (await ask(sql.mine, [ref, token])).length > 0);
      if (!isOurs) throw bodyTakenError(ref);
    }
    return ask(sql.chunk, [ref, token, at, bytes]);
  });
  if (written.length === 0) throw removed(ref);
}

async function finish(
  { use, ref, token }: Put,
  size: number,
  chunks: number,
  bytes: Uint8Array,
): Promise<void> {
  const done = await run(use, 'write a body', async (ask, { sql }, isUnknown) => {
    if (isUnknown && (await ask(sql.finished, [ref, token])).length > 0) return [[]];
    const written = await ask(sql.chunk, [ref, token, size - bytes.byteLength, bytes]);
    return written.length === 0 ? written : ask(sql.finish, [ref, token, size, chunks]);
  });
  if (done.length === 0) throw removed(ref);
}

/** The refs that were stored; the others already existed. */
async function putSmall(
  ask: QueryRequest,
  sql: ReturnType<typeof bodySql>,
  items: readonly Small[],
  isUnknown: boolean,
): Promise<boolean[]> {
  const blob = new Blob();
  const starts = items.map(({ bytes }) => {
    const start = blob.bytes + 1;
    blob.add(bytes);
    return start;
  });
  const done = await ask(sql.put, [
    textArray(items.map(({ ref }) => ref)),
    textArray(items.map(({ token }) => token)),
    numberArray(starts),
    numberArray(items.map(({ bytes }) => bytes.byteLength)),
    blob.toBuffer(),
  ]);
  const tokens = new Set(done.map(([token]) => token));
  if (isUnknown) {
    const asked = [
      textArray(items.map(({ ref }) => ref)),
      textArray(items.map(({ token }) => token)),
    ];
    for (const [token] of await ask(sql.allMine, asked)) tokens.add(token);
  }
  return items.map(({ token }) => tokens.has(token));
}

function removed(ref: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot continue writing body "${ref}": a part of it was removed or lost meanwhile; put it ` +
      `again`,
  );
}

async function* read(use: () => Opened, ref: string): AsyncGenerator<Uint8Array> {
  const [head] = await run(use, 'read a body', (ask, { sql }) => ask(sql.first, [ref]));
  if (head === undefined) throw noBodyError(ref);
  const [size, first] = head;
  yield* readChunks(ref, Number(size), async (at) => {
    if (at === 0) return first;
    const [row] = await run(use, 'read a body', (ask, { sql }) => ask(sql.read, [ref, at]));
    return row?.[0];
  });
}

type BodyStatement =
  | 'exists'
  | 'begin'
  | 'mine'
  | 'chunk'
  | 'finish'
  | 'finished'
  | 'put'
  | 'allMine'
  | 'dropHalf'
  | 'remove'
  | 'first'
  | 'read'
  | 'refs';

/** The statements of bodies, by what they do. */
export function bodySql(
  { table }: Names,
  isForced: boolean,
): Readonly<Record<BodyStatement, string>> {
  const { bodies, chunks } = table;
  const now = '(extract(epoch FROM clock_timestamp()) * 1000)::int8';
  const forced = isForced ? "set_config('synchronous_commit', 'on', true)" : "''";
  const lazily = "set_config('synchronous_commit', 'off', true)";
  return {
    exists: `SELECT 1 FROM ${bodies} WHERE ref = $1`,
    begin: `INSERT INTO ${bodies} (ref, token, size, written_at, complete)
  SELECT $1, $2, 0, ${now}, false WHERE ${lazily} IS NOT NULL
  ON CONFLICT DO NOTHING RETURNING ref`,
    mine: `SELECT 1 FROM ${bodies} WHERE ref = $1 AND token = $2`,
    chunk: `INSERT INTO ${chunks} AS c (ref, at, bytes)
  SELECT ref, $3, $4 FROM ${bodies}
  WHERE ref = $1 AND token = $2 AND NOT complete AND ${lazily} IS NOT NULL
  ON CONFLICT (ref, at) DO UPDATE SET at = c.at RETURNING at`,
    finish: `UPDATE ${bodies} SET size = $3, written_at = ${now}, complete = true
  WHERE ref = $1 AND token = $2 AND NOT complete AND ${forced} IS NOT NULL
    AND (SELECT count(*) FROM ${chunks} WHERE ref = $1) = $4 RETURNING ref`,
    finished: `SELECT 1 FROM ${bodies} WHERE ref = $1 AND token = $2 AND complete`,
    put: `WITH given AS MATERIALIZED (
  SELECT g.*, ${forced} AS forced FROM unnest($1::text[], $2::text[], $3::int4[], $4::int4[])
    AS g(ref, token, start, bytes)
), put AS (
  INSERT INTO ${bodies} (ref, token, size, written_at, complete)
  SELECT ref, token, bytes, ${now}, true FROM given ON CONFLICT DO NOTHING RETURNING ref, token
), kept AS (
  INSERT INTO ${chunks} (ref, at, bytes)
  SELECT g.ref, 0, substr($5::bytea, g.start, g.bytes)
  FROM given g JOIN put p ON p.token = g.token WHERE g.bytes > 0
)
SELECT token FROM put`,
    allMine: `SELECT token FROM ${bodies}
  WHERE ref = ANY($1::text[]) AND token = ANY($2::text[]) AND complete`,
    dropHalf: `WITH gone AS (
  DELETE FROM ${bodies} WHERE ref = $1 AND token = $2 AND NOT complete RETURNING ref
)
DELETE FROM ${chunks} c USING gone WHERE c.ref = gone.ref`,
    remove: `WITH gone AS (DELETE FROM ${bodies} WHERE ref = ANY($1::text[]))
DELETE FROM ${chunks} WHERE ref = ANY($1::text[])`,
    first: `SELECT b.size, c.bytes FROM ${bodies} b
  LEFT JOIN ${chunks} c ON c.ref = b.ref AND c.at = 0 WHERE b.ref = $1 AND b.complete`,
    read: `SELECT bytes FROM ${chunks} WHERE ref = $1 AND at = $2`,
    refs: `SELECT ref, written_at FROM ${bodies} WHERE ref > $1 AND written_at < $2::float8
  ORDER BY ref LIMIT $3`,
  };
}
