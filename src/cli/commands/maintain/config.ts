/**
 * config — prints the effective configuration with the origin of each value, checks it, and
 * changes it.
 */

import type { ConfigLine } from '../../../config/describe.ts';
import { CommandError } from '../../exit-codes.ts';
import { jsonLine, safe } from '../../../observe/logs/safe-text.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { type Column, tableOf } from '../../ui/table.ts';

/** What can be set from the command line so far. */
const SETTABLE = ['store', 'entries', 'bodies', 'transforms'] as const;

const PASSWORD_NOTE =
  'The address contains a password, which is now in the file and in your shell history. ' +
  "Better: respool config set store 'postgres://app:${DB_PASSWORD}@host/db', and DB_PASSWORD in " +
  'the environment or in .env.';

const SHOW_DESCRIPTION =
  'Prints the effective values, with secrets hidden, and where each came from: a flag, the ' +
  'configuration file, the environment or a default, in this order of precedence.';

async function showConfig(context: CommandContext): Promise<undefined> {
  const { out } = context;
  const loaded = await context.config({ routes: true });
  const { describeConfig } = await import('../../../config/describe.ts');
  const lines = describeConfig(loaded);
  if (out.json) {
    for (const { key, value, from } of lines) await out.object({ id: key, value, from });
    return undefined;
  }
  out.note(loaded.file === undefined ? 'no configuration file' : `file: ${safe(loaded.file)}`);
  const columns: Column[] = [
    { head: 'key' },
    { head: 'value', isFlexible: true },
    { head: 'from', isFlexible: true },
  ];
  const shorten = shortFrom(loaded.file);
  await out.line(
    tableOf(
      out,
      columns,
      lines.map((line) => [safe(line.key), valueText(line), safe(shorten(line.from))]),
    ),
  );
  return undefined;
}

const show: CommandSpec = {
  name: 'show',
  summary: 'print the effective configuration (default)',
  group: 'Maintain',
  description: SHOW_DESCRIPTION,
  run: showConfig,
};

const check: CommandSpec = {
  name: 'check',
  summary: 'check the configuration',
  group: 'Maintain',
  description:
    'Reads and checks the configuration, opens nothing. Exits with 2 when it is invalid.',
  run: async (context) => {
    const { out } = context;
    const { file, warnings } = await context.config({ routes: true });
    if (out.json) await out.object({ ok: true, file: file ?? null, warnings });
    else await out.line(`ok: ${file === undefined ? 'no configuration file' : safe(file)}`);
    return undefined;
  },
};

const set: CommandSpec = {
  name: 'set',
  summary: 'change the store or the transforms',
  group: 'Maintain',
  description:
    'Changes one key of a JSON or YAML configuration file; comments stay. The result is ' +
    'checked before it is written. Messages are not moved: empty the old store first. ' +
    'Existing bodies do not change and stay readable; respool rekey re-encrypts them. ' +
    'Transforms are the name of a codec, or JSON in which each key is given as env:NAME or ' +
    'file:PATH.',
  arguments: [
    { name: '<key>', description: 'what to set', choices: SETTABLE },
    { name: '<value>', description: 'a place such as sqlite:./respool, or transforms' },
  ],
  examples: [
    { line: 'respool config set store file:./respool', does: 'entries and bodies as files' },
    { line: 'respool config set bodies file:./bodies', does: 'bodies apart from entries' },
    {
      line: "respool config set store 'postgres://app:${DB_PASSWORD}@db.example/app'",
      does: 'entries and bodies in PostgreSQL; the password stays in the environment',
    },
    { line: 'respool config set transforms zstd', does: 'new bodies are compressed' },
  ],
  run: async (context) => {
    const { args, io, out } = context;
    const [key = '', value = ''] = args;
    if (context.globals.store !== undefined) {
      throw new CommandError(
        'usage.invalid',
        `cannot use --store with config set: write respool config set ${key} VALUE`,
      );
    }
    // Not read with the rest: what is set may be what is wrong there.
    const { configFileOf } = await import('../../../config/load/load-config.ts');
    const file = await configFileOf({ cwd: io.cwd, env: io.env, file: context.globals.config });
    const { setConfig } = await import('../../../config/edit.ts');
    const { redactUrls } = await import('../../../core/redact.ts');
    const done = await setConfig(file, key, value, { cwd: io.cwd, env: io.env });
    const shown = redactUrls(value);
    if (out.json) await out.object({ id: key, value: shown, ...done });
    else await out.line(`${key} is ${safe(shown)} in ${safe(done.file)}`);
    if (shown !== value && !value.includes('${')) out.note(PASSWORD_NOTE);
    for (const removed of done.removed) out.note(`took out ${removed}: it says the same otherwise`);
    const old = key === 'transforms' ? 'as before' : 'with the old place';
    out.note(`A running service continues ${old} until it is restarted.`);
    return undefined;
  },
};

/** `respool config [show|check|set]` */
export const configCommand: CommandSpec = {
  name: 'config',
  summary: 'print, check or change the configuration',
  group: 'Maintain',
  description: SHOW_DESCRIPTION,
  examples: [
    { line: 'respool config', does: 'every value and where it came from' },
    { line: 'respool config check', does: 'ok, or what is wrong' },
  ],
  subcommands: [show, check, set],
  run: showConfig,
};

function valueText({ value }: ConfigLine): string {
  return safe(typeof value === 'string' ? value : jsonLine(value));
}

/** The file is named above the table; beside each value the word is enough. */
function shortFrom(file: string | undefined): (from: string) => string {
  return (from) => (file !== undefined && from === `file ${file}` ? 'file' : from);
}
