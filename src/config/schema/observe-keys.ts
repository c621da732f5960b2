/**
 * observe-keys — the keys of metrics, traces and alerts; a part of keys.ts.
 */

import { DAY_MS, HOUR_MS, SECOND_MS } from '../../core/duration.ts';
import { checkOneOf } from '../../core/limits.ts';
import { METRIC_ALIASES } from '../../observe/metrics/types.ts';
import { type Key, range, span, trueOrFalse } from './key.ts';
import { refused } from '../load/config-errors.ts';

/** Every key of what is to be seen, in the order of printing. */
export const OBSERVE_KEYS: readonly Key[] = [
  {
    key: 'metrics.enabled',
    kind: 'boolean',
    type: '`true` or `false`',
    byDefault: true,
    check: trueOrFalse,
  },
  {
    key: 'metrics.aliases',
    kind: 'data',
    type: 'a list of `goqueue` and `outbox`',
    defaultText: 'none',
    check: aliases,
  },
  {
    key: 'metrics.topicsMax',
    kind: 'number',
    type: '1 to 10,000',
    byDefault: 100,
    check: range(1, 10_000),
  },
  {
    key: 'metrics.queuesMax',
    kind: 'number',
    type: '1 to 10,000',
    byDefault: 500,
    check: range(1, 10_000),
  },
  {
    key: 'metrics.every',
    kind: 'duration',
    type: 'duration, 1s to 1h',
    byDefault: '15s',
    check: span(SECOND_MS, HOUR_MS),
  },
  {
    key: 'tracing.enabled',
    kind: 'boolean',
    type: '`true` or `false`',
    byDefault: false,
    check: trueOrFalse,
  },
  {
    key: 'alerts.every',
    kind: 'duration',
    type: 'duration, 1s to 1d',
    byDefault: '15s',
    check: span(SECOND_MS, DAY_MS),
  },
  { key: 'alerts.to', kind: 'data', type: '[receivers](#alerts) by name' },
  { key: 'alerts.rules', kind: 'data', type: 'a list of [rules](#alerts)' },
];

function aliases(value: unknown, what: string): void {
  if (!Array.isArray(value))
    throw refused(what, value, `a list of ${METRIC_ALIASES.join(' and ')}`);
  for (const one of value) checkOneOf(what, one, METRIC_ALIASES);
}
