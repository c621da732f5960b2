/**
 * records — the record store: logs and maps in tables, each write one statement.
 *
 * A record that was appended or put without an answer is looked for by its token before that is
 * done again; a removal is repeated.
 */

import type { RecordStore } from '../../ports/record-store.ts';
import { recordText } from '../shared/operations.ts';
import type { Names } from './options.ts';
import type { Server } from './connection.ts';

/** What a record store needs of its entry store. */
interface RecordHost {
  /** The server; throws while the store is not open. */
  readonly use: () => Server;
  readonly names: Names;
  readonly newToken: () => string;
  /** Called after each write. */
  readonly onWrite: () => void;
}

export function createRecordStore(host: RecordHost): RecordStore {
  const sql = sqlOf(host.names);
  const run = <T>(doing: string, work: Parameters<Server['run']>[1]): Promise<T> =>
    host.use().run(doing, work) as Promise<T>;
  return {
    ...createLogs(host, sql, run),
    async put(kind, key, value, revision) {
      const token = host.newToken();
      const given = [kind, key, recordText(value), token];
      const isDone = await run<boolean>('put a record', async (ask, isUnknown) => {
        if (isUnknown && (await ask(sql.hasPut, [kind, key, token])).length > 0) return true;
        if (revision === undefined) return (await ask(sql.put, given)).length > 0;
        if (revision === 0) return (await ask(sql.putNew, given)).length > 0;
        return (await ask(sql.putOver, [...given, revision])).length > 0;
      });
      if (isDone) host.onWrite();
      return isDone ? 'done' : 'stale';
    },
    async get(kind, key) {
      const [row] = await run<unknown[][]>('read a record', (ask) => ask(sql.get, [kind, key]));
      return row && { key, value: JSON.parse(String(row[0])) as unknown, revision: Number(row[1]) };
    },
    async list(kind) {
      const rows = await run<unknown[][]>('list records', (ask) => ask(sql.list, [kind]));
      return rows.map(([key, text, revision]) => ({
        key: String(key),
        value: JSON.parse(String(text)) as unknown,
        revision: Number(revision),
      }));
    },
    async remove(kind, key) {
      await run('remove a record', (ask) => ask(sql.remove, [kind, key]));
      host.onWrite();
    },
  };
}

function createLogs(
  host: RecordHost,
  sql: ReturnType<typeof sqlOf>,
  run: <T>(doing: string, work: Parameters<Server['run']>[1]) => Promise<T>,
): Pick<RecordStore, 'append' | 'read' | 'trim'> {
  return {
    async append(kind, record) {
      const token = host.newToken();
      return run<number>('append a record', async (ask, isUnknown) => {
        const [told] = isUnknown ? await ask(sql.hasAppended, [kind, token]) : [];
        const [row] =
          told === undefined ? await ask(sql.append, [kind, token, recordText(record)]) : [told];
        return Number(row?.[0]);
      });
    },
    async read(kind, after, max) {
      const rows = await run<unknown[][]>('read records', (ask) =>
        ask(sql.read, [kind, after, max]),
      );
      return rows.map(([sequence, text]) => ({
        sequence: Number(sequence),
        record: JSON.parse(String(text)) as unknown,
      }));
    },
    async trim(kind, upTo) {
      await run('trim records', (ask) => ask(sql.trim, [kind, upTo]));
    },
  };
}

function sqlOf({ table }: Names) {
  const { log_heads: heads, logs, maps } = table;
  const put = `INSERT INTO ${maps} AS m (kind, key, value, token, revision)
  VALUES ($1, $2, $3, $4, 1)`;
  return {
    // The head is locked until the commit: sequences come into sight in their order.
    append: `WITH head AS (
  INSERT INTO ${heads} AS h (kind, last) VALUES ($1, 1)
  ON CONFLICT (kind) DO UPDATE SET last = h.last + 1 RETURNING last
)
INSERT INTO ${logs} (kind, sequence, token, record) SELECT $1, last, $2, $3 FROM head
RETURNING sequence`,
    hasAppended: `SELECT sequence FROM (
  SELECT sequence, token FROM ${logs} WHERE kind = $1 ORDER BY sequence DESC LIMIT 1000
) z WHERE token = $2`,
    read: `SELECT sequence, record FROM ${logs} WHERE kind = $1 AND sequence > $2::float8
  ORDER BY sequence LIMIT $3`,
    trim: `DELETE FROM ${logs} WHERE kind = $1 AND sequence <= $2::float8`,
    put: `${put} ON CONFLICT (kind, key) DO UPDATE
  SET value = excluded.value, token = excluded.token, revision = m.revision + 1
  RETURNING revision`,
    putNew: `${put} ON CONFLICT (kind, key) DO NOTHING RETURNING revision`,
    putOver: `UPDATE ${maps} SET value = $3, token = $4, revision = revision + 1
  WHERE kind = $1 AND key = $2 AND revision = $5 RETURNING revision`,
    hasPut: `SELECT 1 FROM ${maps} WHERE kind = $1 AND key = $2 AND token = $3`,
    get: `SELECT value, revision FROM ${maps} WHERE kind = $1 AND key = $2`,
    list: `SELECT key, value, revision FROM ${maps} WHERE kind = $1 ORDER BY key`,
    remove: `DELETE FROM ${maps} WHERE kind = $1 AND key = $2`,
  };
}
