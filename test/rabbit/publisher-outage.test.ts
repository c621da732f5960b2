/** A publisher whose broker is killed, and one whose broker raises an alarm: nothing is lost. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { connect, type ConsumeMessage } from 'amqplib';
import { createSpool, type Spool } from 'respool';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createPublisher, type PublishResult } from 'respool/rabbit';
import { type PrivateServer, privateServer, skipReason } from '../services/index.ts';
import { brokerWorld, fallbackTimes } from './publisher-setup.ts';

const START_TIMEOUT_MS = 15 * 60_000;
const QUORUM = { 'x-queue-type': 'quorum' } as const;

const run = promisify(execFile);

/** The environment of the node that listens on this port. */
async function environmentOf(port: string): Promise<Record<string, string>> {
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    // A process of somebody else, or one that has just ended.
    const text = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
    if (!text.split('\0').includes(`RABBITMQ_NODE_PORT=${port}`)) continue;
    const pairs = text.split('\0').map((line) => line.split(/=(.*)/s, 2) as [string, string]);
    return Object.fromEntries(pairs.filter(([name]) => name !== ''));
  }
  throw new Error(`no RabbitMQ of this machine listens on ${port}`);
}

/** Says how much memory the node may use; far below what it has, that raises an alarm. */
async function setMemoryLimit({ url }: PrivateServer, limit: string): Promise<void> {
  const env = await environmentOf(new URL(url).port);
  const folder = process.env['RESPOOL_TEST_RABBITMQ_BIN'] ?? '/usr/lib/rabbitmq/bin';
  const args = ['set_vm_memory_high_watermark', 'absolute', limit];
  await run(path.join(folder, 'rabbitmqctl'), args, { env });
}

async function makeSpool(): Promise<Spool> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-fallback-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const spool = createSpool({ path: folder });
  onTestFinished(() => spool.stop({ within: 0 }));
  return spool;
}

function messagesOf(name: string, count: number): { readonly key: string; readonly id: string }[] {
  return Array.from({ length: count }, (_, at) => ({ key: 'q.a', id: `${name}-${at}` }));
}

const reason = skipReason('rabbitmq');

describe.skipIf(reason !== undefined)('a broker of our own', () => {
  let server: PrivateServer;

  beforeAll(async () => {
    server = await privateServer('rabbitmq');
  }, START_TIMEOUT_MS);

  afterAll(() => server.stop());

  test('is blocked by an alarm: messages go to the spool after fallbackAfter, and on later', async () => {
    const world = await brokerWorld(server.url, QUORUM);
    onTestFinished(world.dispose);
    const spool = await makeSpool();
    const { url } = server;
    const { options, begin } = fallbackTimes();
    const { exchange } = world;
    await using publisher = createPublisher({ url, exchange, fallback: spool, ...options });
    await publisher.publish({ key: 'q.a', id: 'before' });
    begin();
    await setMemoryLimit(server, '1MB');
    onTestFinished(() => setMemoryLimit(server, '1GB'));
    // n.b. The broker blocks a connection when it publishes after the alarm, and raises the alarm
    // when it next looks at its memory: what is published until then gets through.
    const first: PublishResult[] = [];
    const isOver = (): boolean => publisher.load.isBlocked && first.at(-1)?.via === 'spool';
    for (let round = 1; !isOver(); round += 1) {
      first.push(...(await publisher.publishMany(messagesOf(`first-${round}`, 20))));
    }
    const second = await publisher.publishMany(messagesOf('second', 20));
    expect(new Set(second.map(({ via }) => via))).toEqual(new Set(['spool']));
    const results = [...first, ...second];
    await setMemoryLimit(server, '1GB');
    await spool.start();
    const ids = new Set<unknown>(['before', ...results.map(({ id }) => id)]);
    const found = new Set<unknown>();
    for (let count = 1; found.size < ids.size; count += 1) {
      const messages = await world.arrived(count);
      for (const { properties } of messages) found.add(properties.messageId);
    }
    expect(found).toEqual(ids);
  });

  test('is killed: what it cannot take is forwarded after its restart, under the same ids', async () => {
    const world = await brokerWorld(server.url);
    const spool = await makeSpool();
    const { url } = server;
    const { options, begin } = fallbackTimes();
    const { exchange } = world;
    await using publisher = createPublisher({ url, exchange, fallback: spool, ...options });
    await spool.start();
    // A queue that nobody reads before the end. n.b. Classic: a quorum queue of 3.10 that is
    // declared just before a SIGKILL does not come back.
    const queue = `${world.queue}.kept`;
    const channel = await world.connection.createChannel();
    await channel.assertQueue(queue, { durable: true });
    await channel.bindQueue(queue, world.exchange, 'q.#');
    const before = await publisher.publishMany(messagesOf('before', 100));
    expect(new Set(before.map(({ via }) => via))).toEqual(new Set(['broker']));
    begin();
    const killed = server.kill();
    const during = await publisher.publishMany(messagesOf('during', 300));
    await killed;
    // Those before may all have got through: the broker dies when it likes.
    const late = await publisher.publishMany(messagesOf('late', 20));
    expect(new Set(late.map(({ via }) => via))).toEqual(new Set(['spool']));
    await server.restart();
    const after = await connect(server.url);
    onTestFinished(() => after.close());
    const reader = await after.createChannel();
    const ids = new Set<unknown>([...before, ...during, ...late].map(({ id }) => id));
    const found = new Set<unknown>();
    await new Promise<void>((resolve, reject) => {
      const take = (message: ConsumeMessage | null): void => {
        found.add(message?.properties.messageId);
        if (found.size === ids.size) resolve();
      };
      reader.consume(queue, take, { noAck: true }).catch(reject);
    });
    expect(found).toEqual(ids);
  });
});
