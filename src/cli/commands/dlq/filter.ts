/** filter — which dead letters a command is about: the question that its options make. */

import type { Category } from '../../../core/category.ts';
import { durationMs, type Millis } from '../../../core/duration.ts';
import type { LetterKind, LetterQuery } from '../../../ports/dead-letters.ts';
import { messageFilterOf } from '../../select-messages.ts';
import type { CommandContext } from '../../spec.ts';

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
