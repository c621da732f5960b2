/**
 * aliases — the same numbers under the names that other systems gave them, so that dashboards and
 * alerts written for those go on. Off unless asked for: each costs its own additions.
 *
 *   aliasesOf(ground) ─▶ Aliases, or undefined when none are wanted
 *
 * docs/reference/metrics.md says which of ours each one equals; a test compares them.
 */

import type { WatchedConsumer } from './broker-types.ts';
import { GoqueueAliases } from './goqueue-aliases.ts';
import type { Ground } from './context.ts';
import { OutboxAliases } from './outbox-aliases.ts';
import type { Watchable } from './types.ts';

/** Every alias that is wanted. */
export class Aliases {
  readonly #goqueue: GoqueueAliases | undefined;
  readonly #outbox: OutboxAliases | undefined;

  constructor(ground: Ground) {
    const { aliases } = ground;
    this.#goqueue = aliases.includes('goqueue') ? new GoqueueAliases(ground) : undefined;
    this.#outbox = aliases.includes('outbox') ? new OutboxAliases(ground) : undefined;
  }

  watchConsumer(consumer: WatchedConsumer, exchange: string): () => void {
    const stops = [
      this.#goqueue?.watchConsumer(consumer),
      this.#outbox?.watchConsumer(consumer, exchange),
    ];
    return () => {
      for (const stop of stops) stop?.();
    };
  }

  watchRelay(relay: Watchable, exchange: string): () => void {
    return this.#outbox?.watchRelay(relay, exchange) ?? (() => undefined);
  }

  /** What is told of queues is told anew at each scrape. */
  clearQueues(): void {
    this.#outbox?.clearQueues();
  }

  deadLetters(queue: string, count: number | undefined): void {
    this.#outbox?.deadLetters(queue, count);
  }

  consumers(queue: string, exchange: string, count: number): void {
    this.#outbox?.consumers(queue, exchange, count);
  }

  /** As of queues. */
  clearBacklogs(): void {
    this.#outbox?.clearBacklogs();
  }

  backlog(exchange: string, count: number): void {
    this.#outbox?.backlog(exchange, count);
  }
}

/** undefined: none are wanted. */
export function aliasesOf(ground: Ground): Aliases | undefined {
  return ground.aliases.length === 0 ? undefined : new Aliases(ground);
}
