/**
 * groups — dead letters by what they died of, made in one look at each of the places; and what
 * people know about a group, kept beside it: one note each, with who wrote it and when, audited
 * before it is written or forgotten.
 *
 * Promise: memory is bounded by the number of groups, not of letters. Letters of groups beyond the
 * limit are counted, not named; a look changes nothing.
 */

import { categoriser, type Category, type CategoryRule } from '../core/category.ts';
import type { Millis } from '../core/duration.ts';
import { normalise } from '../core/fingerprint.ts';
import { groupOf } from '../core/letter-query.ts';
import { type Option, readOptions } from '../core/option-table.ts';
import type { DeadLetters, Letter, LetterQuery } from '../ports/dead-letters.ts';
import { RespoolError, show } from '../core/errors.ts';
import type { ReplayOperator } from '../spool/operator/replays.ts';

/** Letters that died of the same cause at the same place. */
export interface LetterGroup {
  readonly group: string;
  readonly code: string;
  /** Without what differs from letter to letter, and as one of them has it. */
  readonly reason: string;
  readonly reasonSample: string;
  /** The topic, or the queue. */
  readonly at: string;
  readonly origin: string;
  /** Of its first letter that was seen. */
  readonly category: Category;
  readonly count: number;
  /** By time of death, else of enqueue; null if unknown. */
  readonly firstAt: Millis | null;
  readonly lastAt: Millis | null;
  /** Ids of the first ones. */
  readonly samples: readonly string[];
  /** How often they were sent again, all together. */
  readonly replays: number;
}

const GROUPS = {
  query: {
    kind: 'code',
    type: 'as of [replays](#replays)',
    ts: 'LetterQuery',
    defaultText: 'all',
    about: 'only these letters',
  },
  category: {
    kind: 'code',
    type: 'a category',
    ts: 'Category | undefined',
    defaultText: 'all',
    about: 'only letters of this category',
  },
  rules: {
    kind: 'code',
    type: 'of `deadLetters.categories`',
    ts: 'readonly CategoryRule[]',
    about: 'rules for categories, which take precedence over the built-in ones',
  },
  samples: {
    kind: 'number',
    min: 0,
    max: 100,
    default: 3,
    about: 'maximum number of ids of each group',
  },
  max: {
    kind: 'number',
    min: 1,
    max: 100_000,
    default: 1_000,
    about: 'groups that are distinguished; letters of others are in `others`',
  },
  looksMax: {
    kind: 'code',
    type: '1 or more',
    ts: 'number | undefined',
    defaultText: 'that of the place',
    about: 'maximum number of letters looked at in each place',
  },
  signal: {
    kind: 'code',
    type: 'an `AbortSignal`',
    ts: 'AbortSignal | undefined',
    about: 'ends the look',
  },
} as const;

/** Every option of `groupsOf`. */
export const GROUP_OPTIONS: Readonly<Record<keyof GroupOptions, Option>> = GROUPS;

/** Options of `groupsOf`. */
export interface GroupOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Only these letters. Default all. */
  readonly query?: LetterQuery;
  /** Only letters of this category. Default all. */
  readonly category?: Category | undefined;
  /** Rules for categories, which take precedence over the built-in ones. */
  readonly rules?: readonly CategoryRule[];
  /** Maximum number of ids of each group. 0 to 100; default 3. */
  readonly samples?: number;
  /**
   * Groups that are distinguished; letters of others are in `others`. 1 to 100,000; default 1,000.
   */
  readonly max?: number;
  /** Maximum number of letters looked at in each place. Default that of the place. */
  readonly looksMax?: number | undefined;
  /** Ends the look. */
  readonly signal?: AbortSignal | undefined;
}

/** What a look came to. */
export interface LetterGroups {
  /** The largest first; of the same size, the one that came first. */
  readonly groups: readonly LetterGroup[];
  /** Letters that fit. */
  readonly seen: number;
  /** Letters of groups that are not named. */
  readonly others: number;
}

/** What is looked into. */
type LookedInto = Pick<DeadLetters, 'look'>;

/** Groups the letters of these places. */
export async function groupsOf(
  places: LookedInto | readonly LookedInto[],
  options: GroupOptions = {},
): Promise<LetterGroups> {
  const { query, category, rules, looksMax, signal } = options;
  const count = groupCounter(readOptions({ what: 'groupsOf' }, options, GROUPS));
  const tell = categoriser(rules);
  const look = {
    ...(query === undefined ? {} : { query }),
    ...(looksMax === undefined ? {} : { max: looksMax }),
    ...(signal === undefined ? {} : { signal }),
  };
  for (const letters of [places].flat()) {
    for await (const { letter } of letters.look(look)) {
      const found = tell(letter);
      if (category === undefined || category === found) count.add(letter, found);
    }
  }
  return count.result();
}

type Growing = { -readonly [Name in keyof LetterGroup]: LetterGroup[Name] } & {
  samples: string[];
};

/** Counts letters one by one. */
function groupCounter({ samples, max }: { readonly samples: number; readonly max: number }): {
  add(letter: Letter, category: Category): void;
  result(): LetterGroups;
} {
  const groups = new Map<string, Growing>();
  let seen = 0;
  let others = 0;
  return {
    add: (letter, category) => {
      seen += 1;
      const there = groups.get(letter.group);
      if (there === undefined && groups.size >= max) {
        others += 1;
        return;
      }
      const group = there ?? emptyGroup(letter, category);
      if (there === undefined) groups.set(letter.group, group);
      grow(group, letter, samples);
    },
    result: () => ({
      groups: [...groups.values()].toSorted((one, other) => other.count - one.count),
      seen,
      others,
    }),
  };
}

function emptyGroup(letter: Letter, category: Category): Growing {
  const { group, code, reason, origin } = letter;
  return {
    group,
    code,
    reason: normalise(reason),
    reasonSample: reason,
    at: atOf(letter),
    origin,
    category,
    count: 0,
    firstAt: null,
    lastAt: null,
    samples: [],
    replays: 0,
  };
}

/** A place groups by topics, by its name, or by the main queue of letters: whichever fits. */
function atOf({ group, code, reason, topic, place, origin }: Letter): string {
  const queue = origin.slice(origin.lastIndexOf('/') + 1);
  const isAt = (at: string): boolean => groupOf({ code, reason, at, origin }) === group;
  return [topic, place, queue].find(isAt) ?? place;
}

function grow(group: Growing, { id, replays, diedAt, enqueuedAt }: Letter, idsMax: number): void {
  const at = diedAt ?? enqueuedAt;
  group.count += 1;
  group.replays += replays;
  if (group.samples.length < idsMax) group.samples.push(id);
  if (at === undefined) return;
  group.firstAt = Math.min(group.firstAt ?? at, at);
  group.lastAt = Math.max(group.lastAt ?? at, at);
}

/** A note on a group. */
export interface GroupNote {
  readonly group: string;
  readonly text: string;
  readonly by: string;
  readonly at: Millis;
}

/** What notes need of an operator. */
type NotesOperator = Pick<ReplayOperator, 'by' | 'records' | 'recordAction'>;

/** The longest note. Also in docs/reference/dead-letters.md. */
export const NOTE_MAX_CHARS = 2_000;
/** Groups that can have a note. Also in docs/reference/dead-letters.md. */
const NOTES_MAX = 10_000;

/** Stored: notes of earlier versions are under this kind. */
const KIND = 'dlq.notes';
/** As `fingerprint` of core/fingerprint.ts makes them. */
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

/** A note as it is stored; any other value there is ignored. */
function readNote(group: string, value: unknown): GroupNote | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { text, by, at } = value as Partial<Record<keyof GroupNote, unknown>>;
  if (typeof text !== 'string' || typeof by !== 'string') return undefined;
  return typeof at === 'number' ? { group, text, by, at } : undefined;
}

/**
 * Forgets the note on a group; whether there was one.
 *
 * @example
 * import { forgetNote, noteGroup, notesOf } from 'respool/dead-letters';
 * const group = '00k3v9x2m1q';
 * await noteGroup(operator, { group, text: 'the receiver was down', at: Date.now() });
 * console.log(await notesOf(operator));
 * await forgetNote(operator, group);
 */
export async function forgetNote(operator: NotesOperator, group: string): Promise<boolean> {
  checkGroup(group);
  if ((await operator.records.get(KIND, group)) === undefined) return false;
  await operator.recordAction('dlq.forgetNote', { group });
  await operator.records.remove(KIND, group);
  return true;
}

/** Refuses what cannot be a group, so that every note can be found again. */
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
