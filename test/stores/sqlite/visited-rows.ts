/**
 * visited-rows — counts the rows of `entries`, `flows` and `due_bounds` that SQLite visits, whether
 * or not a statement hands them out, and the flows that it looks up in an index: each condition on
 * one of these tables begins with a function that counts. SQLite asks it for every row that its
 * index brings up.
 */

import Sqlite from 'better-sqlite3';

/** How many rows were visited since it was set to 0. */
export interface VisitedRows {
  count: number;
}

const TABLES = '(?:outbox_)?(?:entries|flows)';
const HAS_WHERE = new RegExp(
  `((?:FROM|UPDATE) ${TABLES}( [eh])?(?: INDEXED BY \\w+)?(?:\\s+SET [^;]*?)?\\s+WHERE )`,
  'g',
);
const BOUNDS = /(FROM (?:outbox_)?due_bounds(?: INDEXED BY \w+)?\s+WHERE )/g;
/** A probe of an index for each number of a flow, also where it finds nothing. */
const PROBES = /FROM json_each\(\?\) f(?: WHERE|$)/g;
const NO_WHERE = new RegExp(`(FROM ${TABLES})(?= ORDER|$)`, 'g');

function counted(sql: string): string {
  return sql
    .replace(HAS_WHERE, (_, head: string, alias = '') => {
      const row = alias === '' ? 'rowid' : `${alias.trim()}.rowid`;
      return `${head}visited(${row}) AND `;
    })
    .replace(BOUNDS, '$1visited(flow) AND ')
    .replace(
      PROBES,
      (found) => `FROM json_each(?) f WHERE visited(f.value)${found.endsWith('E') ? ' AND' : ''}`,
    )
    .replace(NO_WHERE, '$1 WHERE visited(rowid)');
}

/** Counts in every database that is opened in this thread from now on, until it is called off. */
export function countVisitedRows(): { readonly rows: VisitedRows; readonly stop: () => void } {
  const rows: VisitedRows = { count: 0 };
  const { prototype } = Sqlite;
  const plain = Object.getOwnPropertyDescriptor(prototype, 'prepare');
  const prepare = plain?.value as (this: Sqlite.Database, sql: string) => Sqlite.Statement;
  const ready = new WeakSet<object>();
  function prepareCounted(this: Sqlite.Database, sql: string): Sqlite.Statement {
    if (!ready.has(this)) {
      ready.add(this);
      this.function('visited', (_row: unknown) => {
        rows.count += 1;
        return 1;
      });
    }
    return prepare.call(this, counted(sql));
  }
  Object.defineProperty(prototype, 'prepare', { ...plain, value: prepareCounted });
  return {
    rows,
    stop: () => {
      Object.defineProperty(prototype, 'prepare', { ...plain });
    },
  };
}
