/**
 * ids — message ids from the command line or, with `-`, from stdin: one per line, or JSON lines
 * with an `id`, as `respool list --json` prints them.
 */

import { StringDecoder } from 'node:string_decoder';
import { checkId } from '../core/limits.ts';
import { CommandError } from './exit-codes.ts';
import type { Io } from './io.ts';
import { usageOf } from './options.ts';

/** Ids that are handed on at once, at the most. */
const BATCH_MAX = 500;
/** The longest line of stdin that is read. */
const LINE_MAX_CHARS = 1_048_576;

/** The ids in batches, as they come; ids of the command line are all checked before the first. */
export async function* idBatches(args: readonly string[], io: Io): AsyncGenerator<string[]> {
  const fromArgs = args.filter((arg) => arg !== '-').map((arg) => checkedId(arg));
  let batch: string[] = [];
  for (const id of fromArgs) {
    batch.push(id);
    if (batch.length === BATCH_MAX) {
      yield batch;
      batch = [];
    }
  }
  if (!args.includes('-')) {
    if (batch.length > 0) yield batch;
    return;
  }
  for await (const line of linesOf(io.stdin)) {
    const id = idOfLine(line);
    if (id === undefined) continue;
    batch.push(id);
    if (batch.length === BATCH_MAX) {
      yield batch;
      batch = [];
    }
  }
  if (batch.length > 0) yield batch;
}

function idOfLine(line: string): string | undefined {
  const text = line.trim();
  if (text === '') return undefined;
  return checkedId(text.startsWith('{') ? idOfJson(text) : text);
}

function idOfJson(text: string): unknown {
  try {
    return (JSON.parse(text) as { id?: unknown }).id;
  } catch {
    throw new CommandError('usage.invalid', 'cannot read ids from stdin: a line is broken JSON');
  }
}

function checkedId(id: unknown): string {
  return usageOf(() => checkId(id), ['message.invalid']);
}

async function* linesOf(stdin: AsyncIterable<unknown>): AsyncGenerator<string> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const piece of stdin) {
    rest += typeof piece === 'string' ? piece : decoder.write(piece as Buffer);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_MAX_CHARS) {
      throw new CommandError(
        'usage.invalid',
        `cannot read ids from stdin: a line is longer than ${LINE_MAX_CHARS} characters`,
      );
    }
    yield* lines;
  }
  yield rest + decoder.end();
}
