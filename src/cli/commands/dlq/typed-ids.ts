/**
 * typed-ids — what people type: ids of letters, and the number of letters that will be gone; and
 * audit lines with such ids, as many lines as they need.
 */

import { COUNT_RANGE } from '../../options.ts';
import { createInterface } from 'node:readline';
import { show } from '../../../core/errors.ts';
import { numberText } from '../../../observe/logs/safe-text.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import { CommandError } from '../../exit-codes.ts';
import { wholeLetterIds } from '../../id-prefix.ts';
import type { CommandContext } from '../../spec.ts';

/** Ids of one call. */
const IDS_MAX = 10_000;

/** Returns when the count was typed, or given as `--count`; otherwise throws `not.confirmed`. */
export async function typeCount(
  { io, options }: Pick<CommandContext, 'io' | 'options'>,
  count: number,
  what: string,
): Promise<void> {
  const given = options.number('count', COUNT_RANGE);
  if (given !== undefined) {
    if (given === count) return;
    throw refused(`--count says ${given}, and there are ${numberText(count)}`);
  }
  const question = `type ${numberText(count)} to ${what}:`;
  if (!io.isTTY('stdin') || !io.isTTY('stderr')) {
    throw new CommandError(
      'not.confirmed',
      `cannot ask "${question}": this is not a terminal; ` +
        `add --count ${numberText(count)} to do it, --dry-run to look`,
    );
  }
  io.stderr.write(`${question} `);
  const answer = await lineOf(io);
  if (answer.trim() === String(count)) return;
  throw refused('another number was typed');
}

function refused(why: string): CommandError {
  return new CommandError('not.confirmed', `${why}; nothing was done`);
}

/** The first line of stdin; '' where it ends without one. */
async function lineOf(io: CommandContext['io']): Promise<string> {
  for await (const line of linesOf(io)) return line;
  return '';
}

async function* linesOf({ stdin }: CommandContext['io']): AsyncGenerator<string> {
  const lines = createInterface({ input: stdin, terminal: false });
  try {
    for await (const line of lines) yield line;
  } finally {
    lines.close();
  }
}

/** The ids that were given; those of the spool's messages also by their beginning. */
export async function spoolIdsOf(context: CommandContext): Promise<readonly string[]> {
  const { args, out } = context;
  const typed = args.filter((arg) => arg !== '-');
  const others = await typedIds({ ...context, args: args.filter((arg) => arg === '-') });
  if (typed.length === 0) return others;
  const { operator } = await context.session();
  const whole = await wholeLetterIds(typed, { operator, out, isActing: true });
  return [...new Set([...whole, ...others])];
}

/**
 * The ids that were given, with `-` those of stdin too: one per line, or lines of JSON with an
 * `id`. An id of a broker may be any text, so what is no id of a spool is taken as well.
 */
export async function typedIds({
  args,
  io,
}: Pick<CommandContext, 'args' | 'io'>): Promise<readonly string[]> {
  const ids = new Set(args.filter((arg) => arg !== '-'));
  if (args.includes('-')) {
    for await (const line of linesOf(io)) {
      const id = idIn(line.trim());
      if (id !== '') ids.add(id);
      if (ids.size > IDS_MAX) break;
    }
  }
  if (ids.size <= IDS_MAX) return [...ids];
  throw new CommandError('usage.invalid', `give at most ${IDS_MAX} ids, or a filter`);
}

function idIn(line: string): string {
  if (!line.startsWith('{')) return line;
  try {
    const { id } = JSON.parse(line) as { readonly id?: unknown };
    if (typeof id === 'string') return id;
  } catch {
    // Refused below, like a line without an id.
  }
  throw new CommandError('usage.invalid', `cannot use ${show(line)} of stdin: it has no "id"`);
}

// What is about to be done to letters that were named one by one, on the audit record:
// in as many lines as it takes, for a store or a service takes no line of any length.

/** Ids in one line; with the longest ones it has about 256 KiB. */
const AUDIT_IDS_MAX = 1_000;

/** Writes the lines; durable when it resolves. */
export async function recordWithIds(
  operator: Pick<Operator, 'recordAction'>,
  action: string,
  { ids, ...details }: Readonly<Record<string, unknown>> & { readonly ids?: readonly string[] },
): Promise<void> {
  if (ids === undefined) return operator.recordAction(action, details);
  const parts = Math.max(Math.ceil(ids.length / AUDIT_IDS_MAX), 1);
  for (let part = 0; part < parts; part += 1) {
    const some = ids.slice(part * AUDIT_IDS_MAX, (part + 1) * AUDIT_IDS_MAX);
    const place = parts === 1 ? {} : { part: part + 1, parts };
    await operator.recordAction(action, { ...details, ids: some, ...place });
  }
}
