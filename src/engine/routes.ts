/**
 * routes — which handler serves which topic. The first registered match wins.
 */

import type { Envelope } from '../core/entry.ts';
import type { RetryPolicy } from '../core/policy.ts';
import type { Lane } from '../core/state.ts';
import { topicMatches } from '../core/topic.ts';
import type { Handler, Middleware } from '../ports/handler.ts';
import type { StandardSchema } from '../ports/schema.ts';

/** A handler with the topics it serves and its limits. */
export interface Route {
  readonly lane: Lane;
  readonly pattern: string;
  readonly handler: Handler;
  readonly middleware: readonly Middleware[];
  /** A policy, or the name of one; undefined: the default. */
  readonly policy: RetryPolicy | string | undefined;
  /** How many of its messages may run at once; Infinity: as many as there are slots. */
  readonly concurrency: number;
  readonly timeoutMs: number;
  /** Fits the body; a body that does not fit is held. */
  readonly schema: StandardSchema | undefined;
  /** Chooses by envelope; one it refuses goes to the next matching route. */
  readonly picks: ((envelope: Envelope) => boolean) | undefined;
  /** Running now. */
  running: number;
}

/** Topics are many but not endless: past this the memory of matches starts afresh. */
const MEMORY_MAX = 10_000;

/** All routes of one engine, in the order they were registered. */
export class Routes {
  readonly #routes: Route[] = [];
  /** By topic, a lane at a time: a key of both would be a new text for every message. */
  readonly #remembered: Readonly<Record<Lane, Map<string, readonly Route[]>>> = {
    delivery: new Map(),
    notice: new Map(),
  };

  /** Adds a route; the returned function takes it away again. */
  add(route: Route): () => void {
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
  of(lane: Lane): readonly Route[] {
    return this.#routes.filter((route) => route.lane === lane);
  }

  /** The first route of the lane that matches topic and envelope. */
  find(lane: Lane, envelope: Envelope): Route | undefined {
    const matching = this.#matching(lane, envelope.topic);
    if (matching.length === 1 && matching[0]?.picks === undefined) return matching[0];
    return matching.find((route) => route.picks === undefined || picks(route, envelope));
  }

  /** Whether any route of the lane matches the topic. */
  serves(lane: Lane, topic: string): boolean {
    return this.#matching(lane, topic).length > 0;
  }

  #matching(lane: Lane, topic: string): readonly Route[] {
    const remembered = this.#remembered[lane];
    const known = remembered.get(topic);
    if (known !== undefined) return known;
    const found = this.#routes.filter(
      (route) => route.lane === lane && topicMatches(route.pattern, topic),
    );
    if (remembered.size >= MEMORY_MAX) remembered.clear();
    remembered.set(topic, found);
    return found;
  }

  #forget(lane: Lane): void {
    this.#remembered[lane].clear();
  }
}

function picks(route: Route, envelope: Envelope): boolean {
  try {
    return route.picks?.(envelope) ?? true;
  } catch {
    // Chosen all the same: the attempt asks once more and fails with what it throws, so that the
    // message is retried and its failure tells why.
    return true;
  }
}
