/**
 * outbox — sharing queues with the workers of the Python outbox (and djoutbox).
 *
 *   {queue} ─fails─▶ {exchange}.delay_1m (fanout, by the queue's name) ─▶ {exchange}.delay_1m
 *      ▲                                                                     │ x-message-ttl
 *      └──────────── default exchange, by the queue's name ◀─────────────────┘
 *   {queue} ─rejected─▶ {exchange}.dlx (direct, by the queue's name) ─▶ {queue}.dlq
 *
 * They count in `x-delivery-count`, as text: the number of the attempt to come, so "3" means that
 * two failed. The name belongs to the broker: a quorum queue writes its own count of redeliveries,
 * a number, over it. So text is theirs; a number is theirs on a first delivery, and the broker's
 * on a redelivery: then we go by our own header, and by the waits that `x-death` lists. Those
 * are all there up to 3.13; from 4.0 on only the last is, and a message that was never ours and
 * whose worker crashed may be tried more often than it should. It is never tried less often.
 *
 * Not reproduced: reading the broker's count as an attempt number.
 */

import { checkNames } from '../../core/limits.ts';
import type { OptionTable } from '../../core/option-table.ts';
import type { AmqpMessage, Properties } from '../connection/amqp.ts';
import {
  countOf,
  HEADER,
  type Past,
  readPast,
  respoolWire,
  type Successor,
  asInt32Numbers,
  type HistoryWire,
} from '../message-history.ts';
import { checkPlanRequest, type TopologyRoute } from '../topology/styles.ts';
import {
  checkName,
  type PolicySpec,
  type QueuePlanRequest,
  type QueuePlan,
} from '../topology/model.ts';
import * as parts from '../topology/parts.ts';
import * as compat from './shared.ts';

const OUTBOX = {
  exchange: {
    kind: 'text',
    type: 'a name',
    default: 'outbox',
    about: 'their `exchange_name`, which begins most names',
  },
} as const satisfies OptionTable;

/** The options of `outbox`. */
export const OUTBOX_COMPAT_OPTIONS: OptionTable = OUTBOX;

/** What their workers were given. */
export interface OutboxCompatOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Their `exchange_name`, which begins most names. Default `outbox`. */
  readonly exchange?: string;
}

const COUNT = 'x-delivery-count';
const ROUTING_KEY = 'x-original-routing-key';

/** Shares queues with outbox workers. The policy's delays are their `retry_delays`. */
export function outbox(options: OutboxCompatOptions = {}): compat.Compat {
  checkNames('outbox()', options, Object.keys(OUTBOX));
  const exchange = checkName('exchange', options.exchange ?? OUTBOX.exchange.default);
  const wire: HistoryWire = {
    name: 'outbox',
    read: (message) => read(message, exchange),
    write,
  };
  return {
    name: 'outbox',
    wire,
    style: { name: 'outbox', plan: (request) => plan(request, exchange) },
    unsafe: UNSAFE,
  };
}

const UNSAFE: readonly string[] = [
  'Delay queues dead-letter at most once unless the policy of the plan is set at the broker: a ' +
    'broker that dies at that moment can lose a retry.',
  'Delay queues lead back through the default exchange, which has no alternate: with the policy ' +
    'of the plan 32 messages whose queue was deleted stop the whole delay queue, without it they ' +
    'are lost. Keep the queues of a fleet until the delay queues are empty.',
  'The broker writes over the counter of the outbox when a delivery is repeated: after a crash ' +
    'an outbox worker begins to count anew, and from RabbitMQ 4.0 on so do we for messages that ' +
    'were never ours.',
  'An outbox worker drops message id, correlation id, priority and expiration of what it retries.',
  'Instant retries (delay "0") are requeued by outbox workers and counted by the broker alone, ' +
    'from RabbitMQ 4.3 on by nobody.',
];

function read(message: AmqpMessage, exchange: string): Past {
  const headers = message.properties.headers ?? {};
  const own = readPast(message);
  const routingKey = compat.nonEmpty(headers[ROUTING_KEY]);
  const waited = waitsTold(headers['x-death'], `${exchange}.delay_`);
  // Our own last republish took `x-death` off: its wait is the first listed since.
  const isOurs = headers[HEADER.attempts] !== undefined;
  const attempts = isOurs ? own.attempts + Math.max(0, waited - 1) : waited;
  return compat.continuedHeaders(own, {
    attempts: Math.max(foreignAttempts(message), attempts),
    ...compat.originOf(message, {
      // Only what came back through the default exchange has a key in the header.
      exchange: routingKey === undefined ? undefined : exchange,
      routingKey,
    }),
  });
}

function foreignAttempts({ properties, fields }: AmqpMessage): number {
  const count = properties.headers?.[COUNT];
  if (typeof count !== 'string' && fields.redelivered) return 0;
  return Math.max(0, countOf(count) - 1);
}

/** How often the message waited in a queue whose name begins so, as far as `x-death` says. */
function waitsTold(deaths: unknown, prefix: string): number {
  if (!Array.isArray(deaths)) return 0;
  let waits = 0;
  for (const death of deaths as readonly unknown[]) {
    if (typeof death !== 'object' || death === null) continue;
    const { queue, reason, count } = death as Readonly<Record<string, unknown>>;
    const isWait = typeof queue === 'string' && queue.startsWith(prefix) && reason === 'expired';
    if (isWait) waits += countOf(count);
  }
  return waits;
}

function write(message: AmqpMessage, successor: Successor): Properties {
  const { past } = successor;
  const properties = respoolWire.write(message, successor);
  return {
    ...properties,
    headers: asInt32Numbers({
      ...properties.headers,
      [COUNT]: String(past.attempts + 1),
      [ROUTING_KEY]: past.routingKey,
    }),
  };
}

function plan(request: QueuePlanRequest, base: string): QueuePlan {
  checkPlanRequest(request);
  const { queue } = request;
  const deadLetters = `${base}.dlx`;
  const waits = parts.waitsOf(request);
  const nameOf = (waitMs: number): string => `${base}.delay_${theirLabel(waitMs)}`;
  const foreign: parts.TopologyPart = {
    exchanges: [
      parts.exchange(base, 'topic'),
      parts.exchange(deadLetters, 'direct'),
      ...waits.map((waitMs) => parts.exchange(nameOf(waitMs), 'fanout')),
    ],
    queues: waits.map((waitMs) =>
      compat.queueOf(nameOf(waitMs), 'wait', {
        'x-message-ttl': waitMs,
        'x-dead-letter-exchange': '',
        'x-queue-type': 'quorum',
      }),
    ),
    bindings: [
      ...waits.map((waitMs) => parts.binding(nameOf(waitMs), nameOf(waitMs), nameOf(waitMs))),
      parts.binding(parts.deadName(queue), deadLetters, queue),
    ],
  };
  const routes = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: () => ({ exchange: nameOf(waitMs), key: queue }),
    }),
  );
  return compat.planShared({
    request,
    mainArguments: {
      'x-dead-letter-exchange': deadLetters,
      'x-dead-letter-routing-key': queue,
      'x-queue-type': 'quorum',
    },
    foreign,
    routes,
    policies: policiesOf(queue, base),
    deadArguments: { 'x-queue-type': 'quorum' },
  });
}

function policiesOf(queue: string, base: string): PolicySpec[] {
  const dead = parts.deadName(queue);
  return [
    compat.compatPolicyOf(
      `${base}.delay`,
      `^${compat.literal(`${base}.delay_`)}`,
      compat.KEEPS_ALL,
    ),
    compat.compatPolicyOf(queue, `^${compat.literal(queue)}$`, compat.KEEPS_ALL),
    // n.b. From 4.0 on the broker would drop a message there after twenty looks at it.
    compat.compatPolicyOf(dead, `^${compat.literal(dead)}$`, {
      'delivery-limit': parts.DELIVERY_LIMIT_SAFE,
    }),
  ];
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;

/** A delay as they write it: `5m`, `1m30s`. They allow one text for each delay, 60s is refused. */
function theirLabel(waitMs: number): string {
  let restMs = waitMs;
  let label = '';
  for (const [unit, ms] of UNITS) {
    const count = Math.floor(restMs / ms);
    if (count > 0) label += `${count}${unit}`;
    restMs -= count * ms;
  }
  return label;
}
