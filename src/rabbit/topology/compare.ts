/** compare — what is at the broker beside what should be, argument by argument. Pure. */

import { isDeepStrictEqual } from 'node:util';
import { show } from '../../core/errors.ts';
import type { Table } from '../connection/amqp.ts';
import type {
  BindingInfo,
  ExchangeInfo,
  PolicyInfo,
  QueueInfo,
} from '../admin/management/index.ts';
import type { Difference } from './explain.ts';
import type { BindingSpec, ExchangeSpec, PolicySpec, QueueSpec } from './model.ts';

export function exchangeDifferences(want: ExchangeSpec, have: ExchangeInfo): Difference[] {
  return [
    ...fieldDifferences(
      { type: want.type, durable: want.durable, internal: want.internal },
      { type: have.type, durable: have.durable, internal: have.internal },
    ),
    ...fieldDifferences({ autoDelete: want.autoDelete }, { autoDelete: have.autoDelete }),
    ...fieldDifferences(want.arguments, have.arguments),
  ];
}

export function queueDifferences(want: QueueSpec, have: QueueInfo): Difference[] {
  const { 'x-queue-type': type, ...wanted } = want.arguments;
  const { 'x-queue-type': _, ...there } = have.arguments;
  return [
    // Without an explicit type, the default of the virtual host applies.
    ...(type === undefined
      ? []
      : fieldDifferences({ 'x-queue-type': type }, { 'x-queue-type': have.type })),
    ...fieldDifferences(
      { durable: want.durable, exclusive: want.exclusive, autoDelete: want.autoDelete },
      { durable: have.durable, exclusive: have.exclusive, autoDelete: have.autoDelete },
    ),
    ...fieldDifferences(wanted, there),
  ];
}

export function policyDifferences(want: PolicySpec, have: PolicyInfo): Difference[] {
  return [
    ...fieldDifferences(
      { pattern: want.pattern, priority: want.priority },
      { pattern: have.pattern, priority: have.priority },
    ),
    ...fieldDifferences(want.definition, have.definition),
  ];
}

/** Two bindings are one when all four of these are the same. */
export function isSameBinding(want: BindingSpec, have: BindingInfo): boolean {
  return (
    have.to === 'queue' &&
    have.destination === want.queue &&
    have.exchange === want.exchange &&
    have.key === want.key &&
    isDeepStrictEqual({ ...have.arguments }, { ...want.arguments })
  );
}

function fieldDifferences(want: Table, have: Table): Difference[] {
  const names = new Set([...Object.keys(want), ...Object.keys(have)]);
  const differences: Difference[] = [];
  for (const argument of names) {
    if (isDeepStrictEqual(want[argument], have[argument])) continue;
    differences.push({ argument, have: shown(have[argument]), want: shown(want[argument]) });
  }
  return differences;
}

function shown(value: unknown): string | undefined {
  return value === undefined ? undefined : typeof value === 'string' ? value : show(value);
}
