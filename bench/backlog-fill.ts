/**
 * backlog-fill — a large backlog in seconds: a few messages, written by our store, copied within the
 * SQLite file or the PostgreSQL server.
 */

import Database from 'better-sqlite3';
import { Client } from 'pg';

/**
 * Copies the messages in the file until there are `count`; ids and due times are their own plus a
 * number. `count` is a multiple of how many there are.
 */
export function multiply(file: string, count: number): void {
  const database = new Database(file);
  try {
    const names = (database.pragma('table_info(entries)') as { name: string }[])
      .map(({ name }) => name)
      .filter((name) => name !== 'seq');
    const values = names.map((name) => {
      if (name === 'id') return "e.id || '-' || n.value";
      return name === 'due_at' ? 'e.due_at + (n.value % 1000)' : `e.${name}`;
    });
    const numbers =
      'WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?)';
    const seeds = database.prepare('SELECT seq, slot, flow FROM entries').all() as {
      seq: number;
      slot: number;
      flow: number;
    }[];
    const each = count / seeds.length;
    if (each <= 1) return;
    const last = Math.max(...seeds.map(({ seq }) => seq));
    database.pragma('synchronous = OFF');
    database.transaction(() => {
      // Content first: both selects must see the messages that our store wrote, and no copies.
      database
        .prepare(
          `${numbers} INSERT INTO contents (seq, envelope, body)
          SELECT c.seq + ${last} * n.value, json_set(c.envelope, '$.id',
            json_extract(c.envelope, '$.id') || '-' || n.value), c.body
          FROM n, contents c WHERE c.seq <= ${last}`,
        )
        .run(each - 1);
      database
        .prepare(
          `${numbers} INSERT INTO entries (seq, ${names.join(', ')})
          SELECT e.seq + ${last} * n.value, ${values.join(', ')}
          FROM n, entries e WHERE e.seq <= ${last}`,
        )
        .run(each - 1);
      for (const { slot, flow } of seeds) {
        database
          .prepare(`UPDATE flows SET n${slot} = n${slot} + ? WHERE flow = ?`)
          .run(each - 1, flow);
      }
    })();
    database.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    database.close();
  }
}

/** The same for the messages in a schema of PostgreSQL. */
export async function multiplyRows(url: string, schema: string, count: number): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string }>(
      `SELECT column_name AS name FROM information_schema.columns
      WHERE table_schema = $1 AND table_name = 'entries' ORDER BY ordinal_position`,
      [schema],
    );
    const names = rows.map(({ name }) => name);
    const {
      rows: [found],
    } = await client.query<{ seeds: number; last: number }>(
      `SELECT count(*)::int AS seeds, max(seq)::int AS last FROM "${schema}".entries`,
    );
    const { seeds, last } = found ?? { seeds: 1, last: 1 };
    const values = names.map((name) => {
      if (name === 'seq') return `e.seq + ${last} * n`;
      if (name === 'id') return `e.id || '-' || n`;
      return name === 'due_at' ? 'e.due_at + n % 1000' : `e.${name}`;
    });
    const numbers = `generate_series(1, ${count / seeds - 1}) AS n`;
    await client.query('SET synchronous_commit = off');
    await client.query(`INSERT INTO "${schema}".contents (seq, envelope, body)
      SELECT k.seq + ${last} * n,
        replace(k.envelope, '"' || e.id || '"', '"' || e.id || '-' || n || '"'), k.body
      FROM "${schema}".contents k JOIN "${schema}".entries e ON e.seq = k.seq, ${numbers}`);
    await client.query(`INSERT INTO "${schema}".entries (${names.join(', ')})
      SELECT ${values.join(', ')} FROM "${schema}".entries e, ${numbers}`);
    await client.query(`SELECT setval('"${schema}".entries_seq', max(seq))
      FROM "${schema}".entries`);
    await client.query('CHECKPOINT');
  } finally {
    await client.end();
  }
}
