/**
 * What is at a broker is as it was: exchanges, queues, bindings, policies and routes of every style
 * and compat mode, and the headers that carry the past of a message. Another declaration of a queue
 * that exists is refused by the broker, and a header under another name loses what was counted.
 */
import {
  type Compat,
  goqueue,
  outbox,
  perAttempt,
  perDelay,
  type QueuePlanRequest,
  type QueueType,
  shared,
  spring,
  toDefinitions,
  type TopologyStyle,
} from 'respool/rabbit';
import { failure, ladder } from 'respool';
import { describe, expect, test } from 'vitest';
import { type Past, respoolWire, type Successor } from '../../src/rabbit/message-history.ts';
import { messageOf, nextOf } from '../rabbit/compat/messages.ts';
import { compactJson } from './compact-json.ts';

const TYPES: readonly QueueType[] = ['quorum', 'classic'];

const STYLES: Readonly<Record<string, TopologyStyle>> = {
  shared: shared(),
  'shared-prefix': shared({ prefix: 'mail' }),
  'per-delay': perDelay(),
  'per-delay-exchange': perDelay({ by: 'exchange', exchange: 'shop' }),
  'per-attempt': perAttempt(),
};

/** The defaults, and every option. */
const COMPATS: Readonly<Record<string, Compat>> = {
  goqueue: goqueue(),
  'goqueue-retries': goqueue({ maxRetries: 6 }),
  outbox: outbox(),
  'outbox-exchange': outbox({ exchange: 'shop' }),
  spring: spring(),
  'spring-options': spring({
    waitExchange: 'app.wait',
    returnExchange: 'app.return',
    waitQueuePrefix: 'app.wait.',
    deadLetterExchange: 'app.dead',
    deadQueue: 'app.dead.orders',
    waitArguments: { 'x-queue-type': 'quorum' },
  }),
  'spring-plain': spring({ deadLetterExchange: false }),
};

const styles = Object.entries(STYLES).flatMap(([name, style]) =>
  TYPES.map((type) => ({ name, type, style })),
);
const compats = Object.entries(COMPATS).map(([name, compat]) => ({ name, compat }));

describe('the topology of', () => {
  test.each(styles)('style $name, $type', async ({ name, type, style }) => {
    await expect(planText(style, type)).toMatchFileSnapshot(`rabbit/${name}-${type}.json`);
  });

  test.each(compats)('compat $name', async ({ name, compat: { style } }) => {
    await expect(planText(style, 'classic')).toMatchFileSnapshot(`rabbit/${name}.json`);
  });
});

const WIRES = [
  { name: 'respool', wire: respoolWire },
  ...[goqueue(), outbox(), spring()].map(({ name, wire }) => ({ name, wire })),
];

test.each(WIRES)('the properties of a message that waits or is dead, $name', async (one) => {
  const { name, wire } = one;
  const message = messageOf({
    fields: { exchange: 'shop', routingKey: 'order.created' },
    properties: {
      messageId: 'm-1',
      contentType: 'application/json',
      headers: { 'x-retry-policy': 'mail', tenant: 'acme', 'wait-for': '2s' },
    },
  });
  const waiting = wire.write(message, SUCCESSOR);
  const next = nextOf(message, waiting);
  const dead = wire.write(next, { ...SUCCESSOR, ending: ENDING });
  const text = compactJson({ waiting, past: wire.read(next, 'orders'), dead });
  await expect(text).toMatchFileSnapshot(`rabbit/properties-${name}.json`);
});

const AT = Date.UTC(2026, 0, 1);

const PAST: Past = {
  attempts: 2,
  lost: 1,
  postponed: 3,
  exchange: 'shop',
  routingKey: 'order.created',
  firstAt: AT,
  restMs: 500,
  firstFailedAt: AT + 1_000,
  lastFailure: failure('transient', 'http.503', 'upstream is away'),
  lastFailedAt: AT + 2_000,
  expiresAfterMs: 86_400_000,
  policy: 'mail',
  notes: { upstream: 'a' },
};

const SUCCESSOR: Successor = { past: PAST, queue: 'orders', id: 'made-up', routing: undefined };

const ENDING = {
  kind: 'dead',
  code: 'attempts.spent',
  reason: 'upstream is away',
  at: AT + 3_000,
  by: 'policy',
} as const;

/** Definitions, and where a message goes by each verdict. */
function planText(style: TopologyStyle, type: QueueType): string {
  const order: QueuePlanRequest = {
    queue: 'orders',
    type,
    policy: ladder(['2s', '250ms', '1m', '2s']),
    extraWaitsMs: [15_000],
    bindings: [
      { exchange: 'shop', key: 'order.*' },
      { exchange: 'audit', type: 'fanout' },
      { exchange: 'theirs', key: 'order', type: false, arguments: { kind: 'order' } },
    ],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: { 'x-max-priority': 5 },
  };
  const plan = style.plan(order);
  const { exchanges, queues, bindings, policies } = toDefinitions(plan.topology);
  const waits = [
    { delayMs: 250, attempt: 2 },
    { delayMs: 2_000, attempt: 4 },
    { delayMs: 9_000, attempt: 0 },
    { delayMs: 86_400_000, attempt: 1 },
  ].map((wait) => ({
    ...wait,
    route: plan.wait({ ...wait, routingKey: 'order.created' }),
  }));
  return compactJson({
    style: style.name,
    type: plan.type,
    exchanges: sorted(exchanges),
    queues: sorted(queues),
    bindings: sorted(bindings),
    policies: sorted(policies),
    waitsMs: plan.waitsMs,
    waits,
    again: plan.again,
    dead: plan.dead,
    parked: plan.parked,
  });
}

/** What belongs together has no order at the broker. */
function sorted<T>(items: readonly T[]): readonly T[] {
  const text = (item: T): string => JSON.stringify(item);
  return items.toSorted((a, b) => (text(a) < text(b) ? -1 : 1));
}
