/** connection — how a broker is reached: over TLS, under a name, with a heartbeat. */

import { connect as connectTcp } from 'node:net';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import {
  createConnection,
  createPublisher,
  type RabbitConnection,
  rabbitSink,
} from 'respool/rabbit';
import { type Clock, isRespoolError } from 'respool';
import { createIdMaker } from '../../src/system/ids.ts';
import { CERTIFICATE, KEY } from '../deliver/certificate.ts';
import { service, withService } from '../services/index.ts';
import { consume, Hands, ownName, Tray } from './ground.ts';
import { until } from './until.ts';
import { systemClock } from '../time.ts';

/** A door with TLS before the broker; the same bytes go through. */
async function tlsDoor(target: string): Promise<string> {
  const { hostname, port, username, password } = new URL(target);
  const server = createServer({ key: KEY, cert: CERTIFICATE }, (client) => {
    const broker = connectTcp(Number(port), hostname);
    client.on('error', () => broker.destroy());
    broker.on('error', () => client.destroy());
    client.pipe(broker).pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    server.close();
  });
  const { port: own } = server.address() as AddressInfo;
  return `amqps://${username}:${password}@localhost:${own}`;
}

/** What the broker says of a connection, by its name; its numbers come late. */
async function seenByBroker(name: string): Promise<Record<string, unknown>> {
  const { origin, username, password } = new URL(await service('rabbitmq-management'));
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  return until(async () => {
    const answer = await fetch(`${origin}/api/connections`, { headers: { authorization } });
    const all = (await answer.json()) as Record<string, unknown>[];
    return all.find(({ user_provided_name: given }) => given === name);
  });
}

test('tries to connect again by the clock and the chance that were given', async () => {
  const waits: number[] = [];
  const after: Clock['after'] = (ms, call) => {
    waits.push(ms);
    return systemClock.after(0, call);
  };
  const clock = { ...systemClock, after };
  const connection = createConnection({
    url: 'amqp://127.0.0.1:1',
    clock,
    dice: { random: () => 0 },
  });
  const abort = new AbortController();
  const connected = connection.publishing.connected(abort.signal).catch(() => 'given up');
  while (waits.length < 3) await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  expect(await connected).toBe('given up');
  await connection.close();
  expect(waits.slice(0, 3)).toEqual([50, 100, 200]);
});

withService('rabbitmq', (url) => {
  const AT = 1_800_000_000_000;
  const clock = { ...systemClock, now: () => AT };
  const dice = { random: () => 0.5 };

  test('a consumer writes times and ids by the clock and the chance that were given', async () => {
    const hands = await Hands.open();
    const queue = ownName();
    const { plan } = await consume({ queue, clock, dice }, (delivery) => delivery.hold('look'));
    await hands.publish('', queue, {});
    const { headers, messageId } = (await hands.take(plan.parked.key)).properties;
    expect(headers).toMatchObject({ 'respool-ended-at': AT, 'respool-first-at': AT });
    expect(messageId).toBe(createIdMaker(dice)(AT));
  });

  test('a publisher writes times and ids by the clock and the chance that were given', async () => {
    const hands = await Hands.open();
    const queue = ownName();
    await hands.channel.assertQueue(queue, { exclusive: true });
    const publisher = createPublisher({ url: url(), exchange: '', clock, dice });
    onTestFinished(() => publisher.close());
    const { id } = await publisher.publish({ key: queue, body: {} });
    expect(id).toBe(createIdMaker(dice)(AT));
    expect((await hands.take(queue)).properties).toMatchObject({
      messageId: id,
      timestamp: AT / 1_000,
    });
  });

  const open = (options: object): RabbitConnection => {
    const connection = createConnection({ url: url(), ...options });
    onTestFinished(() => connection.close());
    return connection;
  };

  test('consumers and publishers go over TLS to a broker whose certificate is trusted', async () => {
    const door = await tlsDoor(url());
    const tls = { ca: CERTIFICATE };
    const queue = ownName();
    const seen = new Tray<string>();
    await consume({ queue, url: door, tls }, ({ id }) => seen.add(id));
    const publisher = createPublisher({ url: door, tls, exchange: '' });
    onTestFinished(() => publisher.close());
    await publisher.publish({ key: queue, body: {}, id: 'm' });
    const sink = rabbitSink({ url: door, tls, exchange: '', key: queue });
    onTestFinished(() => sink.close());
    const parcel = { id: 'p', topic: 't', headers: {}, body: Buffer.from('{}'), enqueuedAt: 1 };
    expect(await sink.send([parcel])).toEqual(['confirmed']);
    expect(await seen.until(2)).toEqual(['m', 'p']);
  });

  test('a certificate that nobody vouches for is refused, unless one asks for it', async () => {
    const door = await tlsDoor(url());
    const refused: unknown = await open({ url: door })
      .publishing.tryConnect()
      .catch((error: unknown) => error);
    expect(isRespoolError(refused, 'broker.unavailable')).toBe(true);
    expect(String(refused)).toMatch(/certificate/);
    const trusting = open({ url: door, tls: { rejectUnauthorized: false } });
    await trusting.publishing.tryConnect();
    expect(trusting.publishing.isUp).toBe(true);
  });

  test('the broker knows both connections by name and heartbeat', async () => {
    const name = ownName('conn');
    const connection = open({ name, heartbeat: '7s' });
    await connection.consuming.tryConnect();
    await connection.publishing.tryConnect();
    const [consuming, publishing] = await Promise.all([
      seenByBroker(`${name} consuming`),
      seenByBroker(`${name} publishing`),
    ]);
    expect(consuming).toMatchObject({ timeout: 7 });
    expect(consuming['name']).not.toBe(publishing['name']);
  });

  test('a consumer has one connection for deliveries and another for what it publishes', async () => {
    const name = ownName('conn');
    await consume({ queue: ownName(), name }, () => undefined);
    const consuming = await seenByBroker(`${name} consuming`);
    const publishing = await seenByBroker(`${name} publishing`);
    expect(consuming['name']).not.toBe(publishing['name']);
  });
});
