/**
 * ids — message ids from the command line or, with `-`, from stdin: one per line, or JSON lines
 * with an `id`, as `respool list --json` prints them.
 *
 * A wrong id among the arguments is wrong usage, found before anything is done. By the time a wrong
 * line of stdin is read, others may be done: it is named and left out, and the rest goes on.
 */

import { StringDecoder } from 'node:string_decoder';
import { textOf } from '../core/errors.ts';
import { checkId } from '../core/limits.ts';
import { checkTyped } from './id-prefix.ts';
import type { Io } from './ui/io.ts';
import { usageOf } from './options.ts';

/** Ids that are handed on together. */
export interface IdBatch {
  /** At most 500. */
  readonly ids: readonly string[];
  /** The lines among them that hold no id. */
  readonly bad: readonly BadLine[];
}

/** A line of stdin that holds no id. */
export interface BadLine {
  /** From 1. */
  readonly line: number;
  readonly why: string;
}

/** Ids, and lines without one, that are handed on at once, at the most. */
const BATCH_MAX = 500;
/** The longest line of stdin that is read. */
const LINE_MAX_CHARS = 1_048_576;

/** Makes whole ids of those that were typed. */
export type MakeWhole = (typed: readonly string[]) => Promise<readonly string[]>;

/**
 * The ids in batches, as they come; ids of the command line are all checked, and made whole, before
 * the first.
 */
export async function* idBatches(
  args: readonly string[],
  io: Io,
  makeWhole: MakeWhole,
): AsyncGenerator<IdBatch> {
  const typed = args
    .filter((arg) => arg !== '-')
    .map((arg) => usageOf(() => checkTyped(arg), ['message.invalid']));
  const fromArgs: string[] = [];
  for (let from = 0; from < typed.length; from += BATCH_MAX) {
    fromArgs.push(...(await makeWhole(typed.slice(from, from + BATCH_MAX))));
  }
  for (let from = 0; from < fromArgs.length; from += BATCH_MAX) {
    yield { ids: fromArgs.slice(from, from + BATCH_MAX), bad: [] };
  }
  if (args.includes('-')) yield* stdinBatches(io);
}

async function* stdinBatches({ stdin }: Io): AsyncGenerator<IdBatch> {
  let ids: string[] = [];
  let bad: BadLine[] = [];
  let line = 0;
  for await (const text of linesOf(stdin)) {
    line += 1;
    try {
      const id = idOfLine(text);
      if (id !== undefined) ids.push(id);
    } catch (error) {
      bad.push({ line, why: `cannot use line ${line} of stdin: ${textOf(error)}` });
    }
    if (ids.length + bad.length < BATCH_MAX) continue;
    yield { ids, bad };
    ids = [];
    bad = [];
  }
  if (ids.length + bad.length > 0) yield { ids, bad };
}

function idOfLine(line: string | undefined): string | undefined {
  if (line === undefined) throw new Error(`it is longer than ${LINE_MAX_CHARS} characters`);
  const text = line.trim();
  if (text === '') return undefined;
  return checkId(text.startsWith('{') ? idOfJson(text) : text);
}

function idOfJson(text: string): unknown {
  let value: { id?: unknown };
  try {
    value = JSON.parse(text) as { id?: unknown };
  } catch {
    throw new Error('it is broken JSON');
  }
  if (value.id === undefined) throw new Error('its JSON has no "id"');
  return value.id;
}

/** The lines; undefined for one that is too long to be kept. */
async function* linesOf(stdin: AsyncIterable<unknown>): AsyncGenerator<string | undefined> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  let isTooLong = false;
  for await (const piece of stdin) {
    rest += typeof piece === 'string' ? piece : decoder.write(piece as Buffer);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      yield isTooLong || line.length > LINE_MAX_CHARS ? undefined : line;
      isTooLong = false;
    }
    if (rest.length <= LINE_MAX_CHARS) continue;
    isTooLong = true;
    rest = '';
  }
  yield isTooLong ? undefined : rest + decoder.end();
}
