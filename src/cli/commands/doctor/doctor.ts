/** doctor — checks everything a spool depends on, and says what is unsafe and how to fix it. */

import type { DoctorFinding, FindingLevel } from './finding.ts';
import { EXIT } from '../../exit-codes.ts';
import type { Out, Style } from '../../ui/output.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';

/** The twin of commands/rabbit/doctor.ts, which has other levels. */
const STYLES: Readonly<Record<FindingLevel, Style>> = {
  ok: 'green',
  note: 'yellow',
  unsafe: 'red',
};
const LEVEL_COLUMNS = 8;

/** `respool doctor` */
export const doctorCommand: CommandSpec = {
  name: 'doctor',
  summary: 'report what is unsafe, and how to fix it',
  group: 'Maintain',
  description:
    'Checks versions, the configuration, stores and their disks, the clock, the service and ' +
    'the messages. Changes nothing, and creates no store; in an S3 bucket it briefly stores ' +
    'a probe of one byte, to see what is allowed. Each line is ok, note or unsafe; with ' +
    '--json each has a stable id, and the last line has the counts. Exits with 1 when ' +
    'something is unsafe. With --sql it prints the statements of the PostgreSQL store ' +
    'instead, each with a title and its parameters as psql variables; it does not connect ' +
    'to a server.',
  options: [{ flags: '--sql', description: 'print the SQL of the PostgreSQL store instead' }],
  examples: [
    { line: 'respool doctor', does: 'the whole report' },
    { line: "respool doctor --json | jq -r 'select(.todo) | .text'", does: 'what needs fixing' },
    { line: 'respool doctor --sql > respool.sql', does: 'the statements, to paste into psql' },
  ],
  role: 'read',
  run: async (context) => {
    const { out, options } = context;
    if (options.flag('sql')) {
      await printSql(context);
      return EXIT.done;
    }
    const { examine } = await import('./examine.ts');
    const counts: Record<FindingLevel, number> = { ok: 0, note: 0, unsafe: 0 };
    for await (const finding of examine(context)) {
      counts[finding.level] += 1;
      if (out.json) await out.object(finding);
      else await tell(out, finding);
    }
    const notes = `${counts.note} ${counts.note === 1 ? 'note' : 'notes'}`;
    const text = `${counts.ok} ok, ${notes}, ${counts.unsafe} unsafe`;
    // A level of its own, so that scripts that count the levels of findings go on as before.
    if (out.json) await out.object({ id: 'summary', level: 'summary', text, ...counts });
    else {
      await out.line('');
      await out.line(text);
    }
    return counts.unsafe > 0 ? EXIT.refused : EXIT.done;
  },
};

/** The statements of the PostgreSQL store, with schema and table prefix of the configured one. */
async function printSql(context: CommandContext): Promise<void> {
  const { out } = context;
  // Without the routes: their secrets are in the service's environment only.
  const { config, folder } = await context.config({ routes: false });
  const { storesOf } = await import('../../../config/open/stores.ts');
  const { INDEX_ONLY_SQL, postgresStatements, statementText } = await import(
    '../../../stores/postgres/statements.ts'
  );
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

async function tell(out: Out, { level, text, todo }: DoctorFinding): Promise<void> {
  const word = out.style(STYLES[level], level.padEnd(LEVEL_COLUMNS));
  await out.line(`${word}${safe(text)}`);
  if (todo !== undefined) await out.line(`${' '.repeat(LEVEL_COLUMNS)}→ ${safe(todo)}`);
}
