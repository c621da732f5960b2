/**
 * when-and-map-errors — two small middlewares: `when` applies another one to some deliveries only;
 * `mapErrors` replaces what a handler throws before it is classified.
 */

import { isOutcome } from '../core/verdict.ts';
import type { Delivery, Middleware } from '../ports/handler.ts';
import { checkFunction } from './options.ts';

/**
 * Goes through the middleware when the predicate is true, and past it otherwise.
 *
 * @example
 * import { rateLimit, when } from 'respool/middleware';
 * const slowly = rateLimit({ max: 10, per: '1s' });
 * const middleware = [when(({ topic }) => topic.endsWith('.bulk'), slowly)];
 * spool.handle('orders.#', async () => {}, { middleware });
 */
export function when(
  predicate: (delivery: Delivery) => boolean | Promise<boolean>,
  middleware: Middleware,
): Middleware {
  checkFunction('predicate of when', predicate);
  checkFunction('middleware of when', middleware);
  return async (delivery, next) =>
    (await predicate(delivery)) ? middleware(delivery, next) : next();
}

/** Returns another error, an outcome, or undefined to keep the thrown one; it may throw instead. */
export type ErrorMap = (thrown: unknown, delivery: Delivery) => unknown;

/**
 * Maps what the handler throws: to a PermanentError or RetryableError, or to an outcome. An outcome
 * that the handler returned is not mapped.
 */
export function mapErrors(map: ErrorMap): Middleware {
  checkFunction('map of mapErrors', map);
  return async (delivery, next) => {
    try {
      return await next();
    } catch (thrown) {
      const mapped: unknown = await map(thrown, delivery);
      if (mapped === undefined) throw thrown;
      // Errors first: one that happens to have a `kind` is still an error.
      if (!(mapped instanceof Error) && isOutcome(mapped)) return mapped;
      throw mapped as Error;
    }
  };
}
