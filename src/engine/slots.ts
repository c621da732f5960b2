/**
 * slots — how many handlers may run: in all, per route, per destination. Full ones are excluded in
 * the claim, not claimed and released.
 */

import { type TopicRule, topicMatches } from '../core/topic.ts';
import type { Lane } from '../core/state.ts';
import type { Demand, Want } from '../ports/source.ts';
import type { Route, Routes } from './routes.ts';

/** Running messages per destination: one number for all, or by name with `'*'` for the rest. */
export type DestinationLimits = number | Readonly<Record<string, number>>;

/** What a slot table needs to know. */
export interface SlotSettings {
  readonly concurrency: number;
  readonly destinationConcurrency: DestinationLimits | undefined;
  /** Claim topics without a handler too, to hold them. */
  readonly takesUnhandled: boolean;
}

/** Counts what runs and says what could run besides. */
export class Slots {
  readonly #settings: SlotSettings;
  readonly #routes: Routes;
  readonly #byDestination = new Map<string, number>();
  #running = 0;
  /** Slots promised to a claim that is on its way. */
  #promised = 0;

  constructor(settings: SlotSettings, routes: Routes) {
    this.#settings = settings;
    this.#routes = routes;
  }

  get running(): number {
    return this.#running;
  }

  get free(): number {
    return Math.max(0, this.#settings.concurrency - this.#running - this.#promised);
  }

  /** Keeps slots for a claim that is on its way, so that hand-offs do not take them twice. */
  promise(count: number): void {
    this.#promised = count;
  }

  /** Whether a message of this route and destination may start now. */
  hasRoom(route: Route | undefined, destination: string | undefined): boolean {
    if (route !== undefined && route.running >= route.concurrency) return false;
    return destination === undefined || !this.#isFull(destination);
  }

  take(route: Route | undefined, destination: string | undefined): void {
    this.#running += 1;
    if (route !== undefined) route.running += 1;
    if (destination === undefined || this.#settings.destinationConcurrency === undefined) return;
    this.#byDestination.set(destination, (this.#byDestination.get(destination) ?? 0) + 1);
  }

  give(route: Route | undefined, destination: string | undefined): void {
    this.#running -= 1;
    if (route !== undefined) route.running -= 1;
    if (destination === undefined || this.#settings.destinationConcurrency === undefined) return;
    const left = (this.#byDestination.get(destination) ?? 1) - 1;
    if (left > 0) this.#byDestination.set(destination, left);
    else this.#byDestination.delete(destination);
  }

  /** What to ask a source for, with these topics paused. */
  demand(paused: readonly string[], max: number): Demand {
    const stopped = paused.map((pattern) => ({ pattern, take: false }));
    const wants = [
      ...this.#wants('delivery', stopped, max),
      ...this.#wants('notice', stopped, max),
    ];
    return { max, wants, exceptDestinations: this.#fullDestinations() };
  }

  #wants(lane: Lane, stopped: readonly TopicRule[], max: number): Want[] {
    const routes = this.#routes.of(lane);
    if (routes.length === 0) return [];
    const limited = routes.filter((route) => Number.isFinite(route.concurrency));
    // The many: everything but the routes with a limit of their own, in one claim.
    const open: TopicRule[] = routes.map((route) => ({
      pattern: route.pattern,
      take: !Number.isFinite(route.concurrency),
    }));
    if (lane === 'delivery' && this.#settings.takesUnhandled)
      open.push({ pattern: '#', take: true });
    const wants: Want[] = open.some((rule) => rule.take)
      ? [{ lane, topics: [...stopped, ...open], max }]
      : [];
    // The few: one claim each, for no more than the route has room for.
    for (const route of limited) {
      const room = Math.min(max, route.concurrency - route.running);
      if (room > 0)
        wants.push({ lane, topics: [...stopped, ...onlyFor(route, routes)], max: room });
    }
    return wants;
  }

  #isFull(destination: string): boolean {
    const limits = this.#settings.destinationConcurrency;
    if (limits === undefined) return false;
    const limit =
      typeof limits === 'number'
        ? limits
        : ((Object.hasOwn(limits, destination) ? limits[destination] : limits['*']) ??
          Number.POSITIVE_INFINITY);
    return (this.#byDestination.get(destination) ?? 0) >= limit;
  }

  #fullDestinations(): string[] {
    const full: string[] = [];
    for (const destination of this.#byDestination.keys()) {
      if (this.#isFull(destination)) full.push(destination);
    }
    return full;
  }
}

/** Rules that take a route's topics, less those that an earlier route serves. */
function onlyFor(route: Route, routes: readonly Route[]): TopicRule[] {
  const earlier = routes.slice(0, routes.indexOf(route));
  const rules: TopicRule[] = [];
  for (const other of earlier) {
    // A route that picks by envelope may pass its topics on, so they cannot be ruled out for later
    // ones.
    if (other.picks !== undefined) continue;
    rules.push({ pattern: other.pattern, take: false });
    if (topicMatches(other.pattern, route.pattern)) break;
  }
  return [...rules, { pattern: route.pattern, take: true }];
}
