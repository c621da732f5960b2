/** when — a middleware for some deliveries only. */

import type { Delivery, Middleware } from '../ports/handler.ts';
import { checkFunction } from './options.ts';

/** Goes through the middleware when the predicate is true, and past it otherwise. */
export function when(
  predicate: (delivery: Delivery) => boolean | Promise<boolean>,
  middleware: Middleware,
): Middleware {
  checkFunction('predicate of when', predicate);
  checkFunction('middleware of when', middleware);
  return async (delivery, next) =>
    (await predicate(delivery)) ? middleware(delivery, next) : next();
}
