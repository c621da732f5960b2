/**
 * page — the keyset pages of a list: checks of limit and place, for every store.
 *
 * A place names the last entry of a page by its order value and id, so that the next page goes on
 * behind it whatever came, went or moved meanwhile. It is bound to the order it was given for.
 */

import { RespoolError } from '../../core/errors.ts';
import { PAGE_MAX } from '../../core/limits.ts';
import type { ListOrder, ListQuery } from '../../ports/entry-store.ts';

/** The last entry of the page before. */
export interface PagePosition {
  /** `orderValue` of the entry; 0 in a list by id. */
  readonly value: number;
  readonly id: string;
}

/** What a list query asks for, checked. */
export interface PageRequest {
  readonly order: ListOrder;
  readonly descending: boolean;
  readonly limit: number;
  readonly after?: PagePosition;
}

/** Reads a list query; a limit outside 1 to 500 and a place no list gave are refused. */
export function readPage(query: ListQuery): PageRequest {
  const { order = 'id', descending = false, limit } = query;
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_MAX) {
    throw new RespoolError(
      'limit.exceeded',
      `cannot list ${limit} entries: a page holds 1 to ${PAGE_MAX}; ask for the next page after it`,
    );
  }
  const request = { order, descending, limit };
  if (query.after === undefined) return request;
  return { ...request, after: readPlace(query.after, request) };
}

/** How many heads of order keys are asked for; anything but 1 to 500 is refused. */
export function readHeadsMax(max: number): number {
  if (Number.isInteger(max) && max >= 1 && max <= PAGE_MAX) return max;
  throw new RespoolError(
    'limit.exceeded',
    `cannot tell the heads of ${max} order keys: allowed is 1 to ${PAGE_MAX} at once`,
  );
}

/** Writes down a place for `next`. */
export function writePlace(
  { order, descending }: Pick<PageRequest, 'order' | 'descending'>,
  { value, id }: PagePosition,
): string {
  return Buffer.from(JSON.stringify([order, descending, value, id])).toString('base64url');
}

function readPlace(text: string, request: Pick<PageRequest, 'order' | 'descending'>): PagePosition {
  const parts = parse(text);
  if (Array.isArray(parts) && parts.length === 4) {
    const [order, descending, value, id] = parts as readonly unknown[];
    const isOfThisList = order === request.order && descending === request.descending;
    if (isOfThisList && typeof value === 'number' && typeof id === 'string') return { value, id };
  }
  throw new RespoolError(
    'config.invalid',
    `cannot continue the list: ${JSON.stringify(text.slice(0, 80))} is not the end of a page ` +
      'of this order; pass "next" of the page before, with the same order',
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    // Not ours, then: the caller refuses it with the reason.
    return undefined;
  }
}
