/**
 * tracking — which messages led to a message: a chain of ids that is added to everything emitted
 * into an outbox in a scope, as one header. Public: `tracking`, `withTracking`, `trackingIds`,
 * `trackingOf`.
 *
 *   tracking(…) ─▶ emit: header = ids of the scope + its own id ─▶ listen: scope of its handler
 *                                                            ─▶ any handler behind `withTracking`
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Headers } from '../core/entry.ts';
import { RespoolError, show } from '../core/errors.ts';
import { TRACKING_HEADER } from '../core/reserved-headers.ts';
import type { Middleware } from '../ports/handler.ts';
import { systemClock, systemDice } from '../system/clock.ts';
import { createIdMaker } from '../system/ids.ts';

/**
 * Maximum length: messages that lead to each other in a cycle must not grow without limit. Also in
 * docs/reference/outbox.md.
 */
const CHAIN_MAX = 50;
const TRACKING_ID_MAX_CHARS = 128;

const scope = new AsyncLocalStorage<readonly string[]>();
const newId = createIdMaker(systemDice);

/**
 * Runs `fn` in a scope: everything emitted in it carries the ids of the scope. Without ids, those
 * of the scope around it and a new one.
 */
export function tracking<T>(fn: () => T): T;
export function tracking<T>(ids: readonly string[], fn: () => T): T;
export function tracking<T>(first: readonly string[] | (() => T), fn?: () => T): T {
  if (typeof first === 'function') {
    return scope.run(bounded([...trackingIds(), newId(systemClock.now())]), first);
  }
  if (typeof fn === 'function') return scope.run(bounded(checkIds(first)), fn);
  throw unusable(fn, 'a function, or a list of ids and a function');
}

/** The ids of the scope we are in, the oldest first; none outside of one. */
export function trackingIds(): readonly string[] {
  return scope.getStore() ?? [];
}

/**
 * Middleware for spools and consumers: handlers run in the chain of their message, as those of
 * `listen` do.
 *
 * @example
 * import { createSpool } from 'respool';
 * import { createOutbox, tracking, trackingIds, trackingOf, withTracking } from 'respool/outbox';
 * const outbox = createOutbox({ url: 'postgres://localhost/shop' });
 * const emit = () => outbox.transaction((tx) => outbox.emit(tx, 'orders', { id: 7 }));
 * await tracking(['request-7'], emit);
 * // A relay brings it into this spool; what the handler emits has the ids that led to it.
 * const chained = createSpool({ path: 'spool', middleware: [withTracking] });
 * chained.handle('orders', async ({ headers }) => {
 *   console.log(trackingOf(headers), trackingIds());
 * });
 */
export const withTracking: Middleware = (delivery, next) =>
  tracking(trackingOf(delivery.headers), next);

/** The header of a message that is emitted in this scope, once its id is known. */
export function trackingHeader(): (id: string) => string {
  const ids = trackingIds();
  return (id) => JSON.stringify(bounded([...ids, id]));
}

/** The chain in the headers of a message, its last 50 ids; of one that cannot be read, none. */
export function trackingOf(headers: Headers): readonly string[] {
  const text = Object.hasOwn(headers, TRACKING_HEADER) ? headers[TRACKING_HEADER] : undefined;
  if (typeof text !== 'string') return [];
  try {
    const ids: unknown = JSON.parse(text);
    return Array.isArray(ids) ? bounded(ids.filter(isTrackingId)) : [];
  } catch {
    // Another system wrote something else there: no chain, and no reason to refuse the message.
    return [];
  }
}

function bounded(ids: readonly string[]): readonly string[] {
  return ids.slice(-CHAIN_MAX);
}

function isTrackingId(id: unknown): id is string {
  return (
    typeof id === 'string' && id !== '' && id.length <= TRACKING_ID_MAX_CHARS && id.isWellFormed()
  );
}

function checkIds(ids: unknown): readonly string[] {
  const allowed = `a list of ids with 1 to ${TRACKING_ID_MAX_CHARS} characters each`;
  if (!Array.isArray(ids)) throw unusable(ids, allowed);
  const wrong = ids.findIndex((id) => !isTrackingId(id));
  if (wrong >= 0) throw unusable(ids[wrong], allowed);
  return ids as readonly string[];
}

function unusable(value: unknown, allowed: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot begin tracking with ${show(value)}: allowed is ${allowed}`,
  );
}
