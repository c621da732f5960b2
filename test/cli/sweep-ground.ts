/** sweep-ground — dead queues at the real broker with letters that died so often, for sweeps. */
import { readFileSync } from 'node:fs';
import { connect as connectPlain, type AddressInfo, type Server } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { expect, onTestFinished } from 'vitest';
import { rabbitShell, type RabbitShell } from './rabbit-broker.ts';
import type { Ran } from './setup.ts';
import type { Table } from '../rabbit/amqp.ts';

const CERTIFICATE = readFileSync(new URL('../web/tls/cert.pem', import.meta.url));
const KEY = readFileSync(new URL('../web/tls/key.pem', import.meta.url));

/** A shell with dead queues. */
export interface SweepShell extends RabbitShell {
  /** Makes a dead queue, and lays down letters that died so often each, in this order. */
  readonly lay: (queue: string, deaths: readonly number[], headers?: Table) => Promise<string>;
  readonly sweep: (...words: string[]) => Promise<Ran>;
}

/** What the broker writes when a message dies. */
export function died(count: number, { reason = 'rejected', queue = 'work' } = {}): Table {
  return { count, reason, queue, exchange: '', 'routing-keys': [queue] };
}

export async function sweepShell(): Promise<SweepShell> {
  const shell = await rabbitShell();
  await shell.configure({});
  const { prefix, put, channel, cli } = shell;
  return {
    ...shell,
    lay: async (name, deaths, headers) => {
      const queue = `${prefix}.${name}`;
      await channel.assertQueue(queue, { durable: true });
      for (const [at, count] of deaths.entries()) {
        const own = headers ?? { 'x-death': [died(count)] };
        await put(queue, [`${name}-${at}`], { headers: own, messageId: `${name}-${at}` });
      }
      return queue;
    },
    sweep: (...words) => cli(['dlq', 'sweep', ...words]),
  };
}

/** A user with a virtual host of its own, gone after the test; sets what it may do there. */
export async function stranger(
  { managementUrl }: RabbitShell,
  { name, password, vhost }: { name: string; password: string; vhost: string },
): Promise<(permissions: object) => Promise<void>> {
  const { origin, username, password: own } = new URL(managementUrl);
  const basic = Buffer.from(`${username || 'guest'}:${own || 'guest'}`).toString('base64');
  const ask = async (method: string, way: string, body?: object): Promise<void> => {
    const answer = await fetch(`${origin}/api/${way}`, {
      method,
      headers: { authorization: `Basic ${basic}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    await answer.body?.cancel();
    expect(answer.ok, `${method} ${way}: ${answer.status}`).toBe(true);
  };
  const [user, home] = [encodeURIComponent(name), encodeURIComponent(vhost)];
  await ask('PUT', `vhosts/${home}`);
  onTestFinished(() => ask('DELETE', `vhosts/${home}`));
  await ask('PUT', `users/${user}`, { password, tags: 'management' });
  onTestFinished(() => ask('DELETE', `users/${user}`));
  const may = (permissions: object): Promise<void> =>
    ask('PUT', `permissions/${home}/${user}`, permissions);
  await may({ configure: '.*', write: '.*', read: '.*' });
  return may;
}

/** A door with TLS before a server of this machine; the same bytes go through. Its port. */
export async function tlsDoor(url: string): Promise<number> {
  const { hostname, port } = new URL(url);
  const server = createTlsServer({ cert: CERTIFICATE, key: KEY }, (socket) => {
    const plain = connectPlain(Number(port), hostname);
    for (const one of [socket, plain]) one.on('error', () => undefined);
    socket.pipe(plain).pipe(socket);
  });
  return portOf(server);
}

async function portOf(server: Server): Promise<number> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}
