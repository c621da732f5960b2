/**
 * remove — dead letters are taken away: counted first, asked for, on the audit record, then done.
 *
 * Promise: at most as many as were counted, and none that died since.
 */

import type { Millis } from '../../../core/duration.ts';
import { fitsLetter } from '../../../core/letter-query.ts';
import type { Letter } from '../../../ports/dead-letters.ts';
import { ask } from '../../ui/confirm.ts';
import { CommandError, EXIT, type ExitCode } from '../../exit-codes.ts';
import { TypedIds } from '../../id-prefix.ts';
import { moveWith } from '../rabbit/move-messages.ts';
import { passing } from '../../ui/progress.ts';
import { numberText, safe } from '../../../observe/logs/safe-text--safe.ts';
import { recordWithIds } from './audit-ids.ts';
import { kindsOf } from './filter.ts';
import { type Look, openLook } from './open-look.ts';
import type { LettersContext, Place } from './letter-places.ts';
import { Removal, type Tally } from './removal.ts';
import { idsOf, spoolIdsOf, typeCount } from './typed-ids.ts';

/** Letters whose keys are remembered between the count and the removal. */
const KEYS_MAX = 200_000;
const LIMIT_MAX = 1_000_000_000;

/** What was counted. */
interface Count {
  readonly counted: readonly Counted[];
  readonly total: number;
  /** The ids that were given, whole; undefined where a filter chooses. */
  readonly ids: readonly string[] | undefined;
  /** Of these, those that are there. */
  readonly found: ReadonlySet<string>;
}

/** A letter that may be one of those that were named. */
interface Noted {
  readonly place: Place;
  readonly id: string;
  readonly key: string;
}

/** Which letters of one place, as they were counted. */
interface Counted {
  readonly place: Place;
  count: number;
  /** undefined: too many; then their number holds, and the time of the count. */
  keys: Set<string> | undefined;
  readonly countedAt: Millis;
}

/** Removes letters by ids or by a filter. */
export async function remove(context: LettersContext): Promise<ExitCode> {
  const { args, options } = context;
  checkKinds(context);
  const isSpool = options.texts('queue').length === 0;
  const typed = args.filter((arg) => arg !== '-');
  const ids = isSpool
    ? new TypedIds([], await spoolIdsOf(context))
    : new TypedIds(typed, await idsOf({ ...context, args: args.filter((arg) => arg === '-') }));
  const look = await openLook(context, { isStrict: true });
  if (args.length > 0 && !look.filter.isEmpty) {
    throw usage('ids and filters do not go together: give one of them');
  }
  if (args.length === 0 && look.filter.isEmpty) {
    throw usage(
      'say which letters to remove: ids, - for ids from stdin, or a filter such as ' +
        '--category validation; everything: respool dlq purge',
    );
  }
  const isHard = options.flag('hard');
  return removeAll(context, look, {
    action: 'remove',
    ids: args.length > 0 ? ids : undefined,
    confirm: async (_count, what) => {
      // As the other commands: what was named one by one, and can be undone, is not asked for.
      if (args.length === 0) await ask(context, `remove ${what}?`);
      if (isHard) await ask(context, 'remove for good, with the bodies? nothing brings them back');
    },
  });
}

/** Removes everything that fits, after its number was typed. */
export async function purge(context: LettersContext): Promise<ExitCode> {
  checkKinds(context);
  const look = await openLook(context, { isStrict: true });
  const verb = context.options.flag('hard') ? 'remove for good' : 'remove';
  return removeAll(context, look, {
    action: 'purge',
    ids: undefined,
    confirm: (count, what) => typeCount(context, count, `${verb} ${what}`),
  });
}

function checkKinds(context: LettersContext): void {
  const isArchived = kindsOf(context)?.includes('archived') === true;
  if (!isArchived || context.options.flag('hard')) return;
  throw usage('what is archived is removed already: add --hard to have it gone for good');
}

interface Order {
  readonly action: 'remove' | 'purge';
  readonly ids: TypedIds | undefined;
  readonly confirm: (count: number, what: string) => Promise<void>;
}

async function removeAll(context: LettersContext, look: Look, order: Order): Promise<ExitCode> {
  const { options, out } = context;
  const { action } = order;
  const { counted, total, ids, found } = await countAll(context, look, order.ids);
  const where = look.places.map(({ name }) => name).join(', ');
  const what = `${total === 1 ? '1 letter' : `${total} letters`} of ${safe(where)}`;
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action, count: total, dryRun: true });
    else await out.line(`would remove ${what}`);
    return EXIT.done;
  }
  const tally: Tally = { removed: 0, gone: 0, failed: 0, failures: [] };
  if (total > 0) {
    await order.confirm(total, what);
    await carryOut(context, look, { order, counted, total, ids, tally });
  } else if (action === 'purge' && options.text('count') !== undefined) {
    await order.confirm(total, what);
  }
  const unknown = (ids ?? []).filter((id) => !found.has(id)).length;
  return tellTally(context, { action, total, tally, unknown });
}

async function carryOut(
  context: LettersContext,
  look: Look,
  {
    order,
    counted,
    total,
    ids,
    tally,
  }: {
    readonly order: Order;
    readonly counted: readonly Counted[];
    readonly total: number;
    readonly ids: readonly string[] | undefined;
    readonly tally: Tally;
  },
): Promise<void> {
  const { options } = context;
  const { control } = await context.desk();
  const isHard = options.flag('hard');
  const reason = options.filled('reason') ?? 'removed by an operator';
  await recordWithIds(control, `dlq.${order.action}`, {
    places: counted.map(({ place }) => place.source),
    filter: { ...look.filter.query, ...categoryPart(look) },
    ...(ids === undefined ? {} : { ids }),
    count: total,
    hard: isHard,
    reason,
  });
  const fate = { kind: 'remove' as const, hard: isHard, reason, by: control.by };
  await moveWith(context, total, async (signal, onProgress) => {
    for (const one of counted) {
      const { place, count } = one;
      const isFitting = fitting(look, ids, one);
      const tell = (moved: number, skipped: number): void =>
        onProgress({ queue: place.name, moved, skipped, total: count });
      await new Removal({ place, count, control, fate, tally, isFitting, tell }).run(signal);
    }
  });
}

function categoryPart({ filter: { category } }: Look): object {
  return category === undefined ? {} : { category };
}

async function countAll(
  context: LettersContext,
  look: Look,
  typed: TypedIds | undefined,
): Promise<Count> {
  const { options, io, out } = context;
  const limit = options.number('limit', { min: 1, max: LIMIT_MAX }) ?? LIMIT_MAX;
  const countedAt = io.clock.now();
  let total = 0;
  const counted = new Map<Place, Counted>(
    look.places.map((place) => [place, { place, count: 0, keys: new Set(), countedAt }]),
  );
  const letters: Noted[] = [];
  // One look for both, which ids are meant and which letters have them: a broker counts looks.
  for await (const { place, open } of passing(context, look.letters(typed?.search))) {
    const { id, key } = open.letter;
    if (typed === undefined) count({ place, id, key });
    else letters.push({ place, id, key });
    if (total === limit) break;
  }
  const ids = typed?.wholeIds({ out, isActing: true });
  const meant = new Set(ids);
  const found = new Set(letters.map(({ id }) => id));
  for (const one of letters) if (meant.has(one.id) && total < limit) count(one);
  const all = [...counted.values()].filter((one) => one.count > 0);
  return { counted: all, total, ids, found };

  function count({ place, key }: Noted): void {
    const one = counted.get(place);
    if (one === undefined) return;
    one.count += 1;
    one.keys?.add(key);
    if (one.count > KEYS_MAX) one.keys = undefined;
    total += 1;
  }
}

/** Whether a letter is one of those that were counted. */
export function fitting(
  { filter, tell }: Pick<Look, 'filter' | 'tell'>,
  ids: readonly string[] | undefined,
  { keys, countedAt }: Pick<Counted, 'keys' | 'countedAt'>,
): (letter: Letter) => boolean {
  const named = ids === undefined ? undefined : new Set(ids);
  return (letter) =>
    (keys === undefined ? (letter.diedAt ?? 0) <= countedAt : keys.has(letter.key)) &&
    (named === undefined || named.has(letter.id)) &&
    fitsLetter(letter, filter.query) &&
    (filter.category === undefined || filter.category === tell(letter));
}

async function tellTally(
  { out, options }: LettersContext,
  { action, total, tally, unknown }: TallyParts,
): Promise<ExitCode> {
  const { removed, gone, failed, failures } = tally;
  if (out.json) {
    await out.object({ action, count: total, removed, gone, failed, unknown, failures });
  } else {
    for (const { id, why } of failures) out.note(`${safe(id)}: ${safe(why)}`);
    if (failed > failures.length) out.note(`and ${failed - failures.length} more`);
    const verb = options.flag('hard') ? 'removed for good' : 'removed';
    const parts = [`${verb} ${numberText(removed)}`];
    if (failed > 0) parts.push(`left ${numberText(failed)}`);
    if (gone > 0) parts.push(`gone meanwhile ${numberText(gone)}`);
    if (unknown > 0) parts.push(`unknown ${numberText(unknown)}`);
    const isNothing = total === 0 && unknown === 0;
    await out.line(isNothing ? 'no letter fits; nothing to do' : parts.join(', '));
  }
  return failed + unknown > 0 ? EXIT.refused : EXIT.done;
}

interface TallyParts {
  readonly action: Order['action'];
  readonly total: number;
  readonly tally: Tally;
  /** Ids that were given, and are not there. */
  readonly unknown: number;
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}
