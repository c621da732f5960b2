/** tables — the tables of an outbox: made, brought up to date, or printed as SQL. */

import { usageOf } from '../../options.ts';
import type { CommandContext } from '../../spec.ts';
import { openOutbox, placeText } from './choose.ts';

/** More than any program knows: which versions there are, the outbox says. */
const VERSION_MAX = 1_000;

/** Makes the tables, under a lock; where they are up to date nothing is done. */
export async function makeTables(context: CommandContext): Promise<undefined> {
  const { out } = context;
  const { outbox, info } = await openOutbox(context, { file: 'make' });
  await outbox.migrate();
  if (out.json) await out.object({ ...info, ready: true });
  else await out.line(`the outbox is ready in ${placeText(info)}`);
  return undefined;
}

/** Prints what makeTables would run in an empty database, or on tables of a version. */
export async function printSql(context: CommandContext): Promise<undefined> {
  const { options, out } = context;
  const from = options.number('from', { min: 0, max: VERSION_MAX }) ?? 0;
  const { outbox } = await openOutbox(context, { file: 'none' });
  const sql = usageOf(() => outbox.sql({ from }));
  if (out.json) await out.object({ sql });
  else await out.write(sql.endsWith('\n') ? sql : `${sql}\n`);
  return undefined;
}
