/** diagnose-tables — our tables: which version, how many dead rows, whether they are vacuumed. */

import { danger, fine, type StoreFinding, worthKnowing } from '../shared/finding.ts';
import type { Names } from './names.ts';
import { SCHEMA_VERSION } from './schema.ts';
import type { Ask } from './connection.ts';

/** Tables whose rows come and go. */
const BUSY = ['entries', 'contents', 'bodies', 'chunks'] as const;
/** Fewer dead rows than this are nobody's trouble. */
const DEAD_MIN = 20_000;
/** More dead rows than this for each living one are. */
const DEAD_PER_LIVE = 2;

/** What was found of the tables. */
export interface TablesFound {
  readonly isThere: boolean;
  readonly findings: readonly StoreFinding[];
}

/** Looks at the tables of a store, which need not be there. */
export async function examineTables(ask: Ask, names: Names): Promise<TablesFound> {
  const [[isThere, autovacuum] = []] = await ask(
    "SELECT to_regclass($1) IS NOT NULL, current_setting('autovacuum')",
    [names.table.meta],
  );
  const vacuum = autovacuum === 'on' ? [] : [noAutovacuum()];
  if (isThere !== true) {
    const text = `no tables in schema "${names.schema}" yet; they are made when a store opens`;
    return { isThere: false, findings: [worthKnowing('tables', text), ...vacuum] };
  }
  const tables = BUSY.map((name) => names.table[name]);
  const rows = await ask(
    `SELECT t.name, coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0),
  coalesce('autovacuum_enabled=false' = ANY(c.reloptions)
    OR 'autovacuum_enabled=off' = ANY(c.reloptions), false)
FROM unnest($1::text[]) WITH ORDINALITY AS t(name, at)
JOIN pg_class c ON c.oid = to_regclass(t.name)
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
ORDER BY t.at`,
    [tables],
  );
  const findings = [
    await version(ask, names),
    ...vacuum,
    ...rows.flatMap(([name, , , isOff]) => (isOff === true ? [switchedOff(String(name))] : [])),
    deadRows(rows),
  ];
  return { isThere: true, findings };
}

async function version(ask: Ask, names: Names): Promise<StoreFinding> {
  const [[found] = []] = await ask(`SELECT value FROM ${names.table.meta} WHERE key = 'version'`);
  const text = `tables of version ${String(found)} in schema "${names.schema}"`;
  if (found === SCHEMA_VERSION) return fine('tables', text);
  if (Number(found) < SCHEMA_VERSION) {
    const todo = 'they are brought up to date when a store opens; take a backup before';
    return worthKnowing('tables', `${text}, this program writes ${SCHEMA_VERSION}`, todo);
  }
  return danger('tables', `${text}, which is newer than this program`, 'use the newer Respool');
}

function noAutovacuum(): StoreFinding {
  return danger(
    'autovacuum',
    'autovacuum is off: rows of delivered messages are never cleaned up, and claims get slower',
    'ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()',
  );
}

function switchedOff(table: string): StoreFinding {
  const todo = `ALTER TABLE ${table} RESET (autovacuum_enabled)`;
  return danger('autovacuum', `autovacuum is switched off for ${table}`, todo);
}

function deadRows(rows: readonly (readonly unknown[])[]): StoreFinding {
  const id = 'dead-rows';
  const dead = rows.reduce((sum, row) => sum + Number(row[2]), 0);
  const live = rows.reduce((sum, row) => sum + Number(row[1]), 0);
  const text = `${count(dead)} dead rows beside ${count(live)} living ones`;
  if (dead < DEAD_MIN || dead < live * DEAD_PER_LIVE) return fine(id, text);
  const todo =
    'see whether a transaction is open for long, below; VACUUM (ANALYZE) the tables if none is';
  return worthKnowing(id, text, todo);
}

function count(rows: number): string {
  return rows.toLocaleString('en');
}
