/**
 * stock — a dead queue with known letters in known order: some were rejected by real consumers and
 * have the `x-death` of the broker, some carry headers of ours, some both. Every second one died
 * more often than the limit.
 *
 *   entry ─reject─▶ … ─reject─▶ dead queue ◀─publish─ letters with headers of ours
 */
import { createHash } from 'node:crypto';
import { connect } from 'amqplib';
import { fixed } from 'respool';
import { type AmqpConnection, type AmqpMessage, perDelay, type QueueType } from 'respool/rabbit';
import { HEADER } from '../../../../src/rabbit/message-history.ts';
import { bodyOf, sha256 } from '../../../torture/plans.ts';
import type { AmqpChannel, AmqpConfirmChannel, Table } from '../../amqp.ts';

/** A message as it was laid down. */
export interface Laid {
  readonly id: string;
  /** Died more often than the limit. */
  readonly isOver: boolean;
  readonly sha256: string;
  /** Of properties and headers of its own, which no move may change. */
  readonly look: string;
}

/** A message as it was found. */
export interface Seen {
  readonly id: string;
  readonly sha256: string;
  readonly look: string;
  readonly headers: Table;
}

/** More deaths than this are over the limit. */
export const DEATHS_MAX = 3;
/** Laid down together: the order within a batch is that of one queue after the other. */
const BATCH = 50;
const SIZE_MAX = 2_048;
const PREFETCH = 500;
const LOOK_EVERY_MS = 5;

/** How letters of a batch die: rejected so often, and with these attempts, over the limit or not. */
interface Way {
  readonly rejections: number;
  readonly attempts: (isOver: boolean) => number;
  /** Undefined: every second one. */
  readonly isOver?: boolean;
}

const WAYS: readonly Way[] = [
  { rejections: 0, attempts: (isOver) => (isOver ? 5 : 2) },
  { rejections: 2, attempts: (isOver) => (isOver ? 2 : 1) },
  { rejections: 4, attempts: () => 0, isOver: true },
  { rejections: 2, attempts: () => 0, isOver: false },
];

/** The test's own connection. */
export interface Desk extends AsyncDisposable {
  readonly connection: AmqpConnection;
  readonly channel: AmqpConfirmChannel;
}

export async function openDesk(url: string): Promise<Desk> {
  const connection = (await connect(url)) as AmqpConnection;
  connection.on('error', () => undefined);
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => undefined);
  const close = (): Promise<void> => connection.close().catch(() => undefined);
  return { connection, channel, [Symbol.asyncDispose]: close };
}

/** Declares a dead queue as consumers of ours do. */
export async function declareDead({ channel }: Desk, queue: string, type: QueueType) {
  const { topology } = perDelay().plan({
    queue,
    type,
    policy: fixed('1h'),
    extraWaitsMs: [],
    bindings: [],
    durable: true,
    exclusive: false,
    autoDelete: false,
    queueArguments: {},
  });
  const spec = topology.queues.find(({ role }) => role === 'dead');
  await channel.assertQueue(queue, { durable: true, arguments: spec?.arguments ?? {} });
}

/** Lays so many letters into a dead queue that is there, half of them over the limit. */
export async function layLetters(desk: Desk, queue: string, count: number): Promise<Laid[]> {
  const laid: Laid[] = [];
  const chain = await openChain(desk, queue, 4);
  for (let batch = 0; laid.length < count; batch += 1) {
    const way = WAYS[batch % WAYS.length] as Way;
    const { rejections, attempts, isOver: always } = way;
    const key = rejections === 0 ? queue : `${queue}.entry-${rejections}`;
    const size = Math.min(BATCH, count - laid.length);
    const sending = Array.from({ length: size }, (_, at) => {
      const isOver = always ?? at % 2 === 0;
      const [one, send] = letter(laid.length + at, isOver, attempts(isOver));
      return { one, sent: send(desk.channel, key) };
    });
    await Promise.all(sending.map(({ sent }) => sent));
    laid.push(...sending.map(({ one }) => one));
    await untilDepth(desk, queue, laid.length);
  }
  await chain.close();
  return laid;
}

/**
 * Lays so many letters into a dead queue, all of which came from a key of an exchange: half were
 * rejected out of `home`, half have it in headers of ours.
 */
export async function layFrom(
  desk: Desk,
  from: { readonly exchange: string; readonly key: string; readonly home: string },
  { queue, count }: { readonly queue: string; readonly count: number },
): Promise<Laid[]> {
  const laid: Laid[] = [];
  const rejecting = await reject(desk, from.home);
  const ours = {
    [HEADER.exchange]: from.exchange,
    [HEADER.routingKey]: from.key,
    [HEADER.queue]: from.home,
  };
  for (let batch = 0; laid.length < count; batch += 1) {
    const size = Math.min(BATCH, count - laid.length);
    const isOurs = batch % 2 === 0;
    const sending = Array.from({ length: size }, (_, at) => {
      const [one, send] = letter(laid.length + at, false, isOurs ? 2 : 0, isOurs ? ours : {});
      const road = isOurs ? (['', queue] as const) : ([from.exchange, from.key] as const);
      return { one, sent: send(desk.channel, road[1], road[0]) };
    });
    await Promise.all(sending.map(({ sent }) => sent));
    laid.push(...sending.map(({ one }) => one));
    await untilDepth(desk, queue, laid.length);
  }
  await rejecting.close();
  return laid;
}

/** How many are ready; 0 where there is no such queue. */
export async function depthOf({ connection }: Desk, queue: string): Promise<number> {
  const channel = await connection.createChannel();
  channel.on('error', () => undefined);
  try {
    const { messageCount } = await channel.checkQueue(queue);
    await channel.close();
    return messageCount;
  } catch {
    return 0;
  }
}

/** Takes everything out of a queue, in order. */
export async function drain(desk: Desk, queue: string): Promise<Seen[]> {
  const seen: Seen[] = [];
  for (;;) {
    const count = await depthOf(desk, queue);
    if (count === 0) return seen;
    const channel = await desk.connection.createChannel();
    await channel.prefetch(PREFETCH);
    const goal = seen.length + count;
    const taken = Promise.withResolvers<void>();
    channel.on('error', taken.reject);
    const { consumerTag } = await channel.consume(queue, (message) => {
      if (message === null) return;
      seen.push(seenOf(message));
      channel.ack(message);
      if (seen.length === goal) taken.resolve();
    });
    await taken.promise;
    // n.b. Acks to a quorum queue can be lost with the channel: a cancel waits until they are there.
    await channel.cancel(consumerTag);
    await channel.close();
  }
}

/**
 * Looks at everything in a queue and leaves it as it lay. n.b. By closing the channel: a nack of
 * more than 32 gives them back in another order to a quorum queue.
 */
export async function lookAt(desk: Desk, queue: string): Promise<Seen[]> {
  const count = await depthOf(desk, queue);
  if (count === 0) return [];
  const seen: Seen[] = [];
  const channel = await desk.connection.createChannel();
  await channel.prefetch(count);
  const taken = Promise.withResolvers<void>();
  channel.on('error', taken.reject);
  await channel.consume(queue, (message) => {
    if (message === null) return;
    seen.push(seenOf(message));
    if (seen.length === count) taken.resolve();
  });
  await taken.promise;
  await channel.close();
  await untilDepth(desk, queue, count);
  return seen;
}

async function untilDepth(desk: Desk, queue: string, wanted: number): Promise<void> {
  while ((await depthOf(desk, queue)) < wanted) {
    await new Promise((resolve) => {
      setTimeout(resolve, LOOK_EVERY_MS);
    });
  }
}

type Send = (channel: AmqpConfirmChannel, key: string, exchange?: string) => Promise<void>;

function letter(at: number, isOver: boolean, attempts: number, more: Table = {}): [Laid, Send] {
  const id = `letter-${String(at).padStart(6, '0')}`;
  const body = bodyOf(id, (at * 37) % SIZE_MAX);
  const own = {
    tenant: `größe ${at}`,
    count: at,
    large: 2 ** 40 + at,
    flag: at % 2 === 0,
    nested: { list: [at, 'two', { three: 3 }] },
  };
  const ours = attempts === 0 ? {} : { [HEADER.attempts]: attempts, [HEADER.code]: 'test.broken' };
  const properties = {
    messageId: id,
    contentType: 'application/octet-stream',
    contentEncoding: at % 3 === 0 ? 'x-none' : undefined,
    correlationId: `c-${at}`,
    replyTo: 'nobody',
    timestamp: 1_700_000_000 + at,
    type: 'order.made',
    appId: 'stock',
    deliveryMode: 2,
  };
  const options = { ...properties, headers: { ...own, ...ours, ...more }, mandatory: true };
  const laid = { id, isOver, sha256: sha256(body), look: lookOf(properties, own) };
  const send: Send = (channel, key, exchange = '') =>
    new Promise((resolve, reject) => {
      channel.publish(exchange, key, body, options, (error) => {
        if (error === null || error === undefined) resolve();
        else reject(new Error('not confirmed', { cause: error }));
      });
    });
  return [laid, send];
}

function seenOf({ content, properties }: AmqpMessage): Seen {
  const headers = properties.headers ?? {};
  const isOwn = (name: string): boolean => !/^(?:respool-|x-)/.test(name);
  const own = Object.fromEntries(Object.entries(headers).filter(([name]) => isOwn(name)));
  const { messageId: id = '' } = properties;
  return { id, sha256: sha256(content), look: lookOf(properties, own), headers };
}

/** A digest over what a move must not change. */
function lookOf(properties: AmqpMessage['properties'], own: Table): string {
  const { contentType, contentEncoding, correlationId, replyTo, timestamp, type, appId } =
    properties;
  const { messageId, deliveryMode } = properties;
  const kept = [contentType, contentEncoding, correlationId, replyTo, timestamp, type, appId];
  const headers = Object.entries(own).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify([...kept, messageId, deliveryMode, headers]);
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/** Queues from each of which a consumer rejects everything to the next, the last to the dead one. */
async function openChain(desk: Desk, queue: string, length: number) {
  const names = Array.from({ length }, (_, at) => `${queue}.entry-${at + 1}`);
  for (const [at, name] of names.entries()) {
    const leads = {
      'x-dead-letter-exchange': '',
      'x-dead-letter-routing-key': names[at - 1] ?? queue,
    };
    await desk.channel.assertQueue(name, { durable: true, arguments: leads });
  }
  const rejecting: AmqpChannel[] = [];
  for (const name of names) rejecting.push(await reject(desk, name));
  return {
    async close() {
      for (const one of rejecting) await one.close();
      for (const name of names) await desk.channel.deleteQueue(name);
    },
  };
}

async function reject({ connection }: Desk, queue: string): Promise<AmqpChannel> {
  const channel = await connection.createChannel();
  await channel.prefetch(PREFETCH);
  await channel.consume(queue, (message) => {
    if (message !== null) channel.nack(message, false, false);
  });
  return channel;
}
