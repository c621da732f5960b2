/**
 * handler-slots — which handler serves which topic (`Routes`), and how many handlers may run: in
 * all, per route, per destination (`HandlerSlots`).
 *
 * The first registered route that matches serves a message. Promise: messages of a route or
 * destination that is full before a claim are excluded by its demand, not claimed and released.
 * What fills up by the claim itself waits (claiming.ts).
 */

import type { Envelope } from '../core/entry.ts';
import type { RetryPolicy } from '../core/policy.ts';
import type { Lane } from '../core/state.ts';
import { topicMatches, patternsOverlap, type TopicRule } from '../core/topic.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { StandardSchema } from '../ports/schema.ts';
import type { Demand, Want, WantGroup } from '../ports/source.ts';

/** A handler with the topics it serves and its limits. */
export interface HandlerRoute {
  readonly lane: Lane;
  readonly pattern: string;
  readonly handler: Handler;
  readonly middleware: readonly Middleware[];
  /** A policy, or the name of one; undefined: the default. */
  readonly policy: RetryPolicy | string | undefined;
  /** How many of its messages may run at once; Infinity: as many as there are slots. */
  readonly concurrency: number;
  readonly timeoutMs: number;
  /** Validates the JSON body; a message with an invalid body is held. */
  readonly schema: StandardSchema | undefined;
  /** Chooses by envelope; one it refuses goes to the next matching route. */
  readonly picks: ((envelope: Envelope) => boolean) | undefined;
  /** Running now. */
  running: number;
}

/** Maximum number of topics in the cache of matches; beyond it the cache is cleared. */
const MATCH_CACHE_MAX = 10_000;

/** All routes of one engine, in the order they were registered. */
export class Routes {
  readonly #routes: HandlerRoute[] = [];
  /** By topic, a lane at a time: a key of both would be a new text for every message. */
  readonly #matchCache: Readonly<Record<Lane, Map<string, readonly HandlerRoute[]>>> = {
    delivery: new Map(),
    notice: new Map(),
  };
  /** By route. They change with the routes only, and are asked for by every claim. */
  readonly #ownRules = new Map<HandlerRoute, readonly TopicRule[]>();

  /** Adds a route; the returned function removes it. */
  add(route: HandlerRoute): () => void {
    this.#routes.push(route);
    this.#forget(route.lane);
    return () => {
      const at = this.#routes.indexOf(route);
      if (at >= 0) this.#routes.splice(at, 1);
      this.#forget(route.lane);
    };
  }

  /** Whether any route has a limit of its own. */
  get hasLimits(): boolean {
    return this.#routes.some((route) => Number.isFinite(route.concurrency));
  }

  /** The routes of a lane, in order. */
  of(lane: Lane): readonly HandlerRoute[] {
    return this.#routes.filter((route) => route.lane === lane);
  }

  /** The first route of the lane that matches topic and envelope. */
  find(lane: Lane, envelope: Envelope): HandlerRoute | undefined {
    const matching = this.#matching(lane, envelope.topic);
    if (matching.length === 1 && matching[0]?.picks === undefined) return matching[0];
    return matching.find((route) => route.picks === undefined || picks(route, envelope));
  }

  /** Whether any route of the lane matches the topic. */
  serves(lane: Lane, topic: string): boolean {
    return this.#matching(lane, topic).length > 0;
  }

  /** Rules that take the route's topics, less those that an earlier route of its lane serves. */
  ownRules(route: HandlerRoute): readonly TopicRule[] {
    let rules = this.#ownRules.get(route);
    if (rules === undefined) {
      rules = rulesOf(route, this.of(route.lane));
      this.#ownRules.set(route, rules);
    }
    return rules;
  }

  #matching(lane: Lane, topic: string): readonly HandlerRoute[] {
    const remembered = this.#matchCache[lane];
    const known = remembered.get(topic);
    if (known !== undefined) return known;
    const found = this.#routes.filter(
      (route) => route.lane === lane && topicMatches(route.pattern, topic),
    );
    if (remembered.size >= MATCH_CACHE_MAX) remembered.clear();
    remembered.set(topic, found);
    return found;
  }

  #forget(lane: Lane): void {
    this.#matchCache[lane].clear();
    this.#ownRules.clear();
  }
}

function picks(route: HandlerRoute, envelope: Envelope): boolean {
  try {
    return route.picks?.(envelope) ?? true;
  } catch {
    // Counts as picked: the attempt calls it again and fails with what it throws, so that the
    // message is retried with the reason in its failure.
    return true;
  }
}

/** Running messages per destination: one number for all, or by name with `'*'` for the rest. */
export type DestinationLimits = number | Readonly<Record<string, number>>;

/** The settings of the slots. */
export interface SlotSettings {
  readonly concurrency: number;
  readonly destinationConcurrency: DestinationLimits | undefined;
  /** Claim topics without a handler too, to hold them. */
  readonly takesUnhandled: boolean;
}

/** Counts running handlers and says which others may start. */
export class HandlerSlots {
  readonly #settings: SlotSettings;
  readonly #routes: Routes;
  readonly #byDestination = new Map<string, number>();
  #running = 0;
  /** Slots kept for a claim request that is in flight. */
  #keptForClaims = 0;

  constructor(settings: SlotSettings, routes: Routes) {
    this.#settings = settings;
    this.#routes = routes;
  }

  get running(): number {
    return this.#running;
  }

  get free(): number {
    return Math.max(0, this.#settings.concurrency - this.#running - this.#keptForClaims);
  }

  /** Keeps slots for a claim request that is in flight, so that hand-offs do not take them. */
  keepForClaims(count: number): void {
    this.#keptForClaims = count;
  }

  /** Whether a message of this route and destination may start now. */
  hasRoom(route: HandlerRoute | undefined, destination: string | undefined): boolean {
    if (route !== undefined && route.running >= route.concurrency) return false;
    return destination === undefined || !this.#isFull(destination);
  }

  take(route: HandlerRoute | undefined, destination: string | undefined): void {
    this.#running += 1;
    if (route !== undefined) route.running += 1;
    if (destination === undefined || this.#settings.destinationConcurrency === undefined) return;
    this.#byDestination.set(destination, (this.#byDestination.get(destination) ?? 0) + 1);
  }

  give(route: HandlerRoute | undefined, destination: string | undefined): void {
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
    const lanes = [this.#wants('delivery', stopped, max), this.#wants('notice', stopped, max)];
    return {
      max,
      wants: lanes.flatMap(({ wants }) => wants),
      groups: lanes.flatMap(({ groups }) => groups),
      exceptDestinations: this.#fullDestinations(),
    };
  }

  #wants(
    lane: Lane,
    stopped: readonly TopicRule[],
    max: number,
  ): { readonly wants: readonly Want[]; readonly groups: readonly WantGroup[] } {
    const routes = this.#routes.of(lane);
    const limited = routes.filter((route) => Number.isFinite(route.concurrency));
    // All routes without a limit of their own, in one claim.
    const open: TopicRule[] = routes.map((route) => ({
      pattern: route.pattern,
      take: !Number.isFinite(route.concurrency),
    }));
    if (routes.length > 0 && lane === 'delivery' && this.#settings.takesUnhandled)
      open.push({ pattern: '#', take: true });
    const wants: Want[] = open.some((rule) => rule.take)
      ? [{ lane, topics: [...stopped, ...open], max }]
      : [];
    // Each route with a limit, in a claim of its own for as many as it has room for.
    const own = new Map<HandlerRoute, Want>();
    for (const route of limited) {
      const room = Math.min(max, route.concurrency - route.running);
      if (room > 0)
        own.set(route, { lane, topics: [...stopped, ...this.#routes.ownRules(route)], max: room });
    }
    const group = groupOf(own, routes, stopped);
    return { wants: [...wants, ...own.values()], groups: group === undefined ? [] : [group] };
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

/**
 * The wants of routes with room for as many as half of them have: those that are nearly full would
 * make the claim small. Undefined if there are no two.
 */
function groupOf(
  own: ReadonlyMap<HandlerRoute, Want>,
  routes: readonly HandlerRoute[],
  stopped: readonly TopicRule[],
): WantGroup | undefined {
  const rooms = [...own.values()].map(({ max }) => max).toSorted((a, b) => b - a);
  const room = rooms[Math.floor((rooms.length - 1) / 2)] ?? 0;
  const members = new Set([...own].flatMap(([route, want]) => (want.max >= room ? [route] : [])));
  const of = [...own].flatMap(([route, want]) => (members.has(route) ? [want] : []));
  const [first] = of;
  if (first === undefined || of.length < 2) return undefined;
  const rules = routes
    // What an earlier route picks by envelope may be for a member: only that of others is left out.
    .filter((route) => members.has(route) || route.picks === undefined)
    .map((route) => ({ pattern: route.pattern, take: members.has(route) }));
  return { together: { lane: first.lane, topics: [...stopped, ...rules], max: room }, of };
}

/** See Routes.ownRules. Leaves out earlier routes that share no topic: stores check each rule. */
function rulesOf(route: HandlerRoute, routes: readonly HandlerRoute[]): TopicRule[] {
  const earlier = routes.slice(0, routes.indexOf(route));
  const rules: TopicRule[] = [];
  for (const other of earlier) {
    // A route that picks by envelope may pass its topics on, so they cannot be ruled out for later
    // ones.
    if (other.picks !== undefined || !patternsOverlap(other.pattern, route.pattern)) continue;
    rules.push({ pattern: other.pattern, take: false });
    if (topicMatches(other.pattern, route.pattern)) break;
  }
  return [...rules, { pattern: route.pattern, take: true }];
}
