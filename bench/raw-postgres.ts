/**
 * raw-postgres — the tables, indexes and row bytes of our own schema, driven by prepared statements
 * over two connections: one whose commits wait for the disk, one whose do not, as with ours.
 */

import { Client } from 'pg';
import { createSpool } from 'respool';
import { memoryBodies } from 'respool/stores/memory';
import { postgres } from 'respool/stores/postgres';
import { bytes, type Load, limitsOf } from './ours.ts';
import { dropSchema, newName } from './places.ts';
import type { RawBodies, RawEntries } from './raw.ts';

/** A row as the server gives it. */
export type Row = Record<string, unknown>;

interface Connections {
  readonly schema: string;
  readonly durable: Client;
  readonly lazy: Client;
  readonly close: () => Promise<void>;
}

/** Entries in a schema of their own. */
export async function rawPostgresEntries(url: string, load: Load): Promise<RawEntries> {
  const schema = newName();
  const { entry, content } = await template(url, schema, load);
  const { durable, lazy, close } = await connections(url, schema);
  const insert = inserter(durable, schema, entry, content);
  const claim = `WITH c AS MATERIALIZED (
  SELECT ctid AS at, seq FROM "${schema}".entries
  WHERE slot = 0 AND slot < 10 AND priority = 5 AND due_at <= $1
  ORDER BY due_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE "${schema}".entries e SET slot = 2, claimed_from = 0, holder = 'bench0000000/1',
  due_at = $3, revision = revision + 1, attempts = attempts + 1, updated_at = $1
FROM c LEFT JOIN "${schema}".contents k ON k.seq = c.seq WHERE e.ctid = c.at
RETURNING e.id, e.*, k.envelope, k.body`;
  const remove = `WITH gone AS (
  DELETE FROM "${schema}".entries WHERE id = ANY($1::text[]) RETURNING seq
)
DELETE FROM "${schema}".contents k USING gone WHERE k.seq = gone.seq`;
  return {
    isSingle: false,
    insert,
    async claim(inserted) {
      const now = Date.now();
      const values = [now, inserted.length, now + 60_000];
      const query = { name: 'claim', text: claim, values, rowMode: 'array' as const };
      return (await lazy.query(query)).rows.map(([id]) => id as string);
    },
    async remove(claimed) {
      await lazy.query({ name: 'remove', text: remove, values: [claimed] });
    },
    close,
  };
}

/** Inserts copies of a row, this many in one statement; resolves with their ids. */
export function inserter(
  client: Client,
  schema: string,
  { seq: _seq, id: _id, due_at: _due, ...entry }: Row,
  content: Row,
): (count: number) => Promise<readonly string[]> {
  const names = Object.keys(entry);
  const envelope = Buffer.from(String(content['envelope']));
  const body = (content['body'] as Buffer | null) ?? undefined;
  const rest = names.map((_, at) => `$${at + 5}`).join(', ');
  const cut = (from: string, length: number): string =>
    `substr($3::bytea, ((u.n - 1) * $4::int4 + ${from})::int4, ${length})`;
  const text = `WITH e AS (
  INSERT INTO "${schema}".entries (seq, id, due_at, ${names.join(', ')})
  SELECT nextval('"${schema}".entries_seq'), u.id, $1, ${rest}
  FROM unnest($2::text[]) AS u(id) RETURNING seq
), u AS (SELECT seq, row_number() OVER () AS n FROM e)
INSERT INTO "${schema}".contents (seq, envelope, body)
SELECT u.seq, convert_from(${cut('1', envelope.length)}, 'UTF8'),
  ${body === undefined ? 'NULL' : cut(String(envelope.length + 1), body.length)}
FROM u`;
  const one = Buffer.concat([envelope, body ?? Buffer.alloc(0)]);
  let made = 0;
  return async (count) => {
    const now = Date.now();
    const ids = Array.from({ length: count }, () => {
      made += 1;
      return now.toString(16) + String(made).padStart(21, '0');
    });
    // The bytes of each go over the wire, as ours do.
    const blob = Buffer.concat(Array.from({ length: count }, () => one));
    const values = [now, ids, blob, one.length, ...Object.values(entry)];
    await client.query({ name: 'insert', text, values });
    return ids;
  };
}

/** Bodies in the tables of ours, in chunks of 256 KiB, many in one statement. */
export async function rawPostgresBodies(url: string, load: Load): Promise<RawBodies> {
  const schema = newName();
  const store = postgres({ url, schema });
  await store.open();
  await store.close();
  const { durable, lazy, close } = await connections(url, schema);
  const chunkBytes = Math.min(load.bodyBytes, 256 * 1_024);
  const chunk = Buffer.from(bytes(chunkBytes));
  const chunks = Math.ceil(load.bodyBytes / chunkBytes);
  const put = `WITH b AS (
  INSERT INTO "${schema}".bodies (ref, token, size, written_at, complete)
  SELECT ref, 'bench0000000', ${load.bodyBytes}, 0, true FROM unnest($1::text[]) AS g(ref)
)
INSERT INTO "${schema}".chunks (ref, at, bytes)
SELECT g.ref, c.n * ${chunkBytes},
  substr($2::bytea, (((g.at - 1) * ${chunks} + c.n) * ${chunkBytes} + 1)::int4, ${chunkBytes})
FROM unnest($1::text[]) WITH ORDINALITY AS g(ref, at), generate_series(0, ${chunks - 1}) AS c(n)`;
  const read = `SELECT bytes FROM "${schema}".chunks WHERE ref = ANY($1::text[])`;
  const remove = `WITH gone AS (DELETE FROM "${schema}".bodies WHERE ref = ANY($1::text[]))
DELETE FROM "${schema}".chunks WHERE ref = ANY($1::text[])`;
  const slices = (refs: readonly string[]): readonly (readonly string[])[] => {
    const size = Math.max(1, Math.floor(BATCH_BYTES_MAX / load.bodyBytes));
    return Array.from({ length: Math.ceil(refs.length / size) }, (_, at) =>
      refs.slice(at * size, (at + 1) * size),
    );
  };
  return {
    async put(refs) {
      for (const part of slices(refs)) {
        const blob = Buffer.concat(Array.from({ length: part.length * chunks }, () => chunk));
        await durable.query({ name: 'put', text: put, values: [part, blob] });
      }
    },
    async read(refs) {
      for (const part of slices(refs)) {
        await lazy.query({ name: 'read', text: read, values: [part], rowMode: 'array' });
      }
    },
    async remove(refs) {
      await lazy.query({ name: 'drop', text: remove, values: [refs] });
    },
    close,
  };
}

/** Larger statements are slower, not faster. */
const BATCH_BYTES_MAX: number = 8 * 2 ** 20;

async function connections(url: string, schema: string): Promise<Connections> {
  const durable = new Client({ connectionString: url });
  const lazy = new Client({ connectionString: url });
  await Promise.all([durable.connect(), lazy.connect()]);
  await lazy.query('SET synchronous_commit = off');
  return {
    schema,
    durable,
    lazy,
    async close() {
      await Promise.all([durable.end(), lazy.end()]);
      await dropSchema(url, schema);
    },
  };
}

/** Our tables, and the rows of one message that our store wrote there. */
async function template(
  url: string,
  schema: string,
  load: Load,
): Promise<{ entry: Row; content: Row }> {
  const spool = createSpool({
    entries: postgres({ url, schema }),
    bodies: memoryBodies(),
    limits: limitsOf(load),
  });
  await spool.enqueue({
    topic: 'bench',
    body: bytes(load.bodyBytes),
    headers: { caller: '1' },
  });
  await spool.stop();
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows: entries } = await client.query<Row>(`SELECT * FROM "${schema}".entries`);
  const { rows: contents } = await client.query<Row>(`SELECT * FROM "${schema}".contents`);
  await client.query(`TRUNCATE "${schema}".entries, "${schema}".contents`);
  await client.end();
  const [entry, content] = [entries[0], contents[0]];
  if (entry === undefined || content === undefined) throw new Error('there is no message to copy');
  return { entry, content };
}
