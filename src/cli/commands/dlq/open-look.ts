/**
 * open-look — goes through the letters that a command is about, and says first what that costs.
 *
 * Promise: nothing is changed. A place that refuses is not looked at: it is named with what would
 * lift that, and the others are gone through.
 */

import { type Category, categoriser } from '../../../core/category.ts';
import { RespoolError } from '../../../core/errors.ts';
import { fitsLetter } from '../../../core/letter-query.ts';
import type {
  Caution,
  DeadLetters,
  LetterQuery,
  OpenLetter,
  LetterKind,
} from '../../../ports/dead-letters.ts';
import { EXIT, type ExitCode } from '../../exit-codes.ts';
import { passing } from '../../ui/progress.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import {
  categoryRules,
  type LettersContext,
  openPlaces,
  type LetterPlaceOptions,
} from './letter-places.ts';
import { durationMs, type Millis } from '../../../core/duration.ts';
import { messageFilterOf } from '../../select-messages.ts';
import type { CommandContext } from '../../spec.ts';

/** A letter that fits, with what is known of it besides. */
export interface FoundLetter {
  readonly place: LetterPlaceOptions;
  readonly open: OpenLetter;
  readonly category: Category;
}

/** What a command goes through. */
export interface LetterLook {
  readonly places: readonly LetterPlaceOptions[];
  readonly filter: LetterFilter;
  /** 0, or what a place that refused makes of it. */
  readonly code: ExitCode;
  readonly tell: (letter: OpenLetter['letter']) => Category;
  /** Goes through the letters of all places that fit, oldest first in each. */
  readonly letters: (options?: FindOptions) => AsyncGenerator<FoundLetter>;
}

export interface FindOptions {
  readonly ids?: readonly string[];
  /** Whether a letter of this id may be meant, where ids are not known yet. */
  readonly mayBe?: (id: string) => boolean;
  readonly signal?: AbortSignal | undefined;
}

/** How the places of a command are opened. */
export interface LookOptions {
  /** Default: what `--kind` says. */
  readonly kinds?: Parameters<typeof openPlaces>[1]['kinds'];
  /** One place that refuses stops everything, as where something will be changed. */
  readonly isStrict?: boolean;
  /** False: no letter is looked at, so it need not be told what that costs; default true. */
  readonly isLooking?: boolean;
}

const FREE: Caution = { kind: 'free' };
/** More than any queue holds: a look ends where the letters do. */
const LOOK_MAX = 1_000_000_000;

/** Opens the places, and tells what looking costs. */
export async function openLook(
  context: LettersContext,
  { kinds = kindsOf(context), isStrict = false, isLooking = true }: LookOptions = {},
): Promise<LetterLook> {
  const { options } = context;
  const filter = letterFilterOf(context);
  const queues = options.texts('queue');
  const isTrusted = options.flag('trustLimit');
  const all = await openPlaces(context, { queues, kinds, isTrusted });
  const places: LetterPlaceOptions[] = [];
  const counted = new Map<string, string[]>();
  for (const place of all) {
    const caution = isLooking ? await place.letters.caution() : FREE;
    if (!isOpen(context, place, caution, isStrict || all.length === 1)) continue;
    places.push(place);
    if (caution.kind === 'counted') {
      counted.set(caution.text, [...(counted.get(caution.text) ?? []), place.name]);
    }
  }
  // n.b. What is said of a hundred queues is said once.
  for (const [text, names] of counted) {
    const whose = names.length === 1 ? (names[0] ?? '') : `${names.length} queues`;
    context.out.note(safe(`${whose}: ${text}`));
  }
  const tell = categoriser(await categoryRules(context));
  return {
    places,
    filter,
    tell,
    code: places.length === all.length ? EXIT.done : EXIT.refused,
    letters: (find) => lettersOf(context, { places, filter, tell }, find),
  };
}

function isOpen(
  { out }: LettersContext,
  { name }: LetterPlaceOptions,
  caution: Caution,
  isStrict: boolean,
): boolean {
  if (caution.kind !== 'refused') return true;
  const error = new RespoolError(
    'move.refused',
    `cannot look into ${name}: ${caution.text}; ${caution.remedy}`,
  );
  if (isStrict) throw error;
  out.error(error);
  return false;
}

async function* lettersOf(
  context: LettersContext,
  { places, filter, tell }: Pick<LetterLook, 'places' | 'filter' | 'tell'>,
  { ids, mayBe, signal }: FindOptions = {},
): AsyncGenerator<FoundLetter> {
  const query = ids === undefined ? filter.query : { ...filter.query, ids };
  for (const place of places) {
    for await (const open of lookInto(context, place, query, signal)) {
      if (mayBe?.(open.letter.id) === false) continue;
      const category = tell(open.letter);
      if (filter.category === undefined || filter.category === category) {
        yield { place, open, category };
      }
    }
  }
}

/** A place to look into, for those who do it themselves. */
export function addLooked(
  context: LettersContext,
  place: LetterPlaceOptions,
): { readonly look: DeadLetters['look'] } {
  return {
    look: ({ query = {}, signal } = {}) =>
      passing(context, lookInto(context, place, query, signal)),
  };
}

/** A broker limits how long messages are held: a look that ended early reports it. */
async function* lookInto(
  { out }: LettersContext,
  { letters, source, name }: LetterPlaceOptions,
  query: LetterQuery,
  signal: AbortSignal | undefined,
): AsyncGenerator<OpenLetter> {
  const how = { max: LOOK_MAX, ...(signal === undefined ? {} : { signal }) };
  if (source.kind === 'spool') {
    yield* letters.look({ ...how, query });
    return;
  }
  const { ids, ...conditions } = query;
  const named = ids === undefined ? undefined : new Set(ids);
  const there = await letters.count();
  let seen = 0;
  for await (const open of letters.look(how)) {
    seen += 1;
    const isNamed = named === undefined || named.has(open.letter.id);
    if (isNamed && fitsLetter(open.letter, conditions)) yield open;
  }
  if (seen < there) out.warn(`${safe(name)}: only ${seen} of ${there} letters were looked at`);
}

/** Which letters, where categories are no matter of the place. */
export interface LetterFilter {
  readonly query: LetterQuery;
  readonly category: Category | undefined;
  /** No condition was given at all. */
  readonly isEmpty: boolean;
}

const DEATHS_MAX = 1_000_000_000;

/** The kinds that were asked for; undefined: none were named. */
export function kindsOf({ options }: CommandContext): readonly LetterKind[] | undefined {
  const kinds = options.texts('kind') as readonly LetterKind[];
  return kinds.length === 0 ? undefined : kinds;
}

/** The question that the options make, as it stands now: ages are times. */
export function letterFilterOf({ options, io }: CommandContext): LetterFilter {
  const filter = messageFilterOf(options) ?? {};
  const { topic, code, header, text, destination, olderThan, since, enqueuedAfter } = filter;
  const now = io.clock.now();
  const given: LetterQuery = withoutUnknown({
    topic,
    code,
    header,
    text,
    origin: destination,
    group: options.filled('group'),
    deathsAbove: options.number('deathsAbove', { min: 0, max: DEATHS_MAX }),
    before: before(olderThan, now, 'olderThan'),
    after: enqueuedAfter ?? before(since, now, 'since'),
  });
  const category = options.text('category') as Category | undefined;
  const isEmpty = Object.keys(given).length === 0 && category === undefined;
  return { query: given, category, isEmpty };
}

function before(
  span: Parameters<typeof durationMs>[0] | undefined,
  now: Millis,
  name: string,
): Millis | undefined {
  return span === undefined ? undefined : now - durationMs(span, name);
}

function withoutUnknown(conditions: Readonly<Record<string, unknown>>): LetterQuery {
  return Object.fromEntries(Object.entries(conditions).filter(([, value]) => value !== undefined));
}
