/**
 * observer — a queue of its own at the exchange, read with amqplib by hand: what was published, in
 * the order in which it was. It comes back when the broker does.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type ChannelModel, connect } from 'amqplib';
import type { Sight } from './judge.ts';

const AGAIN_MS = 100;
/** Deliveries on their way; a crash of the broker may give them again as if for the first time. */
const OBSERVED_AHEAD = 50;

export class Observer {
  readonly sights: Sight[] = [];
  readonly #amqp: string;
  readonly #exchange: string;
  readonly #waiting = new Set<() => void>();
  #connection: ChannelModel | undefined;
  #isClosing = false;

  constructor(amqp: string, exchange: string) {
    this.#amqp = amqp;
    this.#exchange = exchange;
  }

  get #queue(): string {
    return `${this.#exchange}.observed`;
  }

  /** Declares exchange and queue, and reads from now on. */
  async start(): Promise<void> {
    const connection = await connect(this.#amqp);
    connection.on('error', () => undefined);
    try {
      await this.#read(connection);
    } catch (error) {
      await connection.close().catch(() => undefined);
      throw error;
    }
    this.#connection = connection;
    connection.once('close', () => void this.#comeBack());
  }

  /** Resolves after so many more sights. */
  seen(count: number): Promise<void> {
    const enough = this.sights.length + count;
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.sights.length < enough) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
    });
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#connection?.close().catch(() => undefined);
  }

  async #read(connection: ChannelModel): Promise<void> {
    const channel = await connection.createChannel();
    channel.on('error', () => undefined);
    await channel.assertExchange(this.#exchange, 'topic', { durable: true });
    const options = { durable: true, arguments: { 'x-queue-type': 'quorum' } };
    await channel.assertQueue(this.#queue, options);
    await channel.bindQueue(this.#queue, this.#exchange, '#');
    await channel.prefetch(OBSERVED_AHEAD);
    await channel.consume(this.#queue, (message) => {
      if (message === null) return;
      const { key = '', place = 0 } = JSON.parse(message.content.toString());
      const { messageId: id = '' } = message.properties;
      this.sights.push({ id, redelivered: message.fields.redelivered, key, place });
      channel.ack(message);
      for (const look of this.#waiting) look();
    });
  }

  async #comeBack(): Promise<void> {
    while (!this.#isClosing) {
      await sleep(AGAIN_MS);
      try {
        return await this.start();
      } catch {
        // The broker is away, or not ready yet: it is tried again.
      }
    }
  }
}
