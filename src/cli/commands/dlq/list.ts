/** list — dead letters as a table, one of them in full, and all of them as lines of JSON. */

import { LIMIT_RANGE } from '../../options.ts';
import { open } from 'node:fs/promises';
import path from 'node:path';
import type { Millis } from '../../../core/duration.ts';
import { RespoolError, show } from '../../../core/errors.ts';
import { bodyObject, exportLetter, letterObject } from '../../../dead-letters/export.ts';
import { noteOf } from '../../../dead-letters/groups.ts';
import { jsonLine, numberText, safe } from '../../../observe/logs/safe-text.ts';
import type { Operator } from '../../../spool/operator/operator.ts';
import { CommandError, type ExitCode } from '../../exit-codes.ts';
import { TypedIds, wholeLetterIds } from '../../id-prefix.ts';
import { pairsOf } from '../../ui/message-view.ts';
import type { Out } from '../../ui/output.ts';
import { passing } from '../../ui/progress.ts';
import { type Column, pagedTable } from '../../ui/table.ts';
import { both, span } from '../../ui/times.ts';
import {
  kindsOf,
  type FoundLetter,
  type LetterLook,
  openLook,
  sessionIfAny,
  type LettersContext,
} from './letter-places.ts';

const SHOWN_DEFAULT = 100;
const PAGE_ROWS = 100;
/** Lines that are written to a file at once, in characters. */
const PIECE_CHARS = 262_144;
const ALL_KINDS = ['dead', 'parked', 'archived'] as const;

/** Prints letters as a table, or as objects. */
export async function list(context: LettersContext): Promise<ExitCode> {
  const { io, options, out } = context;
  const limit =
    options.number('limit', LIMIT_RANGE) ?? (out.json ? LIMIT_RANGE.max : SHOWN_DEFAULT);
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
  if (shown === 0) out.note('no letters match');
  else if (isMore) out.note(`the first ${shown}; more with --limit, all with --json`);
  return look.code;
}

/** Prints the letters of one id in full; the id may be given by its beginning. */
export async function showLetter(context: LettersContext): Promise<ExitCode> {
  const { args, out, options } = context;
  const [given = ''] = args;
  const isSpool = options.texts('queue').length === 0;
  const kinds = kindsOf(context) ?? (isSpool ? ALL_KINDS : undefined);
  const look = await openLook(context, { kinds });
  const session = await sessionIfAny(context);
  const [id = given] =
    isSpool && session !== undefined
      ? await wholeLetterIds([given], { operator: session.operator, out, isActing: false })
      : [given];
  const shown = await viewsOf(context, look, { id, isSpool, operator: session?.operator });
  for (const [at, text] of shown.entries()) {
    await (out.json ? out.object(text) : out.line(at === 0 ? String(text) : `\n${String(text)}`));
  }
  if (shown.length > 0) return look.code;
  const where = look.places.map(({ name }) => name).join(', ');
  throw new RespoolError(
    'message.unknown',
    `there is no letter ${show(given)} in ${where}; see: respool dlq list`,
  );
}

interface Shown {
  readonly id: string;
  readonly isSpool: boolean;
  readonly operator: Operator | undefined;
}

/** The letters of an id, as text or as objects; reads each queue only once. */
async function viewsOf(
  context: LettersContext,
  look: LetterLook,
  { id, isSpool, operator }: Shown,
): Promise<readonly unknown[]> {
  const typed = new TypedIds(isSpool ? [] : [id], isSpool ? [id] : []);
  const views = new Map<string, unknown[]>();
  for await (const found of look.letters(typed.search)) {
    const { letter } = found.open;
    const others = views.get(letter.id) ?? [];
    views.set(letter.id, [...others, await viewOf(context, found, operator)]);
  }
  const [whole = id] = typed.wholeIds({ out: context.out, isActing: false });
  return views.get(whole) ?? [];
}

async function viewOf(
  { io, out }: LettersContext,
  foundLetter: FoundLetter,
  operator: Operator | undefined,
): Promise<unknown> {
  const note =
    operator === undefined ? undefined : await noteOf(operator, foundLetter.open.letter.group);
  return out.json
    ? exportLetter(foundLetter.open, { category: foundLetter.category, note: note ?? null })
    : letterView(out, foundLetter, { now: io.clock.now(), note: note?.text });
}

/** Writes letters with their bodies as lines of JSON. */
export async function exportLetters(context: LettersContext): Promise<ExitCode> {
  const { options, out } = context;
  const limit = options.number('limit', LIMIT_RANGE) ?? LIMIT_RANGE.max;
  const file = options.filled('output');
  const look = await openLook(context);
  if (file === undefined) {
    for await (const line of linesOf(look.letters(), limit)) await out.write(line);
    return look.code;
  }
  const lines = linesOf(passing(context, look.letters()), limit);
  const count = await writeLines(lines, path.resolve(context.io.cwd, file));
  if (out.json) await out.object({ exported: count, file });
  else await out.line(`exported ${count} to ${safe(file)}`);
  return look.code;
}

async function* linesOf(
  letters: AsyncGenerator<FoundLetter>,
  limit: number,
): AsyncGenerator<string> {
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
    // Anyone who exports before a removal counts on the file.
    await handle.sync();
  } finally {
    await handle.close();
  }
  return count;
}

// Dead letters as rows, as objects and in full; the same for queues and the spool.

const RIGHT = { align: 'right' as const };

/** The columns of a list. */
const LETTER_COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  { head: 'died', ...RIGHT },
  { head: 'place', isFlexible: true },
  { head: 'topic', isFlexible: true },
  { head: 'code' },
  { head: 'reason', isFlexible: true, isReason: true },
  { head: 'deaths', ...RIGHT, isOptional: true },
  { head: 'replays', ...RIGHT, isOptional: true },
  { head: 'category', isOptional: true },
];

/** How much of a body is shown. */
const BODY_SHOWN_CHARS = 65_536;

/** A letter as a row of a list. */
function letterRow({ open: { letter }, category }: FoundLetter, now: Millis): string[] {
  const at = letter.diedAt ?? letter.enqueuedAt;
  return [
    safe(letter.id),
    at === undefined ? '' : span(now - at),
    safe(letter.place),
    safe(letter.topic),
    safe(letter.code),
    safe(letter.reason),
    numberText(letter.deaths),
    numberText(letter.replays),
    category,
  ];
}

/** A letter as an object. */
function foundObject({ open, category }: FoundLetter): Record<string, unknown> {
  return { ...letterObject(open.letter), category };
}

/** A letter in full, for people. */
async function letterView(
  out: Out,
  foundLetter: FoundLetter,
  { now, note }: { readonly now: Millis; readonly note: string | undefined },
): Promise<string> {
  const { letter } = foundLetter.open;
  const { headers } = letter;
  const facts: [string, string | undefined][] = [
    ['id', letter.id],
    ['place', foundLetter.place.name],
    ['kind', letter.kind],
    ['topic', letter.topic],
    ['origin', letter.origin === '' ? undefined : letter.origin],
    ['goes to', homeText(foundLetter)],
    ['code', letter.code],
    ['reason', letter.reason],
    ['category', foundLetter.category],
    ['group', letter.group],
    ['note', note],
    ['deaths', numberText(letter.deaths)],
    ['attempts', numberText(letter.attempts)],
    ['replays', replaysText(foundLetter)],
    ['enqueued', letter.enqueuedAt === undefined ? undefined : both(letter.enqueuedAt, now)],
    ['died', letter.diedAt === undefined ? undefined : both(letter.diedAt, now)],
    ['type', letter.contentType],
    ['size', `${numberText(letter.size)} bytes`],
  ];
  const told = facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
  const parts = [await pairsOf(out, told)];
  const bold = (head: string): string => out.style('bold', head);
  if (Object.keys(headers).length > 0) {
    parts.push(`${bold('headers')}\n${await pairsOf(out, Object.entries(headers))}`);
  }
  parts.push(`${bold('body')}\n${bodyText(await foundLetter.open.body(), letter.contentType)}`);
  return parts.join('\n\n');
}

function homeText({ open }: FoundLetter): string {
  const { home } = open.letter;
  if (home === undefined) return 'unknown: name it when you replay it';
  if (home.kind === 'topic') return `topic ${home.topic}`;
  return home.exchange === ''
    ? `queue ${home.key}`
    : `exchange ${home.exchange}, routing key ${home.key}`;
}

function replaysText({ open }: FoundLetter): string {
  const { replays, replayedBy } = open.letter;
  return `${numberText(replays)}${replayedBy === undefined ? '' : `, last by ${replayedBy}`}`;
}

function bodyText(bytes: Uint8Array, contentType: string | undefined): string {
  const body = bodyObject(bytes, contentType);
  if ('base64' in body) return 'no text; to have it: respool dlq export';
  const text = 'json' in body ? JSON.stringify(body.json, null, 2) : body.text;
  const shown = safe(text.slice(0, BODY_SHOWN_CHARS), { multiline: true });
  const isCut = text.length > BODY_SHOWN_CHARS;
  return isCut ? `${shown}\n… cut; all of it: respool dlq export` : shown;
}
