/** How often a message died, by tables: honest headers and hostile ones. */

import { describe, expect, test } from 'vitest';
import { type DeathRule, deathsOf } from '../../../src/rabbit/queues/letter.ts';
import { HEADER } from '../../../src/rabbit/message-history.ts';
import type { Table } from '../amqp.ts';

const SWEPT = 'orders.dlq';

interface Row {
  readonly title: string;
  readonly headers: Table | undefined;
  readonly rule?: Partial<DeathRule>;
  readonly count: number;
}

function died(queue: string, reason: string, count: unknown): Table {
  return { queue, reason, count, exchange: '', 'routing-keys': [queue] };
}

const REJECTED = died('orders', 'rejected', 3);
const RETURNED = died(SWEPT, 'expired', 3);
const WAITED = died('orders.wait', 'expired', 5);

const HONEST: readonly Row[] = [
  { title: 'no headers', headers: undefined, count: 0 },
  { title: 'no deaths', headers: { a: 1 }, count: 0 },
  { title: 'rejected by the work queue', headers: { 'x-death': [REJECTED] }, count: 3 },
  {
    title: 'round trips through the swept queue count once',
    headers: { 'x-death': [RETURNED, REJECTED] },
    count: 3,
  },
  {
    title: 'several reasons in one work queue are summed',
    headers: { 'x-death': [REJECTED, died('orders', 'expired', 2)] },
    count: 5,
  },
  {
    title: 'several work queues are summed',
    headers: { 'x-death': [REJECTED, died('stock', 'delivery_limit', 2)] },
    count: 5,
  },
  { title: 'waits alone count', headers: { 'x-death': [WAITED] }, count: 5 },
  {
    title: 'several waits alone are summed',
    headers: { 'x-death': [WAITED, died('orders.wait2', 'expired', 2)] },
    count: 7,
  },
  {
    title: 'of work and waits the more counts, not both',
    headers: { 'x-death': [WAITED, REJECTED] },
    count: 5,
  },
  {
    title: 'our own attempts are added to work, not to waits',
    headers: { 'x-death': [WAITED, REJECTED], [HEADER.attempts]: 4 },
    count: 7,
  },
  { title: 'our own attempts alone count', headers: { [HEADER.attempts]: 4 }, count: 4 },
  {
    title: 'what we kept of the deaths counts where they are gone',
    headers: { [HEADER.deaths]: JSON.stringify([REJECTED, RETURNED]) },
    count: 3,
  },
  {
    title: 'what we kept does not count beside the deaths themselves',
    headers: {
      [HEADER.deaths]: JSON.stringify([REJECTED]),
      'x-death': [died('orders', 'maxlen', 1)],
    },
    count: 1,
  },
  {
    title: 'an entry of an old release counts one',
    headers: { 'x-death': [{ queue: 'orders', reason: 'rejected' }] },
    count: 1,
  },
  {
    title: 'with reasons only they count, also in the swept queue',
    headers: { 'x-death': [RETURNED, REJECTED, WAITED], [HEADER.attempts]: 9 },
    rule: { reasons: ['expired'] },
    count: 8,
  },
  {
    title: 'with queues only they count',
    headers: { 'x-death': [RETURNED, REJECTED, WAITED] },
    rule: { queues: ['orders', 'x*'] },
    count: 3,
  },
  {
    title: 'with a pattern of queues and a reason both hold',
    headers: { 'x-death': [RETURNED, REJECTED, WAITED] },
    rule: { queues: ['orders.w*'], reasons: ['rejected'] },
    count: 0,
  },
  {
    title: 'empty lists of reasons and queues are none',
    headers: { 'x-death': [REJECTED] },
    rule: { queues: [], reasons: [] },
    count: 3,
  },
];

const HOSTILE: readonly Row[] = [
  { title: 'a text instead of a list', headers: { 'x-death': 'rejected' }, count: 0 },
  { title: 'a table instead of a list', headers: { 'x-death': REJECTED }, count: 0 },
  { title: 'null', headers: { 'x-death': null }, count: 0 },
  { title: 'things that are no entries', headers: { 'x-death': [1, null, 'x', []] }, count: 0 },
  { title: 'names of wrong types', headers: { 'x-death': [died(7 as never, 'x', 2)] }, count: 0 },
  { title: 'a negative count', headers: { 'x-death': [died('q', 'rejected', -5)] }, count: 0 },
  { title: 'a count in digits', headers: { 'x-death': [died('q', 'rejected', '12')] }, count: 12 },
  { title: 'a count in words', headers: { 'x-death': [died('q', 'rejected', 'many')] }, count: 0 },
  { title: 'a count that is none', headers: { 'x-death': [died('q', 'rejected', NaN)] }, count: 0 },
  { title: 'half a death', headers: { 'x-death': [died('q', 'rejected', 1.5)] }, count: 0 },
  {
    title: 'counts beyond all numbers',
    headers: {
      'x-death': [
        died('q', 'rejected', Number.MAX_SAFE_INTEGER),
        died('r', 'rejected', Number.MAX_SAFE_INTEGER),
      ],
    },
    count: Number.MAX_SAFE_INTEGER,
  },
  {
    title: 'more entries than are read',
    headers: { 'x-death': Array.from({ length: 100_000 }, () => died('q', 'rejected', 1)) },
    count: 1_000,
  },
  { title: 'kept deaths that are no JSON', headers: { [HEADER.deaths]: '[{' }, count: 0 },
  { title: 'kept deaths that are a number', headers: { [HEADER.deaths]: 7 }, count: 0 },
  {
    title: 'kept deaths of any length',
    headers: { [HEADER.deaths]: JSON.stringify([REJECTED]) + ' '.repeat(100_000) },
    count: 0,
  },
  { title: 'attempts of a wrong type', headers: { [HEADER.attempts]: { a: 1 } }, count: 0 },
  { title: 'negative attempts', headers: { [HEADER.attempts]: -1 }, count: 0 },
];

describe('deaths', () => {
  for (const { title, headers, rule, count } of [...HONEST, ...HOSTILE]) {
    test(`${title}: ${count}`, () => {
      expect(deathsOf(headers, { sweptQueue: SWEPT, ...rule })).toBe(count);
    });
  }
});
