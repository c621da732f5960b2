/** A message that ends the connection or the channel of whoever sends it, ahead of all others. */
import { connect as dial, createServer, type AddressInfo, type Socket } from 'node:net';
import { transaction } from 'respool/outbox';
import { describe, expect, onTestFinished, test } from 'vitest';
import { service, skipReason } from '../services/index.ts';
import { ground, idsOf } from './relay-ground.ts';

const POISON = 'POISON';
const OTHERS = 30;

const reason = skipReason('rabbitmq') ?? skipReason('postgres');

describe.skipIf(reason !== undefined)('a message that nobody gets through', () => {
  test('does not keep back those behind it, pays for it, and does not make the relay spin', async () => {
    const road = await openRoad(await service('rabbitmq'));
    const { outbox, pool, broker, emit } = await ground();
    const { id } = await transaction(pool, (tx) => outbox.emit(tx, 'q.first', POISON));
    const others = await emit(OTHERS);
    const relay = outbox.relay({ to: { amqp: road.url, exchange: broker.exchange } });
    onTestFinished(() => relay.stop({ within: '1s' }));
    await relay.start();
    // One that lost its answer with a connection is sent again: all others, some of them twice.
    await expect.poll(() => new Set(idsOf(broker.messages))).toEqual(new Set(others));
    const status = async () => (await outbox.spool.get(id))?.status;
    const code = async () => (await status())?.lastFailure?.code;
    await expect.poll(code).toBe('broker.unconfirmed');
    const { postponed = 0, attempts } = (await status()) ?? {};
    expect(attempts).toBeGreaterThan(0);
    expect(postponed).toBeLessThan(10);
    expect(road.cuts()).toBeLessThan(15);
  });
});

/** A way to the broker that is cut by a message. */
async function openRoad(
  url: string,
): Promise<{ readonly url: string; readonly cuts: () => number }> {
  const target = new URL(url);
  let cuts = 0;
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = dial(Number(target.port), target.hostname);
    const end = (): void => {
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', end);
    }
    near.on('data', (bytes) => {
      if (!bytes.includes(POISON)) far.write(bytes);
      else {
        cuts += 1;
        end();
      }
    });
    far.pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const road = new URL(url);
  road.port = String((server.address() as AddressInfo).port);
  return { url: road.href, cuts: () => cuts };
}
