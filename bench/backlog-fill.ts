/**
 * backlog-fill — a large backlog in seconds: one message, written by our store, copied within the file.
 */

import Database from 'better-sqlite3';

/** Makes `count` messages of the one in the file; ids and due times are its own plus a number. */
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
    const { seq, slot, flow } = database.prepare('SELECT seq, slot, flow FROM entries').get() as {
      seq: number;
      slot: number;
      flow: number;
    };
    database.pragma('synchronous = OFF');
    database.transaction(() => {
      if (count <= 1) return;
      database
        .prepare(
          `${numbers} INSERT INTO entries (seq, ${names.join(', ')})
          SELECT ? + n.value, ${values.join(', ')} FROM n, entries e WHERE e.seq = ?`,
        )
        .run(count - 1, seq, seq);
      database
        .prepare(
          `${numbers} INSERT INTO contents (seq, envelope, body)
          SELECT ? + n.value, json_set(c.envelope, '$.id', json_extract(c.envelope, '$.id') ||
          '-' || n.value), c.body FROM n, contents c WHERE c.seq = ?`,
        )
        .run(count - 1, seq, seq);
      database.prepare(`UPDATE flows SET n${slot} = ? WHERE flow = ?`).run(count, flow);
    })();
    database.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    database.close();
  }
}
