/**
 * scenarios — the walks by name: each sends messages through the real thing, and traces one.
 *
 * Each is walked several times, and the walk with the fewest files counts: a timer that happens to
 * run meanwhile is not on the way of a message.
 */

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { existsSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { createSpool, ladder, RetryableError, type Spool } from 'respool';
import { http } from 'respool/deliver';
import { createOutbox } from 'respool/outbox';
import { createConsumer, createPublisher } from 'respool/rabbit';
import { postgres } from 'respool/stores/postgres';
import { internalsOf } from '../../src/spool/internals.ts';
import { createServiceOperator } from '../../src/spool/operator/spool-operator.ts';
import { createService } from '../../src/web/server/service.ts';
import { createServers, type Servers } from '../../bench/servers.ts';
import { run } from '../../src/cli/program.ts';
import { systemClock } from '../../src/system/clock.ts';
import type { Walk } from './text.ts';
import { begin, end, type Step } from './trace.ts';

/** Messages before the first one that is traced. */
const WARM_UP_MESSAGES = 20;
/** Messages that are traced. */
const TRACED_MESSAGES = 5;
/** After a message is delivered: what it leads to has run, and its source sleeps again. */
const REST_MS = 60;
const LETTERS = 8;

/** Sends one message and resolves when it is settled. */
type Send = () => Promise<void>;

/** What a walk runs in: folders, names and servers of its own. */
interface Ground {
  readonly folder: string;
  /** Begins every name that servers see. */
  readonly prefix: string;
  readonly servers: Servers;
  /** Runs after the walk, the last one first. */
  readonly after: (undo: () => unknown) => void;
}

interface Scenario {
  readonly title: string;
  readonly warmUp?: number;
  readonly prepare: (ground: Ground) => Promise<Send>;
}

const SCENARIOS = {
  enqueue: {
    title: 'enqueue on SQLite, handed off to a free slot, handler, ack',
    prepare: (ground) => onSqlite(ground, {}),
  },
  claim: {
    title: 'enqueue on SQLite, due in 30 ms, claimed, handler, ack',
    prepare: (ground) => onSqlite(ground, { delay: '30ms' }),
  },
  postgres: {
    title: 'enqueue on PostgreSQL in one spool, claimed by another, handler, ack',
    prepare: onPostgres,
  },
  http: { title: 'POST over HTTP, SQLite, delivered by HTTP', prepare: overHttp },
  rabbit: {
    title: 'published to RabbitMQ, fails, waits in a queue, returns, ack',
    prepare: onRabbit,
  },
  replay: {
    title: `respool dlq replay of ${LETTERS} letters of a RabbitMQ queue`,
    warmUp: 1,
    prepare: replay,
  },
  outbox: {
    title: 'relayed from an outbox on PostgreSQL to RabbitMQ',
    prepare: throughOutbox,
  },
} as const satisfies Readonly<Record<string, Scenario>>;

export type ScenarioName = keyof typeof SCENARIOS;

export const SCENARIO_NAMES = Object.keys(SCENARIOS) as readonly ScenarioName[];

export function isScenarioName(name: string): name is ScenarioName {
  return Object.hasOwn(SCENARIOS, name);
}

/** Walks a scenario. */
export async function walk(name: ScenarioName): Promise<Walk> {
  const undo: (() => unknown)[] = [];
  const memory = '/dev/shm';
  // In memory, where SQLite stays in the thread of its caller however busy the disk is.
  const folder = await mkdtemp(path.join(existsSync(memory) ? memory : os.tmpdir(), 'walk-'));
  const servers = createServers();
  const prefix = `walk_${randomBytes(4).toString('hex')}`;
  const scenario: Scenario = SCENARIOS[name];
  try {
    const after: Ground['after'] = (call) => void undo.unshift(call);
    const send = await scenario.prepare({ folder, prefix, servers, after });
    for (let at = 0; at < (scenario.warmUp ?? WARM_UP_MESSAGES); at += 1) await send();
    let walked: Walk | undefined;
    for (let at = 0; at < TRACED_MESSAGES; at += 1) {
      await sleep(REST_MS);
      begin();
      await send();
      await sleep(REST_MS);
      const next = walkOf(name, scenario.title, end());
      if (walked === undefined || isShorter(next, walked)) walked = next;
    }
    if (walked === undefined) throw new Error('nothing was traced');
    return walked;
  } finally {
    for (const call of undo) await call();
    await servers.end();
    await rm(folder, { recursive: true, force: true });
  }
}

function isShorter(one: Walk, other: Walk): boolean {
  return one.files - other.files < 0 || (one.files === other.files && one.calls < other.calls);
}

function walkOf(name: string, title: string, steps: readonly Step[]): Walk {
  return {
    name,
    title,
    files: new Set(steps.map(({ file }) => file)).size,
    functions: steps.length,
    calls: steps.reduce((sum, { calls }) => sum + calls, 0),
    steps,
  };
}

/** Resolves when something that can be listened to has delivered a message. */
function deliveries(emitter: { on(kind: 'delivered', listener: () => void): unknown }) {
  let resolve: (() => void) | undefined;
  emitter.on('delivered', () => resolve?.());
  return (): Promise<void> =>
    new Promise((done) => {
      resolve = done;
    });
}

async function onSqlite(
  { folder, after }: Ground,
  options: { readonly delay?: '30ms' },
): Promise<Send> {
  const spool = createSpool({ path: path.join(folder, 'spool') });
  after(() => spool.stop());
  return started(spool, () => spool.enqueue({ topic: 'order.new', body: 'order 1', ...options }));
}

/** Starts a spool with a handler; each send calls `enqueue` and waits for the delivery. */
async function started(spool: Spool, enqueue: () => Promise<unknown>): Promise<Send> {
  const delivered = deliveries(spool);
  spool.handle('order.*', async (delivery) => void (await delivery.text()));
  await spool.start();
  return async () => {
    const done = delivered();
    await enqueue();
    await done;
  };
}

async function onPostgres({ prefix, servers, after }: Ground): Promise<Send> {
  const url = await servers.url('postgres');
  const inSchema = () => createSpool({ entries: postgres({ url, schema: prefix }) });
  const sender = inSchema();
  const receiver = inSchema();
  after(() => dropSchema(url, prefix));
  after(() => receiver.stop());
  after(() => sender.stop());
  return started(receiver, () => sender.enqueue({ topic: 'order.new', body: 'order 1' }));
}

async function dropSchema(url: string, schema: string): Promise<void> {
  const client = await connectPostgres(url);
  await client.query(`drop schema if exists ${schema} cascade`);
  await client.end();
}

async function connectPostgres(url: string) {
  const { Client } = (await import('pg')).default;
  const client = new Client(url);
  await client.connect();
  return client;
}

async function overHttp({ folder, after }: Ground): Promise<Send> {
  const receiver = createServer((incoming, response) => {
    incoming.resume().on('end', () => response.end());
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  after(() => receiver.close());
  const { port } = receiver.address() as AddressInfo;
  const spool = createSpool({ path: path.join(folder, 'spool') });
  after(() => spool.stop());
  spool.handle('order.*', http({ url: `http://127.0.0.1:${port}/`, allow: ['127.0.0.1'] }));
  const delivered = deliveries(spool);
  await spool.start();
  const service = createService({
    operator: (by) => createServiceOperator(internalsOf(spool), { by }),
    settings: {
      host: '127.0.0.1',
      port: 0,
      stopWithin: '1s',
      limits: { connections: 10, events: 1, requestsPerSecond: 100, requestTimeout: '10s' },
    },
    bodyMaxBytes: 1024 * 1024,
    isReady: () => true,
    version: '0.0.0',
  });
  const { url } = await service.listen();
  after(() => service.stop(0));
  return async () => {
    const done = delivered();
    await post(`${url}/v1/topics/order.new/messages`, 'order 1');
    await done;
  };
}

function post(url: string, body: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = request(url, { method: 'POST', headers: { 'content-length': body.length } });
    call.on('error', reject);
    call.on('response', (response) => response.resume().on('end', resolve));
    call.end(body);
  });
}

async function onRabbit({ prefix, servers, after }: Ground): Promise<Send> {
  const url = await servers.url('rabbitmq');
  const queue = `${prefix}-orders`;
  const consumer = createConsumer(
    { url, queue, policy: ladder(['100ms', '5s']), concurrency: 4 },
    async (delivery) => {
      await delivery.text();
      if (delivery.attempt === 1) throw new RetryableError('stock.locked', 'try again');
    },
  );
  const delivered = deliveries(consumer);
  await consumer.start();
  const publisher = createPublisher({ url, exchange: '' });
  after(() => removeQueues(url, consumer.plan.topology));
  after(() => consumer.stop());
  after(() => publisher.close());
  return async () => {
    const done = delivered();
    await publisher.publish({ key: queue, body: 'order 1' });
    await done;
  };
}

interface Names {
  readonly queues: readonly { readonly name: string }[];
  readonly exchanges?: readonly { readonly name: string }[];
}

async function removeQueues(url: string, { queues, exchanges = [] }: Names): Promise<void> {
  const connection = await connectRabbit(url);
  const channel = await connection.createConfirmChannel();
  for (const { name } of queues) await channel.deleteQueue(name);
  for (const { name } of exchanges)
    if (name.startsWith('walk_')) await channel.deleteExchange(name);
  await connection.close();
}

async function connectRabbit(url: string) {
  const { connect } = await import('amqplib');
  return connect(url);
}

async function replay({ folder, prefix, servers, after }: Ground): Promise<Send> {
  const url = await servers.url('rabbitmq');
  const managementUrl = await servers.url('rabbitmq-management');
  const main = `${prefix}-orders`;
  const dead = `${main}.dlq`;
  const config = { rabbit: { url, managementUrl } };
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(config));
  const connection = await connectRabbit(url);
  const channel = await connection.createConfirmChannel();
  after(() => removeQueues(url, { queues: [{ name: main }, { name: dead }] }));
  after(() => connection.close());
  await channel.assertQueue(main, { durable: true });
  await channel.assertQueue(dead, {
    durable: true,
    arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 1_000_000 },
  });
  const headers = { 'respool-queue': main, 'respool-code': 'http.503', 'respool-reason': 'down' };
  return async () => {
    for (let at = 0; at < LETTERS; at += 1) {
      const options = { persistent: true, messageId: `letter-${at}`, headers };
      channel.sendToQueue(dead, Buffer.from('{"n":1}'), options);
    }
    await channel.waitForConfirms();
    begin();
    await cli(folder, ['dlq', 'replay', '--queue', dead, '--canary', '0', '--yes', '--json']);
  };
}

/** A command in this process. */
async function cli(cwd: string, argv: readonly string[]): Promise<void> {
  let output = '';
  const sink = () =>
    new Writable({
      write: (piece: Buffer, _encoding, done) => {
        output += piece.toString();
        done();
      },
    });
  const code = await run(argv, {
    stdin: Readable.from([]),
    stdout: sink(),
    stderr: sink(),
    env: {},
    cwd,
    user: 'walker',
    isTTY: () => false,
    columns: () => 80,
    clock: systemClock,
    onSignal: () => () => undefined,
    exit: () => undefined,
  });
  if (code !== 0) throw new Error(`respool ${argv.join(' ')} ended with ${code}: ${output}`);
}

async function throughOutbox({ prefix, servers, after }: Ground): Promise<Send> {
  const url = await servers.url('postgres');
  const amqp = await servers.url('rabbitmq');
  const queue = `${prefix}-orders`;
  const exchange = `${prefix}-shop`;
  const connection = await connectRabbit(amqp);
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(exchange, 'topic');
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, exchange, '#');
  after(() => removeQueues(amqp, { queues: [{ name: queue }], exchanges: [{ name: exchange }] }));
  after(() => connection.close());
  const outbox = createOutbox({ url, schema: prefix });
  await outbox.migrate();
  after(() => dropSchema(url, prefix));
  after(() => outbox.close());
  const relay = outbox.relay({ to: { amqp, exchange } });
  const delivered = deliveries(relay);
  await relay.start();
  after(() => relay.stop());
  const client = await connectPostgres(url);
  after(() => client.end());
  return async () => {
    const done = delivered();
    await client.query('begin');
    await outbox.emit(client, 'order.created', { orderId: 1 });
    // The walk is the relay's: it begins when there is something to relay.
    begin();
    await client.query('commit');
    await done;
  };
}
