/**
 * outbox — metrics of relays and of the messages that wait for them.
 *
 *   new OutboxMetrics(ground) ─▶ watchRelay(relay, outbox?, { source?, exchange? }) ─▶ stop
 *
 * The lag is how long the oldest message that should be gone has been waiting: since its emit, or
 * since its eta. The tables are queried at scrapes, at most once in `every`; while they do not
 * answer there is no series of backlog, lag and forecast. The forecast goes by the course of the
 * backlog at scrapes.
 */

import { type Millis, SECOND_MS } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import { Trend, TREND_WINDOW_MS } from '../../core/forecast.ts';
import { type State, STATES } from '../../core/state.ts';
import { internalsOf, type SpoolInternals } from '../../spool/internals.ts';
import type { PageOptions } from '../../spool/list.ts';
import type { Aliases } from './aliases.ts';
import { checkWatchNames, WATCH_RELAY_OPTIONS, type WatchRelayOptions } from './options.ts';
import type { WatchedOutbox, WatchedRelay } from './types.ts';
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
    checkWatchNames('watchRelay', options, WATCH_RELAY_OPTIONS);
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
    const course = new Trend(TREND_WINDOW_MS);
    let backlogReport: OutboxBacklog | undefined;
    const look = families.look({
      read: async () => {
        // Until it is answered nothing is known: an old backlog would look like a present one.
        backlogReport = undefined;
        backlogReport = await askOutbox(outbox);
        course.add(clock.monotonic(), backlogOf(backlogReport.counts));
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
      if (backlogReport === undefined) return;
      const { counts, lagMs } = backlogReport;
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

// The backlog of an outbox, also for alerts: what still has to be sent, by state, and the age of
// the oldest message that is due. A message that waits for its eta is not late; one that waits for
// a retry is.

/** Neither at its end nor held nor given up. */
const PENDING: ReadonlySet<string> = new Set<State>(['incoming', 'active', 'deferred']);

/** The sum over the states that are still to be delivered. */
export function backlogOf(counts: Iterable<readonly [state: string, count: number]>): number {
  let sum = 0;
  for (const [state, count] of counts) if (PENDING.has(state)) sum += count;
  return sum;
}

/** Of each such list of deferred or active messages, this many are looked at for the oldest. */
const LOOKED_AT_MAX = 100;

/** What the tables reported. */
interface OutboxBacklog {
  readonly counts: ReadonlyMap<string, number>;
  readonly lagMs: number;
}

/** Asks the tables. */
export async function askOutbox(outbox: WatchedOutbox): Promise<OutboxBacklog> {
  const spool = internalsOf(outbox.spool);
  const rows = await spool.tally('state');
  const counts = new Map(rows.map(({ key, count }) => [key, count]));
  const now = spool.now();
  const has = (state: State): boolean => (counts.get(state) ?? 0) > 0;
  const found: readonly (readonly Seen[])[] = await Promise.all([
    // Those that were never tried are due since their emit or their eta.
    has('incoming') ? first(spool, { state: 'incoming', dueBefore: now, limit: 1 }) : [],
    // By their ids those that came first, whose next try may be far; by their times what is due.
    has('deferred') ? first(spool, { state: 'deferred', order: 'id', limit: LOOKED_AT_MAX }) : [],
    has('deferred') ? first(spool, { state: 'deferred', limit: LOOKED_AT_MAX }) : [],
    has('active') ? first(spool, { state: 'active', limit: LOOKED_AT_MAX }) : [],
  ]);
  const since = found.flat().map(({ envelope }) => envelope.eta ?? envelope.enqueuedAt);
  const oldest = since.reduce<Millis>((least, at) => Math.min(least, at), now);
  return { counts, lagMs: now - oldest };
}

type Seen = Pick<Entry, 'envelope'>;

async function first(spool: SpoolInternals, query: PageOptions): Promise<readonly Seen[]> {
  return (await spool.page({ order: 'dueAt', ...query })).entries;
}
