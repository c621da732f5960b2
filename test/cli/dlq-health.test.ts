/** Whether the destination of letters is well: asked of a real broker. */
import { expect, test } from 'vitest';
import { createManagement } from 'respool/rabbit';
import { healthOf, type RuleHealthOptions } from '../../src/cli/commands/dlq/replay/rule-tools.ts';
import type { LetterRoute } from '../../src/ports/dead-letters.ts';
import { ruleOf } from '../dead-letters/rules/setup.ts';
import { type RabbitShell, rabbitShell } from './rabbit-broker.ts';
import { connectAmqp } from '../rabbit/amqp.ts';
import { systemClock } from '../time.ts';

/** Asks about routes at the broker of the shell. */
async function asking(shell: RabbitShell, { hasManagement = true } = {}) {
  const amqp = await connectAmqp(shell.url);
  const management = createManagement({ url: shell.managementUrl });
  const parts: RuleHealthOptions = {
    operator: async () => ({ pauses: async () => [] }),
    reached: { amqp, management: hasManagement ? management : undefined },
    clock: systemClock,
    hide: (text) => text,
  };
  return {
    ask: (...routes: LetterRoute[]) => healthOf({ rule: ruleOf(), routes }, parts),
    [Symbol.asyncDispose]: async () => {
      await management.close();
      await amqp.close();
    },
  };
}

const routeOf = (exchange: string, key: string): LetterRoute => ({ kind: 'queue', exchange, key });

test('a queue is well when it is there and is consumed', async () => {
  const shell = await rabbitShell();
  const queue = `${shell.prefix}-orders`;
  await using health = await asking(shell);
  expect(await health.ask(routeOf('', queue))).toEqual({ why: `queue "${queue}" is not there` });
  await shell.channel.assertQueue(queue, { durable: true });
  const silent = await health.ask(routeOf('', queue));
  expect(silent).toEqual({ why: `queue "${queue}" has no consumer` });
  await shell.channel.consume(queue, () => undefined);
  expect(await health.ask(routeOf('', queue))).toBe('well');
  const both = await health.ask(routeOf('', queue), routeOf('', `${queue}-2`));
  expect(both).toEqual({ why: `queue "${queue}-2" is not there` });
});

test.each([
  ['direct', 'order.new', 'order.new', true],
  ['direct', 'order.*', 'order.new', false],
  ['topic', 'order.*', 'order.new', true],
  ['topic', 'mail.*', 'order.new', false],
  ['fanout', '', 'order.new', true],
])('behind a %s exchange, bound by "%s", %s is led: %s', async (type, pattern, key, isLed) => {
  const shell = await rabbitShell();
  const [exchange, queue] = [`${shell.prefix}-shop`, `${shell.prefix}-orders`];
  await shell.channel.assertExchange(exchange, type, { durable: true });
  await shell.channel.assertQueue(queue, { durable: true });
  await shell.channel.bindQueue(queue, exchange, pattern);
  await using health = await asking(shell);
  const silent = await health.ask(routeOf(exchange, key));
  const why = `exchange "${exchange}" with key "${key}" leads to no queue`;
  expect(silent).toEqual({ why: isLed ? `queue "${queue}" has no consumer` : why });
  await shell.channel.consume(queue, () => undefined);
  expect(await health.ask(routeOf(exchange, key))).toEqual(isLed ? 'well' : { why });
});

test('an exchange that is not there is not well, and without the management API nobody knows', async () => {
  const shell = await rabbitShell();
  const exchange = `${shell.prefix}-none`;
  await using health = await asking(shell);
  expect(await health.ask(routeOf(exchange, 'a'))).toEqual({
    why: `exchange "${exchange}" is not there`,
  });
  await using blind = await asking(shell, { hasManagement: false });
  expect(await blind.ask(routeOf(exchange, 'a'))).toEqual({
    why: expect.stringContaining('use "healthy: { http }"'),
  });
});
