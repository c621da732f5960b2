/**
 * notes — what people know about a group of dead letters, kept beside it: `vendor is told, ticket
 * 4711`. One note per group, with who wrote it and when; audited before it is written or forgotten.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { Millis } from '../core/duration.ts';
import type { ReplayOperator } from '../spool/operator/replays.ts';

/** A note on a group. */
export interface GroupNote {
  readonly group: string;
  readonly text: string;
  readonly by: string;
  readonly at: Millis;
}

/** What notes need of an operator. */
export type NotesOperator = Pick<ReplayOperator, 'by' | 'records' | 'recordAction'>;

/** The longest note. */
export const NOTE_MAX_CHARS = 2_000;
/** Groups that can have a note. */
const NOTES_MAX = 10_000;

const KIND = 'dlq.notes';
const GROUP_PATTERN = /^[0-9a-z]{11}$/;

/** Writes the note on a group, in the place of the one before. */
export async function noteGroup(
  operator: NotesOperator,
  { group, text, at }: Omit<GroupNote, 'by'>,
): Promise<GroupNote> {
  checkGroup(group);
  const kept = checkText(text);
  const isNew = (await operator.records.get(KIND, group)) === undefined;
  if (isNew && (await operator.records.list(KIND)).length >= NOTES_MAX) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot note on group ${show(group)}: ${NOTES_MAX} groups have notes; forget some first`,
    );
  }
  const note: GroupNote = { group, text: kept, by: operator.by, at };
  await operator.recordAction('dlq.note', { group, text: kept });
  await operator.records.put(KIND, group, note);
  return note;
}

/** The note on a group. */
export async function noteOf(
  operator: NotesOperator,
  group: string,
): Promise<GroupNote | undefined> {
  checkGroup(group);
  const found = await operator.records.get(KIND, group);
  return found === undefined ? undefined : readNote(group, found.value);
}

/** All notes, by group. */
export async function notesOf(
  operator: Pick<NotesOperator, 'records'>,
): Promise<ReadonlyMap<string, GroupNote>> {
  const found = await operator.records.list(KIND);
  return new Map(
    found.flatMap(({ key, value }) => {
      const note = readNote(key, value);
      return note === undefined ? [] : [[key, note] as const];
    }),
  );
}

/** A note as it lies in the store; what anybody else wrote there is none. */
function readNote(group: string, value: unknown): GroupNote | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { text, by, at } = value as Partial<Record<keyof GroupNote, unknown>>;
  if (typeof text !== 'string' || typeof by !== 'string') return undefined;
  return typeof at === 'number' ? { group, text, by, at } : undefined;
}

/** Forgets the note on a group; whether there was one. */
export async function forgetNote(operator: NotesOperator, group: string): Promise<boolean> {
  checkGroup(group);
  if ((await operator.records.get(KIND, group)) === undefined) return false;
  await operator.recordAction('dlq.forgetNote', { group });
  await operator.records.remove(KIND, group);
  return true;
}

/** Refuses what cannot be a group, so that no note lies where nobody finds it. */
function checkGroup(group: unknown): string {
  if (typeof group === 'string' && GROUP_PATTERN.test(group)) return group;
  throw new RespoolError(
    'message.invalid',
    `cannot use ${show(group)} as a group: allowed are 11 of 0-9 a-z, as respool dlq groups ` +
      'shows them',
  );
}

function checkText(text: unknown): string {
  const kept = typeof text === 'string' ? text.trim() : '';
  if (kept !== '' && kept.length <= NOTE_MAX_CHARS && kept.isWellFormed()) return kept;
  throw new RespoolError(
    'message.invalid',
    `cannot use ${show(text)} as a note: allowed is a text of 1 to ${NOTE_MAX_CHARS} characters`,
  );
}
