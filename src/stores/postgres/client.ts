/**
 * client — the part of node-postgres that Respool uses, and the only way to the package itself.
 *
 * Typed structurally: a pool of the user's own fits. The package is loaded when a store that was
 * given a URL is opened, never at import.
 */

import type { Socket } from 'node:net';
import { importPeer } from '../../system/peer.ts';

/** A statement as we send it: always unnamed, rows as arrays, with our own readers of values. */
export interface PgQuery {
  readonly text: string;
  readonly values?: unknown[];
  readonly rowMode: 'array';
  readonly types: PgTypes;
}

/** How values come out of rows. */
export interface PgTypes {
  getTypeParser(oid: number, format?: string): (value: string) => never;
}

/** What runs statements: a client, or a transaction of the user's. */
export interface PgQueryable {
  /** An answer for each statement, where the text has several. */
  query(query: PgQuery): Promise<PgAnswer | PgAnswer[]>;
}

/** What a statement gave. */
interface PgAnswer {
  readonly rows: unknown[][];
}

/** Of several statements in one, what the last of them gave. */
export function rowsOf(answer: PgAnswer | PgAnswer[]): unknown[][] {
  return (Array.isArray(answer) ? answer.at(-1) : answer)?.rows ?? [];
}

/** What says that it broke. */
export interface PgSpeaker {
  on(event: 'error', listener: (error: Error) => void): unknown;
}

/** A connection out of a pool. */
export interface PgClient extends PgQueryable {
  /** With an error the connection is closed instead of used again. */
  release(error?: Error | boolean): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'notice', listener: (notice: { readonly code?: string | undefined }) => void): unknown;
}

/** A pool of connections, as `new pg.Pool()` makes it. */
export interface PgPool {
  /** How many wait for a connection, where the pool can tell. */
  readonly waitingCount?: number;
  connect(): Promise<PgClient>;
  end(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'connect', listener: (client: PgSpeaker) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'connect', listener: (client: PgSpeaker) => void): unknown;
}

/** A connection of its own, for LISTEN. */
export interface PgListener extends PgQueryable {
  connect(): Promise<unknown>;
  end(): Promise<void>;
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown;
  on(
    event: 'notification',
    listener: (message: { readonly payload?: string | undefined }) => void,
  ): unknown;
}

/** How connections are opened. */
export interface PgConfig {
  readonly connectionString: string;
  readonly connectionTimeoutMillis: number;
  readonly keepAlive: boolean;
  readonly application_name: string;
  readonly max?: number;
  /** Makes the socket of a connection. */
  readonly stream: () => Socket;
}

/** The package, as far as we need it. */
interface PgPackage {
  readonly Pool: new (config: PgConfig) => PgPool;
  readonly Client: new (config: PgConfig) => PgListener;
}

export async function loadPg(): Promise<PgPackage> {
  const loaded = await importPeer('pg', 'the PostgreSQL store');
  const { default: pg = loaded } = loaded as { readonly default?: unknown };
  return pg as PgPackage;
}

/** Values as we want them, whatever parsers the program has set for its own queries. */
export const TYPES: PgTypes = {
  getTypeParser: (oid) => (READERS.get(oid) ?? asText) as (value: string) => never,
};

const asText = (value: string): string => value;

const READERS: ReadonlyMap<number, (value: string) => unknown> = new Map<
  number,
  (value: string) => unknown
>([
  [16, (value) => value === 't'],
  [17, readBytes],
  [20, Number],
  [21, Number],
  [23, Number],
  [701, Number],
]);

/** Both forms of `bytea_output`: hex, and the older one with escapes. */
export function readBytes(value: string): Uint8Array {
  if (value.startsWith('\\x')) return Buffer.from(value.slice(2), 'hex');
  const bytes: number[] = [];
  for (let at = 0; at < value.length; at += 1) {
    if (value[at] !== '\\') bytes.push(value.charCodeAt(at));
    else if (value[at + 1] === '\\') {
      bytes.push(0x5c);
      at += 1;
    } else {
      bytes.push(Number.parseInt(value.slice(at + 1, at + 4), 8));
      at += 3;
    }
  }
  return Uint8Array.from(bytes);
}
