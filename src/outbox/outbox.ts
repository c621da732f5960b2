/**
 * outbox — `createOutbox`: makes an outbox in PostgreSQL or in a file of better-sqlite3, depending
 * on its options.
 */

import { RespoolError } from '../core/errors.ts';
import type { PgPool } from '../stores/postgres/options.ts';
import type { SqliteDatabase } from '../stores/shared/client.ts';
import type { DatabaseOutboxOptions, PoolOutboxOptions, UrlOutboxOptions } from './options.ts';
import { Outbox } from './postgres-outbox.ts';
import { describeType } from './types.ts';
import { SqliteOutbox } from './sqlite-outbox.ts';
import type { ClientOf } from './transaction.ts';

/** Everything that createOutbox takes. */
export type OutboxOptions = PoolOutboxOptions | UrlOutboxOptions | DatabaseOutboxOptions;

/**
 * Makes an outbox: messages that are emitted in your own transaction, and sent on by a relay when
 * it is committed. Nothing is opened yet. On better-sqlite3, emits are synchronous.
 */
export function createOutbox<Database extends SqliteDatabase>(
  options: DatabaseOutboxOptions<Database>,
): SqliteOutbox<Database>;
export function createOutbox<Pool extends PgPool>(
  options: PoolOutboxOptions<Pool>,
): Outbox<ClientOf<Pool>>;
export function createOutbox(options: UrlOutboxOptions): Outbox;
export function createOutbox(options: OutboxOptions): unknown {
  if (typeof options !== 'object' || options === null) {
    throw new RespoolError(
      'config.invalid',
      `cannot make an outbox with ${describeType(options)}: allowed is { pool }, { url } or ` +
        '{ database }',
    );
  }
  const given = ['pool', 'url', 'database'].filter(
    (name) => Reflect.get(options, name) !== undefined,
  );
  if (given.length !== 1) {
    const found = given.length === 0 ? 'none was given' : `given were ${given.join(' and ')}`;
    throw new RespoolError(
      'config.invalid',
      'cannot make an outbox: it needs one of "pool" (your own pg.Pool), "url" of a PostgreSQL ' +
        `database, or "database" of better-sqlite3; ${found}`,
    );
  }
  const url: unknown = Reflect.get(options, 'url');
  if (typeof url === 'string' && /^(?:sqlite|file):/i.test(url)) {
    throw new RespoolError(
      'config.invalid',
      'cannot make an outbox in SQLite by "url": emits use your own handle; pass it as ' +
        '"database", as in createOutbox({ database: new Database(file) }) of better-sqlite3',
    );
  }
  return given[0] === 'database'
    ? new SqliteOutbox(options as DatabaseOutboxOptions)
    : new Outbox(options as PoolOutboxOptions | UrlOutboxOptions);
}
