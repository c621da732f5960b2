/** What an engine with many routes asks its source for. */
import { expect, test } from 'vitest';
import { type HandlerRoute, Routes, HandlerSlots } from '../../src/engine/handler-slots.ts';

function routesOf(patterns: readonly string[]): Routes {
  const routes = new Routes();
  for (const pattern of patterns) {
    routes.add({
      lane: 'delivery',
      pattern,
      concurrency: 1,
      running: 0,
    } as unknown as HandlerRoute);
  }
  return routes;
}

function wantsOf(patterns: readonly string[]) {
  const settings = { concurrency: 9, destinationConcurrency: undefined, takesUnhandled: false };
  return new HandlerSlots(settings, routesOf(patterns))
    .demand([], 9)
    .wants.map(({ topics }) => topics);
}

test('a claim for a route has no rules of routes that share no topic with it', () => {
  const many = Array.from({ length: 50 }, (_, at) => `route-${at}.#`);
  expect(wantsOf(many)).toEqual(many.map((pattern) => [{ pattern, take: true }]));
});

test('a claim for a route leaves out what an earlier route serves, and no more', () => {
  expect(wantsOf(['a.b', 'c.*', '*.b', 'a.#'])[3]).toEqual([
    { pattern: 'a.b', take: false },
    { pattern: '*.b', take: false },
    { pattern: 'a.#', take: true },
  ]);
});

test('a route that is added or removed changes the claims of those after it', () => {
  const routes = routesOf(['a.b']);
  const later = { lane: 'delivery', pattern: 'a.#', concurrency: 1, running: 0 };
  routes.add(later as unknown as HandlerRoute);
  const undo = routes.add({ ...later, pattern: 'a.*' } as unknown as HandlerRoute);
  expect(routes.ownRules(routes.of('delivery')[2] as HandlerRoute)).toHaveLength(3);
  undo();
  expect(routes.of('delivery').map((route) => routes.ownRules(route).length)).toEqual([1, 2]);
});
