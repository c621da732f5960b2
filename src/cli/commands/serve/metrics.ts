/**
 * metrics — what `respool serve` counts and answers at `/metrics`, as `metrics.*` of the
 * configuration says. The library is loaded when they are on.
 */

import { brokerAt, tlsOfRabbit } from '../../../config/load/brokers.ts';
import type { EffectiveConsumer } from '../../../config/load/consumers.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { ConfiguredConsumer } from '../../../config/open/open-consumers.ts';
import type { OpenRelay } from '../../../config/open/open-outbox.ts';
import type { AlertState } from '../../../observe/alerts/state.ts';
import type { Metrics } from '../../../observe/metrics/metrics.ts';
import type { WatchedAlert, WatchOptions } from '../../../observe/metrics/types.ts';
import type { DiskMeter } from '../../../spool/operator/disk-meter.ts';
import { type ThroughputMeter, forecastOf } from '../../../spool/operator/throughput.ts';
import { createManagement, type Management } from '../../../rabbit/management/management.ts';
import { internalsOf, type SpoolInternals } from '../../../spool/internals.ts';
import type { Spool } from '../../../spool/spool.ts';
import type { CommandContext } from '../../spec.ts';

/** Metrics of a service. */
export interface ServeMetrics extends Pick<Metrics, 'text'> {
  /** All consumers of the configuration, in its order. */
  readonly watchConsumers: (made: readonly ConfiguredConsumer[]) => Promise<void>;
  readonly watchRelay: (made: OpenRelay) => void;
  /** From now on forecasts are told. */
  readonly watchMeters: (meters: Meters) => void;
}

/** What forecasts are made of. */
interface Meters {
  readonly meter: ThroughputMeter;
  readonly disk: DiskMeter | undefined;
}

/** Begins to count what the spool does; undefined: metrics are off. */
export async function startMetrics(
  { io, atEnd }: CommandContext,
  { config }: LoadedConfig,
  spool: Spool,
): Promise<ServeMetrics | undefined> {
  const { enabled, aliases, topicsMax, queuesMax, every } = config.metrics;
  if (!enabled) return undefined;
  const { createMetrics } = await import('../../../observe/metrics/metrics.ts');
  const metrics = await createMetrics({
    aliases,
    topicsMax,
    queuesMax,
    every,
    processMetrics: true,
    clock: io.clock,
  });
  atEnd(() => metrics.close());
  let meters: Meters | undefined;
  const forecast: WatchOptions['forecast'] = (backlog) =>
    meters === undefined || !spool.load.isRunning
      ? undefined
      : forecastOf(meters.meter.flow, backlog, meters.disk?.fullInMs ?? null);
  const { rules } = config.alerts;
  metrics.watch(spool, {
    forecast,
    ...(rules.length === 0 ? {} : { alerts: () => standingOf(rules, internalsOf(spool)) }),
  });
  return {
    text: () => metrics.text(),
    watchConsumers: (made) => watchConsumers(metrics, config, made, atEnd),
    watchRelay: (made) => watchRelay(metrics, config, made),
    watchMeters: (given) => {
      meters = given;
    },
  };
}

/** Every rule of the configuration, as it is on record; one that is not has never fired. */
async function standingOf(
  rules: LoadedConfig['config']['alerts']['rules'],
  { records }: SpoolInternals,
): Promise<readonly WatchedAlert[]> {
  const { STATE_KIND } = await import('../../../observe/alerts/evaluate.ts');
  const { isFiring } = await import('../../../observe/alerts/state.ts');
  const found = await records.list(STATE_KIND);
  const states = new Map(found.map(({ key, value }) => [key, value as AlertState]));
  return rules.map(({ name }) => {
    const state = states.get(name);
    return { rule: name, isFiring: state !== undefined && isFiring(state) };
  });
}

// The consumers and the relay of a configuration, watched. The management API is
// asked only where the configuration names it: a guess would fail at every scrape.

type Config = LoadedConfig['config'];

/** Watches them all, in the order of the configuration; `atEnd` is told what ends with it. */
async function watchConsumers(
  metrics: Pick<Metrics, 'watchConsumer'>,
  config: Config,
  made: readonly ConfiguredConsumer[],
  atEnd: (close: () => Promise<void>) => void,
): Promise<void> {
  const tls = await tlsOfRabbit(config.rabbit);
  // One client for all consumers of a broker: they share connections and answers.
  const clients = new Map<string, Management>();
  const clientOf = (effective: EffectiveConsumer): Management | undefined => {
    const { isManagementNamed, managementUrl, vhost, url } = brokerAt(
      effective.url,
      [effective],
      config.rabbit,
    );
    if (!isManagementNamed) return undefined;
    const secured = tls === undefined ? {} : { tls };
    const client = clients.get(url) ?? createManagement({ url: managementUrl, vhost, ...secured });
    if (!clients.has(url)) atEnd(() => client.close());
    clients.set(url, client);
    return client;
  };
  for (const [at, { consumer }] of made.entries()) {
    const effective = config.consumers[at];
    const management = effective === undefined ? undefined : clientOf(effective);
    metrics.watchConsumer(consumer, {
      exchange: effective?.bindings[0]?.exchange ?? '',
      ...(management === undefined ? {} : { management }),
    });
  }
}

/** Watches it, with what waits in its outbox. */
export function watchRelay(
  metrics: Pick<Metrics, 'watchRelay'>,
  { outbox: effective }: Config,
  { relay, outbox }: OpenRelay,
): void {
  const target = effective?.relay?.target;
  const exchange = target?.kind === 'amqp' ? target.exchange : '';
  const stop = metrics.watchRelay(relay, outbox, { exchange });
  // A scrape while the service stops must not open the outbox again.
  relay.on('engine-stopped', stop);
}
