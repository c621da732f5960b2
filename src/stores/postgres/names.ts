/**
 * names — the identifiers of a store: checked once, always quoted, always with their schema.
 *
 * Nothing relies on `search_path`: another role, or a pool between us and the server, may have set
 * it to anything.
 */

import { RespoolError, show } from '../../core/errors.ts';

/** What names of schemas and beginnings of table names look like. */
const NAME = /^[a-z_][a-z0-9_]{0,62}$/;
/** Leaves room for the longest name behind it: PostgreSQL cuts what is longer than 63. */
const PREFIX_MAX_CHARS = 40;

const TABLES = [
  'meta',
  'entries',
  'contents',
  'receipts',
  'quarantine',
  'log_heads',
  'logs',
  'maps',
  'bodies',
  'chunks',
  'crashes',
  'sent',
  'sent_default',
] as const;

/** A table, by what it holds. */
export type Table = (typeof TABLES)[number];

/** Where the tables of a store are, ready to stand in SQL. */
export interface Names {
  readonly schema: string;
  readonly prefix: string;
  readonly quotedSchema: string;
  /** `"schema"."prefix_table"`. */
  readonly table: Readonly<Record<Table, string>>;
  readonly sequence: string;
  /** Counts what has to do with order keys; untouched where there never was one. */
  readonly turns: string;
  /** `"prefix_name"`, for an index, which takes its schema from its table. */
  readonly index: (name: string) => string;
  /** The channel of NOTIFY; not quoted. */
  readonly channel: string;
  /** The key of the lock around migrations. */
  readonly lockKey: string;
}

export function namesOf(schema: string, prefix: string): Names {
  checkName('schema', schema, 63);
  if (prefix !== '') checkName('tables', prefix, PREFIX_MAX_CHARS);
  const inSchema = (name: string): string => `${quoted(schema)}.${quoted(prefix + name)}`;
  return {
    schema,
    prefix,
    quotedSchema: quoted(schema),
    table: Object.fromEntries(TABLES.map((name) => [name, inSchema(name)])) as Names['table'],
    sequence: inSchema('entries_seq'),
    turns: inSchema('turns'),
    index: (name) => quoted(prefix + name),
    // A channel is a name too, and must not be longer than one.
    channel: `respool_${fold(`${schema}.${prefix}`)}`,
    lockKey: `respool:${schema}.${prefix}`,
  };
}

function checkName(what: string, name: unknown, maxChars: number): void {
  if (typeof name === 'string' && NAME.test(name) && name.length <= maxChars) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(name)} as "${what}" of the PostgreSQL store: allowed are 1 to ${maxChars} ` +
      'of a-z 0-9 _, not starting with a digit',
  );
}

/** Quotes even what was checked: a name may be a word of SQL, such as `user`. */
function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** A short number for a text, the same everywhere (FNV-1a). */
function fold(text: string): string {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, '0');
}
