/** options — what may be said about metrics and about what they watch, with defaults and ranges. */

import type { Registry } from '@prometheus-io/client';
import type { Duration } from '../../core/duration.ts';
import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkOneOf } from '../../core/limits.ts';
import {
  CLOCK_OPTION,
  type Option,
  type OptionTable,
  readOptions,
} from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ManagementOptions } from '../../rabbit/management/http.ts';
import type { Management } from '../../rabbit/management/management.ts';
import { systemClock } from '../../system/clock.ts';
import type { WatchedAlert, WatchedForecast } from './types.ts';

/** Names that other systems know the same numbers by. */
export const METRIC_ALIASES = ['goqueue', 'outbox'] as const;
/** A system whose metric names are written as well. */
export type MetricAlias = (typeof METRIC_ALIASES)[number];

const PREFIX_PATTERN = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

const METRICS = {
  registry: {
    kind: 'code',
    type: 'a registry',
    ts: 'Registry',
    defaultText: 'its own',
    about:
      'where the metrics are registered; two sets with the same prefix in one registry are refused',
  },
  prefix: {
    kind: 'text',
    type: 'A-Z a-z 0-9 _, with no digit first',
    default: 'respool',
    about: 'the prefix of every name, without the `_`',
  },
  aliases: {
    kind: 'data',
    type: 'a list of `goqueue` and `outbox`',
    ts: 'readonly MetricAlias[]',
    schema: 'metricAliases',
    defaultText: 'none',
    about:
      '[names of other systems](metrics.md#names-of-other-systems) for the same numbers, in ' +
      'addition',
  },
  topicsMax: {
    kind: 'number',
    min: 1,
    max: 10_000,
    default: 100,
    about: 'topics with a label of their own; the others are `other`',
  },
  queuesMax: { kind: 'number', min: 1, max: 10_000, default: 500, about: 'the same for queues' },
  every: {
    kind: 'duration',
    min: '1s',
    max: '1h',
    default: '15s',
    about: 'maximum age of counts of the store and depths of queues',
  },
  processMetrics: {
    kind: 'boolean',
    default: false,
    about: 'also memory, CPU, event loop and garbage collection of Node',
  },
  clock: CLOCK_OPTION,
} as const;

/** Every option of `createMetrics()`. */
export const METRICS_OPTIONS: Readonly<Record<keyof MetricsOptions, Option>> = METRICS;

const SOURCE = {
  kind: 'text',
  about: 'the label `source`; two with the same name, including relays, cannot be watched at once',
} as const;

/** Every option of `watch()`. */
export const WATCH_OPTIONS: Readonly<Record<keyof WatchOptions, Option>> = {
  source: { ...SOURCE, default: 'spool' },
  forecast: {
    kind: 'code',
    type: '`(backlog) => ({ drainsInMs, fullInMs })`',
    ts: '(backlog: number) => WatchedForecast | undefined',
    about:
      'provides the [forecasts](#states) of the backlog; a number is null, or everything ' +
      'undefined, while unknown',
  },
  alerts: {
    kind: 'code',
    type: '`async () => [{ rule, isFiring }]`',
    ts: '() => Promise<readonly WatchedAlert[]>',
    about:
      'the state of every rule, so that its [metrics](#alerts) exist before it fires and after a ' +
      'restart; called at most once in `every`',
  },
};

const EXCHANGE = {
  kind: 'text',
  about: 'the label `exchange_name` of the alias `outbox`',
} as const;

/** Every option of `watchConsumer()`. */
export const WATCH_CONSUMER_OPTIONS: Readonly<Record<keyof WatchConsumerOptions, Option>> = {
  management: {
    kind: 'code',
    ts: 'Management | ManagementOptions',
    about:
      'your own client of the management API, or its address; without it only depths and ' +
      'consumers are reported',
  },
  exchange: EXCHANGE,
};

/** Every option of `watchPublisher()`. */
export const WATCH_PUBLISHER_OPTIONS: Readonly<Record<keyof WatchPublisherOptions, Option>> = {
  name: { kind: 'text', required: true, about: 'the label `publisher`' },
};

/** Every option of `watchRelay()`. */
export const WATCH_RELAY_OPTIONS: Readonly<Record<keyof WatchRelayOptions, Option>> = {
  source: { ...SOURCE, default: 'relay' },
  exchange: EXCHANGE,
};

/** How metrics are kept. */
export interface MetricsOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Where the metrics are registered; two sets with the same prefix in one registry are refused.
   * Default its own.
   */
  readonly registry?: Registry;
  /** The prefix of every name, without the `_`. Default `respool`. */
  readonly prefix?: string;
  /** Names of other systems for the same numbers, in addition. */
  readonly aliases?: readonly MetricAlias[];
  /** Topics with a label of their own; the others are `other`. 1 to 10,000; default 100. */
  readonly topicsMax?: number;
  /** The same for queues. 1 to 10,000; default 500. */
  readonly queuesMax?: number;
  /** Maximum age of counts of the store and depths of queues. 1s to 1h; default 15s. */
  readonly every?: Duration;
  /** Also memory, CPU, event loop and garbage collection of Node. Default false. */
  readonly processMetrics?: boolean;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

/** How a watched spool is called, and what else is reported of it. */
export interface WatchOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * The label `source`; two with the same name, including relays, cannot be watched at once.
   * Default `spool`.
   */
  readonly source?: string;
  /**
   * Provides the forecasts of the backlog; a number is null, or everything undefined, while
   * unknown.
   */
  readonly forecast?: (backlog: number) => WatchedForecast | undefined;
  /**
   * The state of every rule, so that its metrics exist before it fires and after a restart; called
   * at most once in `every`.
   */
  readonly alerts?: () => Promise<readonly WatchedAlert[]>;
}

/** What to ask about queues besides the consumer's own connection. */
export interface WatchConsumerOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Your own client of the management API, or its address; without it only depths and consumers are
   * reported.
   */
  readonly management?: Management | ManagementOptions;
  /** The label `exchange_name` of the alias `outbox`. */
  readonly exchange?: string;
}

/** How a publisher is called. */
export interface WatchPublisherOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The label `publisher`. */
  readonly name: string;
}

/** How a relay is called. */
export interface WatchRelayOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * The label `source`; two with the same name, including relays, cannot be watched at once.
   * Default `relay`.
   */
  readonly source?: string;
  /** The label `exchange_name` of the alias `outbox`. */
  readonly exchange?: string;
}

/** Options of `createMetrics()`, checked, with defaults. */
export interface CheckedMetricsOptions {
  readonly prefix: string;
  readonly aliases: readonly MetricAlias[];
  readonly topicsMax: number;
  readonly queuesMax: number;
  readonly everyMs: number;
  readonly processMetrics: boolean;
  readonly clock: Clock;
}

export function checkMetricsOptions(options: MetricsOptions): CheckedMetricsOptions {
  const values = readOptions({ what: 'createMetrics' }, options, METRICS);
  const { prefix = METRICS.prefix.default, aliases = [], clock = systemClock } = options;
  if (typeof prefix !== 'string' || !PREFIX_PATTERN.test(prefix)) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(prefix)} as "prefix": allowed is ${METRICS.prefix.type}`,
    );
  }
  for (const alias of aliases) checkOneOf('aliases', alias, METRIC_ALIASES);
  return { ...values, prefix, aliases, clock };
}

/** Refuses unknown names among the options of one of the methods. */
export function checkWatchNames(what: string, options: object, table: OptionTable): void {
  checkNames(what, options, Object.keys(table));
}
