/**
 * metrics — what `respool serve` counts and answers at `/metrics`, as `metrics.*` of the
 * configuration says. The library is loaded when they are on.
 */

import type { LoadedConfig } from '../../../config/load/load-config.ts';
import type { ConfiguredConsumer } from '../../../config/open/open-consumers.ts';
import type { OpenRelay } from '../../../config/open/open-outbox.ts';
import type { DiskMeter } from '../../../operator/disk-meter.ts';
import { type FlowMeter, forecastOf } from '../../../operator/throughput.ts';
import type { AlertState } from '../../../observe/alerts/state.ts';
import type { Metrics } from '../../../observe/metrics/metrics.ts';
import type { WatchedAlert, WatchOptions } from '../../../observe/metrics/types.ts';
import type { Spool } from '../../../spool/spool.ts';
import type { CommandContext } from '../../spec.ts';
import { watchConsumers, watchRelay } from './broker-metrics.ts';

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
  readonly meter: FlowMeter;
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
    ...(rules.length === 0 ? {} : { alerts: () => standingOf(rules, spool) }),
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
  { facts }: Spool,
): Promise<readonly WatchedAlert[]> {
  const { STATE_KIND } = await import('../../../observe/alerts/evaluate.ts');
  const { isFiring } = await import('../../../observe/alerts/state.ts');
  const found = await facts.list(STATE_KIND);
  const states = new Map(found.map(({ key, value }) => [key, value as AlertState]));
  return rules.map(({ name }) => {
    const state = states.get(name);
    return { rule: name, isFiring: state !== undefined && isFiring(state) };
  });
}
