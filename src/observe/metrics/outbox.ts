/**
 * outbox — metrics of relays and of the messages that wait for them.
 *
 *   new OutboxMetrics(ground) ─▶ watchRelay(relay, outbox?, { source?, exchange? }) ─▶ stop
 *
 * The lag is how long the oldest message that should be gone has been waiting: since its emit, or
 * since its eta. The tables are asked when somebody scrapes; while they do not answer there is no
 * series of backlog, lag and forecast. The forecast goes by the course of the backlog at scrapes.
 */

import { SECOND_MS } from '../../core/duration.ts';
import { Trend, TREND_MS } from '../../core/forecast.ts';
import { checkNames } from '../../core/limits.ts';
import { STATES } from '../../core/state.ts';
import type { Aliases } from './aliases.ts';
import { askOutbox, backlogOf, type OutboxBacklog } from '../backlog.ts';
import type { WatchedOutbox, WatchedRelay, WatchRelayOptions } from './types.ts';
import type { NumberFamily } from './families.ts';
import type { MetricsContext } from './context.ts';
import { recordEvents, recordLoad, recordSettled } from './source-rows.ts';

/** The outbox metrics of one `createMetrics`. */
export class OutboxMetrics {
  readonly #ground: MetricsContext;
  readonly #aliases: Aliases | undefined;
  readonly #backlog: NumberFamily;
  readonly #lag: NumberFamily;
  readonly #up: NumberFamily;

  constructor(ground: MetricsContext, aliases?: Aliases) {
    const gauge = (name: string, help: string): NumberFamily =>
      ground.families.gauge({ name, help, labels: ['source'] });
    this.#ground = ground;
    this.#aliases = aliases;
    this.#backlog = gauge('outbox_backlog', 'Messages of an outbox that are not sent yet.');
    this.#lag = gauge(
      'outbox_lag_seconds',
      'How long the oldest message that should be sent has been waiting; 0: none waits.',
    );
    this.#up = gauge('outbox_target_up', '0 while the target of a relay does not answer, else 1.');
    // Before every relay adds its own: two may send to one exchange.
    if (aliases !== undefined) ground.families.atScrape(() => aliases.clearBacklogs());
  }

  /** Counts its events, and asks the outbox for what waits; returns the end. */
  watchRelay(
    relay: WatchedRelay,
    outbox?: WatchedOutbox,
    options: WatchRelayOptions = {},
  ): () => void {
    checkNames('watchRelay', options, ['source', 'exchange']);
    const { source = 'relay', exchange = '' } = options;
    const ground = this.#ground;
    const stops = [
      ground.takeSource('relay', source),
      recordEvents(ground, relay, source),
      recordLoad(ground, relay, source),
      recordSettled(ground, relay, source),
      this.#tellTarget(relay, source),
      this.#aliases?.watchRelay(relay, exchange),
      outbox === undefined ? undefined : this.#tellBacklog(outbox, source, exchange),
    ];
    return () => {
      for (const stop of stops) stop?.();
    };
  }

  #tellTarget(relay: WatchedRelay, source: string): () => void {
    const { families, core } = this.#ground;
    const stop = families.atScrape(() => {
      const { downSince, paused } = relay.load;
      this.#up.row(source).value = Number(downSince === undefined);
      core.pausedTopics.row(source).value = paused.length;
    });
    return () => {
      stop();
      this.#up.drop(source);
      core.pausedTopics.drop(source);
    };
  }

  #tellBacklog(outbox: WatchedOutbox, source: string, exchange: string): () => void {
    const { families, core, clock } = this.#ground;
    const failures = core.scrapeFailures.row(source);
    const course = new Trend(TREND_MS);
    let told: OutboxBacklog | undefined;
    const look = families.look({
      read: async () => {
        // Until it is answered nothing is known: an old backlog would look like a present one.
        told = undefined;
        told = await askOutbox(outbox);
        course.add(clock.monotonic(), backlogOf(told.counts));
      },
      onFailure: () => {
        failures.value += 1;
      },
    });
    const forget = (): void => {
      for (const state of STATES) core.messages.drop(source, state);
      this.#backlog.drop(source);
      this.#lag.drop(source);
      core.forecastDrain.drop(source);
    };
    const stop = families.atScrape(() => {
      forget();
      if (told === undefined) return;
      const { counts, lagMs } = told;
      for (const state of STATES) core.messages.row(source, state).value = counts.get(state) ?? 0;
      const backlog = backlogOf(counts);
      this.#backlog.row(source).value = backlog;
      this.#lag.row(source).value = lagMs / SECOND_MS;
      const drainsInMs = course.endsInMs ?? null;
      if (drainsInMs !== null) core.forecastDrain.row(source).value = drainsInMs / SECOND_MS;
      this.#aliases?.backlog(exchange, backlog);
    });
    return () => {
      stop();
      look.stop();
      forget();
    };
  }
}
