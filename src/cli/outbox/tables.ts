/** tables — the tables of an outbox: made, brought up to date, or printed as SQL. */

import type { CommandContext } from '../spec.ts';
import { openOutbox } from './desk.ts';
import { placeText } from './relay-life.ts';

/** Makes the tables, under a lock; where they are up to date nothing is done. */
export async function makeTables(context: CommandContext): Promise<undefined> {
  const { out } = context;
  const { outbox, info } = await openOutbox(context, { file: 'make' });
  await outbox.migrate();
  if (out.json) await out.object({ ...info, ready: true });
  else await out.line(`the outbox is ready in ${placeText(info)}`);
  return undefined;
}

/** Prints what makeTables would run in an empty database. */
export async function printSql(context: CommandContext): Promise<undefined> {
  const { out } = context;
  const { outbox } = await openOutbox(context, { file: 'none' });
  const sql = outbox.sql();
  if (out.json) await out.object({ sql });
  else await out.write(sql.endsWith('\n') ? sql : `${sql}\n`);
  return undefined;
}
