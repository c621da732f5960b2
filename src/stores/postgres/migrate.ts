/**
 * migrate — brings the tables up to date, or refuses those that are newer or not allowed to change.
 *
 * Two openers may race: a lock that ends with its transaction lets one of them work, and the other
 * finds it done. pgbouncer-safe, as everything here.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Names } from './names.ts';
import { LOCK_WAIT, migrationSql, type Step, STEPS } from './schema.ts';
import type { Ask } from './connection.ts';
import { SCHEMA_BEGIN_SQL } from './transaction.ts';

/** What a migration goes by; others than the real ones are for tests. */
interface MigrationParts {
  readonly steps?: readonly Step[];
  /** How long to wait for a lock, as PostgreSQL reads it. */
  readonly lockWait?: string;
}

export async function migrate(
  ask: Ask,
  names: Names,
  mayChange: boolean,
  { steps = STEPS, lockWait = LOCK_WAIT }: MigrationParts = {},
): Promise<void> {
  const version = await versionOf(ask, names, steps);
  if (version === steps.length) return;
  if (!mayChange) {
    const from = version === 0 ? '' : `{ from: ${version} }`;
    throw new RespoolError(
      'store.version',
      `cannot open schema "${names.schema}": its tables are of version ${version}, needed is ` +
        `${steps.length}, and "migrate" is false; run the SQL of postgresSchema(${from})`,
    );
  }
  await ask(SCHEMA_BEGIN_SQL);
  await ask("SELECT set_config('lock_timeout', $1, true)", [lockWait]);
  await ask('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [names.lockKey]);
  await makeSchema(ask, names);
  // Asked again: another opener may have been first.
  const present = await versionOf(ask, names, steps);
  if (present < steps.length) await ask(migrationSql(names, present, steps));
  await ask('COMMIT');
}

/** Not "if not exists": that needs the right to create even where nothing is to be done. */
async function makeSchema(ask: Ask, names: Names): Promise<void> {
  const found = await ask('SELECT 1 FROM pg_namespace WHERE nspname = $1', [names.schema]);
  if (found.length === 0) await ask(`CREATE SCHEMA ${names.quotedSchema}`);
}

async function versionOf(ask: Ask, names: Names, steps: readonly Step[]): Promise<number> {
  const [[meta, entries] = []] = await ask(
    'SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL',
    [names.table.meta, names.table.entries],
  );
  if (meta !== true && entries !== true) return 0;
  const rows =
    meta === true && entries === true
      ? await ask(`SELECT value FROM ${names.table.meta} WHERE key = 'version'`)
      : [];
  const version = rows[0]?.[0];
  if (typeof version !== 'number') {
    throw new RespoolError(
      'config.invalid',
      `cannot open schema "${names.schema}": it has tables of something else under our names; ` +
        'choose another "schema" or "tables"',
    );
  }
  if (version <= steps.length) return version;
  throw new RespoolError(
    'store.version',
    `cannot open schema "${names.schema}": it was written by a newer Respool (format ${version}, ` +
      `this program knows up to ${steps.length}); use the newer Respool`,
  );
}
