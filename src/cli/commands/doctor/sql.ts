/** sql — `respool doctor --sql`: the statements of the PostgreSQL store, ready for psql. */

import { storesOf } from '../../../config/open/stores.ts';
import {
  INDEX_ONLY_SQL,
  postgresStatements,
  statementText,
} from '../../../stores/postgres/statements.ts';
import type { CommandContext } from '../../spec.ts';

/** With the schema and table prefix of the configured store, if that is on PostgreSQL. */
export async function printSql(context: CommandContext): Promise<void> {
  const { out } = context;
  // Without the routes: their secrets are in the service's environment only.
  const { config, folder } = await context.config({ routes: false });
  const { postgresTables: tables } = await storesOf(config, folder);
  const statements = await postgresStatements(tables);
  if (out.json) {
    for (const statement of statements) await out.object(statement);
    return;
  }
  if (tables === undefined) {
    out.note('the configured store is not on PostgreSQL: these are the tables of the defaults');
  }
  await out.line('-- Claims and looks for the next due time are sent in one message with');
  await out.line(`-- ${INDEX_ONLY_SQL}`);
  for (const statement of statements) await out.line(`\n${statementText(statement)}`.trimEnd());
}
