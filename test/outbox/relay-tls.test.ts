/** A relay to a broker behind TLS: the same pipelining as without. */
import { connect } from 'node:net';
import { createServer } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { CERTIFICATE, KEY } from '../deliver/certificate.ts';
import { service, withService } from '../services/index.ts';
import { ground, idsOf } from './relay-ground.ts';

/** A door with TLS before the broker, which can keep the broker's answers back. */
async function tlsDoor(target: string): Promise<{ url: string; isDeaf: boolean }> {
  const { hostname, port, username, password, pathname } = new URL(target);
  const server = createServer({ key: KEY, cert: CERTIFICATE }, (client) => {
    const broker = connect(Number(port), hostname);
    onTestFinished(() => void broker.destroy());
    client.on('error', () => broker.destroy());
    broker.on('error', () => client.destroy());
    client.pipe(broker);
    broker.on('data', (bytes) => {
      if (!door.isDeaf) client.write(bytes);
    });
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => void server.close());
  const { port: own } = server.address() as { port: number };
  const door = {
    url: `amqps://${username}:${password}@localhost:${own}${pathname}`,
    isDeaf: false,
  };
  return door;
}

withService('postgres', () => {
  withService('rabbitmq', () => {
    test('sends the next before the one before it is confirmed, with keys of its own', async () => {
      const { broker, emit, relay, states } = await ground();
      const door = await tlsDoor(await service('rabbitmq'));
      const to = { amqp: door.url, exchange: broker.exchange, tls: { ca: CERTIFICATE } };
      const one = relay({ to, batch: 1, concurrency: 20 });
      const [first = ''] = await emit(1);
      await one.start();
      expect(idsOf(await broker.arrived(1))).toEqual([first]);
      await expect.poll(states).toEqual({});
      door.isDeaf = true;
      // One message to a send, and no answer to any.
      for (let count = 1; count <= 5; count += 1) {
        const [id = ''] = await emit(1, { wakes: true });
        expect(idsOf(await broker.arrived(1 + count)).at(-1)).toBe(id);
      }
      expect(await states()).toEqual({ active: 5 });
      door.isDeaf = false;
      await one.stop({ within: 0 });
    });

    test('does not trust a stranger', async () => {
      const { broker, emit, relay, states } = await ground();
      const door = await tlsDoor(await service('rabbitmq'));
      const one = relay({ to: { amqp: door.url, exchange: broker.exchange, tls: {} } });
      await emit(1);
      await one.start();
      await expect.poll(() => one.load.target).toBe('open');
      expect(broker.messages).toEqual([]);
      await one.stop({ within: 0 });
      // Postponed, at no cost.
      expect(await states()).toEqual({ deferred: 1 });
    });
  });
});
