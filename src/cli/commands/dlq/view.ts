/** view — dead letters as rows, as objects and in full; the same for queues and the spool. */

import { bodyObject, letterObject } from '../../../dead-letters/export.ts';
import type { Millis } from '../../../core/duration.ts';
import { pairsOf } from '../../ui/message-view.ts';
import type { Out } from '../../ui/output.ts';
import { numberText, safe } from '../../../observe/logs/safe-text--safe.ts';
import type { Column } from '../../ui/table.ts';
import { both, span } from '../../ui/times.ts';
import type { Found } from './open-look.ts';

const RIGHT = { align: 'right' as const };

/** The columns of a list. */
export const LETTER_COLUMNS: readonly Column[] = [
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
export function letterRow({ open: { letter }, category }: Found, now: Millis): string[] {
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
export function foundObject({ open, category }: Found): Record<string, unknown> {
  return { ...letterObject(open.letter), category };
}

/** A letter in full, for people. */
export async function letterView(
  out: Out,
  found: Found,
  { now, note }: { readonly now: Millis; readonly note: string | undefined },
): Promise<string> {
  const { letter } = found.open;
  const { headers } = letter;
  const facts: [string, string | undefined][] = [
    ['id', letter.id],
    ['place', found.place.name],
    ['kind', letter.kind],
    ['topic', letter.topic],
    ['origin', letter.origin === '' ? undefined : letter.origin],
    ['goes to', homeText(found)],
    ['code', letter.code],
    ['reason', letter.reason],
    ['category', found.category],
    ['group', letter.group],
    ['note', note],
    ['deaths', numberText(letter.deaths)],
    ['attempts', numberText(letter.attempts)],
    ['replays', replaysText(found)],
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
  parts.push(`${bold('body')}\n${bodyText(await found.open.body(), letter.contentType)}`);
  return parts.join('\n\n');
}

function homeText({ open }: Found): string {
  const { home } = open.letter;
  if (home === undefined) return 'nobody knows: name it when you replay it';
  if (home.kind === 'topic') return `topic ${home.topic}`;
  return home.exchange === ''
    ? `queue ${home.key}`
    : `exchange ${home.exchange}, routing key ${home.key}`;
}

function replaysText({ open }: Found): string {
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
