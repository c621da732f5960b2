/** A dead queue of one's own at the real broker, with a home, and doors to it. */

import { onTestFinished } from 'vitest';
import {
  type AmqpMessage,
  createConnection,
  createManagement,
  createQueueLetters,
  type Management,
  type Properties,
  type QueueLettersOptions,
  type QueueType,
  type RabbitConnection,
} from 'respool/rabbit';
import type { DeadLetters, LetterVerdict, Letter, SettleResult } from 'respool/dead-letters';
import { service } from '../../services/index.ts';
import { Hands, ownName } from '../ground.ts';
import { until } from '../until.ts';
import { OWN_LIMIT } from './queues.ts';
import type { Table } from '../amqp.ts';

export const TYPES: readonly QueueType[] = ['quorum', 'classic'];

/** What a test has around a dead queue. */
export interface Ground {
  readonly hands: Hands;
  readonly connection: RabbitConnection;
  readonly management: Management;
  /** Where its messages belong. */
  readonly home: string;
  readonly queue: string;
  readonly parked: string;
  /** A door to the dead queue; closed at the end. */
  open(options?: Partial<QueueLettersOptions>): DeadLetters;
  /** Declares one more queue. */
  declare(name: string, args?: Table): Promise<string>;
  /** Puts messages with these bodies down, which know their home. */
  put(bodies: readonly string[], properties?: Properties): Promise<void>;
  /** What lies in a queue, oldest first; waits until there are as many. */
  lying(queue: string, count: number): Promise<readonly AmqpMessage[]>;
}

export async function setup(type: QueueType = 'quorum'): Promise<Ground> {
  const hands = await Hands.open();
  const url = await service('rabbitmq');
  const connection = createConnection({ url });
  const management = createManagement({ url: await service('rabbitmq-management') });
  const home = ownName('home');
  const queue = `${home}.dlq`;
  const parked = `${home}.parked`;
  const names = new Set([parked]);
  const doors: DeadLetters[] = [];
  const declare = async (name: string, args: Table = {}): Promise<string> => {
    names.add(name);
    const typed = { 'x-queue-type': type, ...args };
    const limit = typed['x-queue-type'] === 'quorum' ? OWN_LIMIT : {};
    await hands.channel.assertQueue(name, { durable: true, arguments: { ...limit, ...typed } });
    return name;
  };
  await declare(home);
  await declare(queue);
  onTestFinished(async () => {
    for (const door of doors) await door.close();
    await connection.close();
    await management.close();
    const channel = await hands.connection.createChannel();
    for (const name of names) await channel.deleteQueue(name);
    await channel.close();
  });
  return {
    hands,
    connection,
    management,
    home,
    queue,
    parked,
    open(options = {}) {
      const shared = options.url === undefined ? { connection } : {};
      const door = createQueueLetters({ ...shared, management, queue, ...options });
      doors.push(door);
      return door;
    },
    declare,
    async put(bodies, { headers, ...properties } = {}) {
      await Promise.all(
        bodies.map((body) =>
          hands.publish('', queue, Buffer.from(body), {
            messageId: body,
            ...properties,
            headers: { 'respool-queue': home, ...headers },
          }),
        ),
      );
    },
    lying: (name, count) => lyingIn(hands, name, count),
  };
}

/** Gets what lies in a queue and gives it back, on a channel of its own. */
async function lyingIn(hands: Hands, queue: string, count: number): Promise<AmqpMessage[]> {
  await until(async () => ((await hands.depth(queue)) === count ? true : undefined));
  const channel = await hands.connection.createChannel();
  const found: AmqpMessage[] = [];
  if (count > 0) {
    await new Promise<void>((resolve, reject) => {
      const onMessage = (message: AmqpMessage | null): void => {
        if (message !== null) found.push(message);
        if (found.length === count) resolve();
      };
      channel.consume(queue, onMessage).catch(reject);
    });
  }
  await channel.close();
  // n.b. What a closed channel held is back a little later.
  await until(async () => ((await hands.depth(queue)) === count ? true : undefined));
  return found;
}

export function bodiesOf(messages: readonly AmqpMessage[]): string[] {
  return messages.map(({ content }) => content.toString());
}

export function named(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `m${String(at).padStart(5, '0')}`);
}

/** The letters that a door shows. */
export async function lettersOf(
  door: DeadLetters,
  options: Parameters<DeadLetters['look']>[0] = {},
): Promise<Letter[]> {
  const letters: Letter[] = [];
  for await (const { letter } of door.look(options)) letters.push(letter);
  return letters;
}

/** Takes everything that is wanted, and gives each a verdict; what came of each, in order. */
export async function settleAll(
  door: DeadLetters,
  verdict: LetterVerdict,
  isWanted: (letter: Letter) => boolean = () => true,
): Promise<SettleResult[]> {
  const settled: SettleResult[] = [];
  for await (const taken of door.take({ isWanted }))
    settled.push(await door.settle(taken, verdict));
  return settled;
}

export const SEND: Extract<LetterVerdict, { kind: 'send' }> = {
  kind: 'send',
  replay: 'r1',
  by: 'me',
};
export const PARK: LetterVerdict = {
  kind: 'park',
  code: 'replay.limit',
  reason: 'enough',
  by: 'me',
};
export const REMOVE: LetterVerdict = { kind: 'remove', hard: true, reason: 'old', by: 'me' };
