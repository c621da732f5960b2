/**
 * filter-query — a filter between its two forms: query parameters in a URL, and what `list` takes.
 */

import { RespoolError } from '../core/errors.ts';
import { HEADER_NAME_PATTERN } from '../core/limits.ts';
import type { ListFilter, PageOptions } from '../spool/list.ts';
import { momentOf, spanOf, wholeOf } from './http-values.ts';

const SAME = ['idPrefix', 'topic', 'destination', 'code', 'fingerprint', 'text', 'lane'] as const;
const SPANS = ['olderThan', 'since'] as const;
/** As TIMES of spool/list.ts; the schema of all names: routes/schemas.ts. */
const MOMENTS = [
  'enqueuedBefore',
  'enqueuedAfter',
  'updatedBefore',
  'updatedAfter',
  'dueBefore',
  'dueAfter',
] as const;

type Query = Readonly<Record<string, string | readonly string[] | undefined>>;

/** The filter in a query. */
export function filterOf(query: Query): ListFilter {
  const filter: Record<string, unknown> = {};
  const take = (name: string, read: (text: string) => unknown): void => {
    const value = query[name];
    if (typeof value === 'string') filter[name] = read(value);
  };
  for (const name of SAME) take(name, (value) => value);
  for (const name of SPANS) take(name, spanOf);
  for (const name of MOMENTS) take(name, (value) => momentOf(name, value));
  take('header', headerOf);
  if (query['state'] !== undefined) filter['state'] = query['state'];
  if (query['id'] !== undefined) filter['ids'] = query['id'];
  return filter;
}

/** The page in a query. */
export function pageOf(query: Query): PageOptions {
  const { order, descending, after, limit } = query;
  return {
    ...filterOf(query),
    ...(order === undefined ? {} : { order: order as NonNullable<PageOptions['order']> }),
    ...(descending === undefined ? {} : { descending: descending === 'true' }),
    ...(typeof after === 'string' ? { after } : {}),
    ...(typeof limit === 'string' ? { limit: wholeOf('limit', limit) } : {}),
  };
}

/** The query for a filter; undefined when nothing can fit, which no query can say. */
export function queryOfFilter(filter: PageOptions): URLSearchParams | undefined {
  const { state, ids, header, ...rest } = filter;
  const query = new URLSearchParams();
  const states = state === undefined ? undefined : [state].flat();
  if (states?.length === 0 || ids?.length === 0) return undefined;
  for (const one of states ?? []) query.append('state', one);
  for (const id of ids ?? []) query.append('id', id);
  if (header !== undefined) {
    const { name, value } = header;
    query.set('header', value === undefined ? name : `${name}:${value}`);
  }
  for (const [name, value] of Object.entries(rest)) {
    if (value !== undefined) query.set(name, String(value));
  }
  return query;
}

function headerOf(text: string): NonNullable<ListFilter['header']> {
  const colon = text.indexOf(':');
  const name = colon < 0 ? text : text.slice(0, colon);
  if (!HEADER_NAME_PATTERN.test(name)) {
    throw new RespoolError(
      'config.invalid',
      'cannot use the parameter "header": allowed is a header name, or name:value',
    );
  }
  return colon < 0 ? { name } : { name, value: text.slice(colon + 1) };
}
