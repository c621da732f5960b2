/**
 * groups — dead letters counted, by group with its note, or by one thing that they have; and the
 * command that writes, shows or forgets a note.
 */

import {
  groupsOf,
  type LetterGroup,
  forgetNote,
  noteGroup,
  noteOf,
  notesOf,
  GROUP_OPTIONS,
} from '../../../dead-letters/groups.ts';
import type { Millis } from '../../../core/duration.ts';
import { rangeOf } from '../../../core/option-table.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { passing } from '../../ui/progress.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import { type Column, tableOf } from '../../ui/table.ts';
import { relative, span } from '../../ui/times.ts';
import {
  letterFilterOf,
  type FoundLetter,
  lookable,
  openLook,
  categoryRules,
  sessionIfAny,
  type LettersContext,
} from './letter-places.ts';
import type { CountColumn } from './options.ts';

const RIGHT = { align: 'right' as const };
const GROUP_COLUMNS: readonly Column[] = [
  { head: 'group' },
  { head: 'letters', ...RIGHT },
  { head: 'category', isOptional: true },
  { head: 'at', isFlexible: true },
  { head: 'code' },
  { head: 'reason', isFlexible: true, isReason: true },
  { head: 'first', ...RIGHT, isOptional: true },
  { head: 'last', ...RIGHT, isOptional: true },
  { head: 'replays', ...RIGHT, isOptional: true },
  { head: 'note', isFlexible: true },
];
/** Maximum number of keys; letters of others are counted together. */
const KEYS_MAX = 10_000;

/** Prints the groups, the largest first. */
export async function printGroups(context: LettersContext): Promise<ExitCode> {
  const { io, options, out } = context;
  const max = options.number('limit', rangeOf(GROUP_OPTIONS, 'max'));
  const samples = options.number('samples', rangeOf(GROUP_OPTIONS, 'samples'));
  const look = await openLook(context);
  const places = look.places.map((place) => lookable(context, place));
  const { query, category } = look.filter;
  const rules = await categoryRules(context);
  const { groups, seen, others } = await groupsOf(places, {
    query,
    category,
    rules,
    ...(samples === undefined ? {} : { samples }),
  });
  const session = await sessionIfAny(context);
  const notes = session === undefined ? new Map<string, never>() : await notesOf(session.operator);
  const shown = groups.slice(0, max);
  if (out.json) {
    for (const group of shown) await out.object({ ...group, note: notes.get(group.group) ?? null });
    return look.code;
  }
  const now = io.clock.now();
  const rows = shown.map((group) => groupRow(group, notes.get(group.group)?.text ?? '', now));
  if (rows.length === 0) out.note('no letters match');
  else await out.line(tableOf(out, GROUP_COLUMNS, rows));
  const unshown = shown.reduce((rest, { count }) => rest - count, seen);
  if (unshown > 0) {
    const of = others > 0 ? 'further groups, not shown separately' : 'smaller groups';
    out.note(`and ${unshown} letters of ${of}; choose with filters`);
  }
  return look.code;
}

function groupRow(group: LetterGroup, note: string, now: Millis): string[] {
  const age = (at: Millis | null): string => (at === null ? '' : span(now - at));
  return [
    safe(group.group),
    numberText(group.count),
    group.category,
    safe(group.at),
    safe(group.code),
    safe(group.reasonSample),
    age(group.firstAt),
    age(group.lastAt),
    numberText(group.replays),
    safe(note),
  ];
}

/** Prints how many letters there are, by what they have. */
export async function printCounts(context: LettersContext): Promise<ExitCode> {
  const { options, out } = context;
  const by = (options.text('by') ?? 'place') as CountColumn;
  const isAll = by === 'place' && letterFilterOf(context).isEmpty;
  const knowsBroker = isAll && options.texts('queue').length > 0;
  const look = await openLook(context, { isLooking: !knowsBroker });
  const counts = new Map<string, number>();
  let total = 0;
  let others = 0;
  const add = (key: string, count: number): void => {
    total += count;
    const before = counts.get(key);
    if (before === undefined && counts.size >= KEYS_MAX) others += count;
    else counts.set(key, (before ?? 0) + count);
  };
  if (knowsBroker) {
    for (const { letters, source } of look.places) {
      if (source.kind === 'queue') add(source.queue, await letters.count());
    }
  } else for await (const found of passing(context, look.letters())) add(keyOf(found, by), 1);
  const rows = [...counts]
    .map(([key, count]) => ({ key, count }))
    .toSorted((one, other) => other.count - one.count);
  if (out.json) await out.object({ by, total, rows, others });
  else {
    const all = [...rows, ...(others > 0 ? [{ key: '(others)', count: others }] : [])];
    const cells = all.map(({ key, count }) => [safe(key), numberText(count)]);
    const columns: Column[] = [
      { head: by, isFlexible: true, isReason: true },
      { head: 'letters', ...RIGHT },
    ];
    await out.line(tableOf(out, columns, [...cells, ['total', numberText(total)]]));
  }
  return look.code;
}

function keyOf({ open: { letter }, category }: FoundLetter, by: CountColumn): string {
  return by === 'category' ? category : letter[by];
}

/** Writes, shows or forgets the note on a group. */
export async function note(context: LettersContext): Promise<ExitCode> {
  const { args, io, options, out } = context;
  const [group = '', text] = args;
  const isForgotten = options.flag('forget');
  if (isForgotten && text !== undefined) {
    throw new CommandError('usage.invalid', 'use a text or --forget, not both');
  }
  const { operator } = await context.session();
  if (isForgotten) {
    const had = await forgetNote(operator, group);
    if (out.json) await out.object({ group, forgotten: had });
    else await out.line(had ? 'forgotten' : 'there is no note on this group');
    return EXIT.done;
  }
  const found =
    text === undefined
      ? await noteOf(operator, group)
      : await noteGroup(operator, { group, text, at: io.clock.now() });
  if (out.json) await out.object({ group, note: found ?? null });
  else if (text !== undefined) await out.line('noted');
  else if (found === undefined) await out.line('there is no note on this group');
  else {
    await out.line(safe(found.text, { multiline: true }));
    out.note(`by ${safe(found.by)}, ${relative(found.at, io.clock.now())}`);
  }
  return EXIT.done;
}
