/**
 * list — the filters of `list`, `page` and `tally` as people write them, turned into a store's
 * query.
 */

import { type Duration, durationMs, type Millis } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import { checkNames, checkOneOf, checkTopicPattern, PAGE_MAX } from '../core/limits.ts';
import { STATES, type State } from '../core/state.ts';
import type { EntryQuery, ListOrder, ListQuery, TallyBy } from '../ports/entry-store.ts';

/** Which messages; all given conditions hold together. */
export interface ListFilter extends Omit<EntryQuery, 'states' | 'destination'> {
  readonly destination?: string;
  /** One state or several; default all. */
  readonly state?: State | readonly State[];
  /** Enqueued longer ago than this. */
  readonly olderThan?: Duration;
  /** Enqueued within this. */
  readonly since?: Duration;
}

/** A filter and how to go through it. */
export interface ListOptions extends ListFilter {
  /** Default `id`: in the order they came. */
  readonly order?: ListOrder;
  readonly descending?: boolean;
}

/** One page of a list. */
export interface PageOptions extends ListOptions {
  /** The `next` of the page before. */
  readonly after?: string;
  /** 1 to 500; default 100. */
  readonly limit?: number;
}

const FILTER_NAMES = [
  'state',
  'olderThan',
  'since',
  'lane',
  'topic',
  'destination',
  'ids',
  'idPrefix',
  'header',
  'code',
  'fingerprint',
  'text',
];
const TIMES = [
  'enqueuedBefore',
  'enqueuedAfter',
  'updatedBefore',
  'updatedAfter',
  'dueBefore',
  'dueAfter',
] as const;
/** Every `ListOrder`; also in web/routes/schemas.ts and cli/commands/messages/list.ts. */
const ORDERS = ['id', 'dueAt', 'updatedAt', 'priority', 'attempts'];
const TIMES_ALLOWED = 'a number: milliseconds since 1970, as Date.now() gives them';
/** Also in docs/reference/limits.md and test/spool/look.test.ts. */
const PAGE_DEFAULT = 100;

/** The store's query for a filter. */
export function queryOf(filter: ListFilter, now: Millis): EntryQuery {
  checkNames('a list filter', filter, [...FILTER_NAMES, ...TIMES]);
  const { state, olderThan, since, ...rest } = filter;
  if (rest.topic !== undefined) checkTopicPattern(rest.topic);
  const states = state === undefined ? undefined : [state].flat();
  for (const one of states ?? []) {
    if (!STATES.includes(one)) throw invalid('state', one, STATES.join(' | '));
  }
  if (rest.lane !== undefined) checkOneOf('lane', rest.lane, ['delivery', 'notice']);
  for (const name of TIMES) {
    // A store might compare a text with its numbers, and find all of them or none.
    const time: unknown = rest[name];
    if (time !== undefined && !Number.isFinite(time)) throw invalid(name, time, TIMES_ALLOWED);
  }
  return {
    ...pick(rest),
    ...(states === undefined ? {} : { states }),
    ...(olderThan === undefined
      ? {}
      : { enqueuedBefore: now - durationMs(olderThan, 'olderThan') }),
    ...(since === undefined ? {} : { enqueuedAfter: now - durationMs(since, 'since') }),
  };
}

/** Refuses what nothing is counted by: a store may take it for the name of a column. */
export function checkTallyBy(by: TallyBy): TallyBy {
  return checkOneOf('by', by, ['state', 'topic', 'destination', 'fingerprint']);
}

/** The store's query for a page. */
export function pageQueryOf(options: PageOptions, now: Millis): ListQuery {
  const { order, descending, after, limit = PAGE_DEFAULT, ...filter } = options;
  if (order !== undefined && !ORDERS.includes(order))
    throw invalid('order', order, ORDERS.join(' | '));
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_MAX) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot use ${String(limit)} as "limit": allowed is a whole number 1 to ${PAGE_MAX}`,
    );
  }
  return {
    ...queryOf(filter, now),
    limit,
    ...(order === undefined ? {} : { order }),
    ...(descending === undefined ? {} : { descending }),
    ...(after === undefined ? {} : { after }),
  };
}

/** Only what was given: an undefined condition does not count. */
function pick(query: EntryQuery): EntryQuery {
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined));
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot use ${JSON.stringify(value)} as "${what}": allowed is ${allowed}`,
  );
}

/** Every message of a list, page by page. */
export async function* listAll<E>(
  page: (
    options: PageOptions,
  ) => Promise<{ readonly entries: readonly E[]; readonly next?: string }>,
  options: ListOptions,
): AsyncGenerator<E> {
  let after: string | undefined;
  do {
    const found = await page({
      ...options,
      limit: PAGE_MAX,
      ...(after === undefined ? {} : { after }),
    });
    yield* found.entries;
    after = found.next;
  } while (after !== undefined);
}
