/**
 * missing-handlers — reports what is set up wrongly and would otherwise be silent for minutes:
 * messages of a topic that no handler of this process serves, unknown policies, handlers that get
 * nothing.
 *
 * Reported as events, and so to a logger; once on stderr where nothing listens. A topic is reported
 * one second after the start, or after its message was accepted, whichever is later: so handlers
 * may be registered before or right after both. What another process stored meanwhile is found by
 * the caretaker.
 */

import type { Millis } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import { patternsCovering } from '../core/topic.ts';
import type { Events } from '../engine/events.ts';
import type { HandlerRoute, Routes } from '../engine/handler-slots.ts';
import type { Clock } from '../ports/clock.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { SpoolSource } from './source.ts';

/**
 * Delay before a topic without a handler is reported, milliseconds. Also in
 * docs/reference/errors.md, docs/reference/events.md and docs/operations/a-message-is-stuck.md.
 */
const GRACE_MS = 1_000;
/** Maximum number of topics to remember; each is reported once. */
const TOPICS_MAX = 1_000;
/**
 * Messages of before the start that are looked at; behind them, topics are.
 * test/stores/sqlite/looks.test.ts allows for 1,000.
 */
const LOOK_MAX = 500;
/** Maximum number of topics in one look; each is asked for by itself. */
const TOPICS_LOOKED_AT = 100;
const WAITING = ['incoming', 'deferred'] as const;

/** What the reports need. */
interface MissingHandlersOptions {
  readonly entries: EntryStore;
  readonly source: Pick<SpoolSource, 'now'>;
  readonly routes: Routes;
  readonly events: Events;
  readonly clock: Clock;
  readonly unhandled: 'hold' | 'leave';
}

type Warning = 'handler-missing' | 'handler-unreachable' | 'policy-unknown';

/** Reports topics without a handler, and the like. */
export class MissingHandlers {
  readonly #parts: MissingHandlersOptions;
  /** The first message of each topic that had no handler, until it is looked at again. */
  readonly #open = new Map<string, string>();
  readonly #reported = new Set<string>();
  readonly #warned = new Set<Warning>();
  #cancel: (() => void) | undefined;
  #isRunning = false;

  constructor(parts: MissingHandlersOptions) {
    this.#parts = parts;
  }

  /** The engine runs: what is not served from now on will wait. */
  start(): void {
    if (this.#parts.unhandled === 'leave') return;
    this.#isRunning = true;
    this.#cancel = this.#parts.clock.after(GRACE_MS, () => {
      this.#cancel = undefined;
      void this.#lookAtStart();
    });
  }

  stop(): void {
    this.#isRunning = false;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** A message was accepted. */
  accepted({ id, topic }: { readonly id: string; readonly topic: string }): void {
    const { routes, unhandled, clock } = this.#parts;
    if (routes.serves('delivery', topic) || unhandled === 'leave') return;
    if (this.#reported.has(topic) || this.#open.has(topic)) return;
    if (this.#reported.size + this.#open.size >= TOPICS_MAX) return;
    this.#open.set(topic, id);
    if (!this.#isRunning || this.#cancel !== undefined) return;
    this.#cancel = clock.after(GRACE_MS, () => {
      this.#cancel = undefined;
      this.#tellOpen();
    });
  }

  /** A message names a policy that is not known here. */
  policyUnknown({ id, topic }: { id: string; topic: string }, policy: string): void {
    const { events, source } = this.#parts;
    if (events.hears('policy-unknown')) {
      events.emit({ at: source.now(), kind: 'policy-unknown', id, topic, policy });
      return;
    }
    const text = `message "${id}" names policy "${policy}", which is not registered here; `;
    this.#warn('policy-unknown', `${text}the default policy is used`);
  }

  /** A handler is about to be registered: those before it may take all its messages. */
  registering({ lane, pattern }: Pick<HandlerRoute, 'lane' | 'pattern'>): void {
    const { events, source, routes } = this.#parts;
    const whole = routes.of(lane).filter((route) => route.picks === undefined);
    const patterns = whole.map((route) => route.pattern);
    const covering = patternsCovering(patterns, pattern);
    if (covering === undefined) return;
    const name = lane === 'delivery' ? 'handler' : 'bounce handler';
    const names = covering.map((at) => `"${patterns[at] ?? ''}"`).join(' and ');
    const earlier = covering.length === 1 ? `the one for ${names} was` : `those for ${names} were`;
    const text =
      `the ${name} for "${pattern}" gets no message: ${earlier} registered before, and the ` +
      'first match wins';
    if (!events.hears('trouble')) return this.#warn('handler-unreachable', text);
    const error = new RespoolError('config.invalid', text);
    events.emit({ at: source.now(), kind: 'trouble', doing: `registering a ${name}`, error });
  }

  /** Looks for what was due before, of topics that may have no handler; reads nothing else. */
  async look(topics: readonly string[], dueBefore: Millis): Promise<void> {
    const { entries, routes } = this.#parts;
    const isNew = (topic: string): boolean =>
      !routes.serves('delivery', topic) && !this.#reported.has(topic) && !this.#open.has(topic);
    if (!this.#isRunning) return;
    for (const topic of topics.filter(isNew).slice(0, TOPICS_LOOKED_AT)) {
      const rules = [{ pattern: topic, take: true }];
      const asked = { lane: 'delivery', states: WAITING, topics: rules } as const;
      const dueAt = await entries.nextDueAt(asked);
      if (dueAt === null || dueAt >= dueBefore) continue;
      const query = { states: WAITING, topic, order: 'dueAt', dueBefore, limit: 1 } as const;
      for (const { envelope } of (await entries.list(query)).entries) this.accepted(envelope);
    }
  }

  /** Also what was stored before this process started. */
  async #lookAtStart(): Promise<void> {
    const { entries, source } = this.#parts;
    if (this.#isHeldAtOnce()) return this.#tellOpen();
    try {
      const dueBefore = source.now() + 1;
      const query = { states: WAITING, order: 'dueAt', dueBefore } as const;
      const page = await entries.list({ ...query, limit: LOOK_MAX });
      for (const { envelope } of page.entries) this.accepted(envelope);
      if (page.next !== undefined) {
        const rows = await entries.tally('topic', { states: WAITING });
        const topics = rows.map(({ key }) => key);
        await this.look(topics, dueBefore);
      }
    } catch {
      // The next claim meets the same error, and reports it.
    }
    if (this.#isRunning) this.#tellOpen();
  }

  /** Whether the engine holds unhandled messages at once, with an event for each. */
  #isHeldAtOnce(): boolean {
    const { routes, entries } = this.#parts;
    return entries.traits.processes === 'one' && routes.of('delivery').length > 0;
  }

  #tellOpen(): void {
    const { routes, source, events } = this.#parts;
    const isHeldAtOnce = this.#isHeldAtOnce();
    for (const [topic, id] of this.#open) {
      this.#open.delete(topic);
      if (routes.serves('delivery', topic)) continue;
      this.#reported.add(topic);
      if (!events.hears('handler-missing')) {
        const text = `no handler for topic "${topic}" in this process: message "${id}" waits`;
        this.#warn('handler-missing', `${text}; register one with handle("${topic}", …)`);
      } else if (!isHeldAtOnce) {
        events.emit({ at: source.now(), kind: 'handler-missing', id, topic });
      }
    }
  }

  /** Once of a kind: listeners get them all. */
  #warn(code: Warning, text: string): void {
    if (this.#warned.has(code)) return;
    this.#warned.add(code);
    process.emitWarning(`${text}. Further ones are events only: spool.on("*", …) or a logger`, {
      type: 'RespoolWarning',
      code,
    });
  }
}
