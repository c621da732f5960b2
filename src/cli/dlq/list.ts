/** list — dead letters as a table, one of them in full, and all of them as lines of JSON. */

import { open } from 'node:fs/promises';
import path from 'node:path';
import { exportLetter } from '../../control/letters/export.ts';
import { noteOf } from '../../control/letters/notes.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { CommandError, type ExitCode } from '../exit-codes.ts';
import { jsonLine, safe } from '../safe.ts';
import { pagedTable } from '../table.ts';
import { kindsOf } from './filter.ts';
import { type Found, openLook } from './look.ts';
import { deskIfAny, type LettersContext } from './places.ts';
import { foundObject, LETTER_COLUMNS, letterRow, letterView } from './view.ts';

const LIMIT_MAX = 1_000_000_000;
const SHOWN_DEFAULT = 100;
const PAGE_ROWS = 100;
/** Lines that are written to a file at once, in characters. */
const PIECE_CHARS = 262_144;
const ALL_KINDS = ['dead', 'parked', 'archived'] as const;

/** Prints letters as a table, or as objects. */
export async function list(context: LettersContext): Promise<ExitCode> {
  const { io, options, out } = context;
  const limit =
    options.number('limit', { min: 1, max: LIMIT_MAX }) ?? (out.json ? LIMIT_MAX : SHOWN_DEFAULT);
  const look = await openLook(context);
  const table = pagedTable(out, LETTER_COLUMNS);
  const now = io.clock.now();
  let rows: string[][] = [];
  let shown = 0;
  let isMore = false;
  for await (const found of look.letters()) {
    if (shown === limit) {
      isMore = true;
      break;
    }
    shown += 1;
    if (out.json) await out.object(foundObject(found));
    else rows.push(letterRow(found, now));
    if (rows.length < PAGE_ROWS) continue;
    await out.line(table(rows));
    rows = [];
  }
  if (rows.length > 0) await out.line(table(rows));
  if (out.json) return look.code;
  if (shown === 0) out.note('no letter fits');
  else if (isMore) out.note(`the first ${shown}; more with --limit, all with --json`);
  return look.code;
}

/** Prints the letters of one id in full. */
export async function showLetter(context: LettersContext): Promise<ExitCode> {
  const { args, io, out, options } = context;
  const [id = ''] = args;
  const isSpool = options.texts('queue').length === 0;
  const kinds = kindsOf(context) ?? (isSpool ? ALL_KINDS : undefined);
  const look = await openLook(context, { kinds });
  const desk = await deskIfAny(context);
  let count = 0;
  for await (const found of look.letters({ ids: [id] })) {
    const { group } = found.open.letter;
    const note = desk === undefined ? undefined : await noteOf(desk.control, group);
    if (out.json) {
      await out.object(
        await exportLetter(found.open, { category: found.category, note: note ?? null }),
      );
    } else {
      const text = await letterView(out, found, { now: io.clock.now(), note: note?.text });
      await out.line(count === 0 ? text : `\n${text}`);
    }
    count += 1;
  }
  if (count > 0) return look.code;
  const where = look.places.map(({ name }) => name).join(', ');
  throw new RespoolError(
    'message.unknown',
    `there is no letter ${show(id)} in ${where}; see: respool dlq list`,
  );
}

/** Writes letters with their bodies as lines of JSON. */
export async function exportLetters(context: LettersContext): Promise<ExitCode> {
  const { options, out } = context;
  const limit = options.number('limit', { min: 1, max: LIMIT_MAX }) ?? LIMIT_MAX;
  const file = options.filled('output');
  const look = await openLook(context);
  const lines = linesOf(look.letters(), limit);
  if (file === undefined) {
    for await (const line of lines) await out.write(line);
    return look.code;
  }
  const count = await writeLines(lines, path.resolve(context.io.cwd, file));
  if (out.json) await out.object({ exported: count, file });
  else await out.line(`exported ${count} to ${safe(file)}`);
  return look.code;
}

async function* linesOf(letters: AsyncGenerator<Found>, limit: number): AsyncGenerator<string> {
  let count = 0;
  for await (const { open: letter, category } of letters) {
    yield `${jsonLine(await exportLetter(letter, { category }))}\n`;
    count += 1;
    if (count === limit) return;
  }
}

/** Never over a file that is there: it may be the only copy of what was removed since. */
async function writeLines(lines: AsyncIterable<string>, file: string): Promise<number> {
  const handle = await open(file, 'wx', 0o600).catch((error: unknown) => {
    if ((error as { code?: unknown }).code !== 'EEXIST') throw error;
    throw new CommandError(
      'usage.invalid',
      `cannot write to ${show(file)}: it is there already; name another file, or remove it`,
    );
  });
  let count = 0;
  let piece = '';
  try {
    for await (const line of lines) {
      count += 1;
      piece += line;
      if (piece.length < PIECE_CHARS) continue;
      // n.b. Not write(): where a disk is full that may end after a part, and say nothing.
      await handle.appendFile(piece);
      piece = '';
    }
    await handle.appendFile(piece);
    // Whoever exports before a removal counts on the file.
    await handle.sync();
  } finally {
    await handle.close();
  }
  return count;
}
