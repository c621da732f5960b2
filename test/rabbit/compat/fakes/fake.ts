/** What the stand-ins for consumers of other systems have in common. */

import type { Channel, ConsumeMessage } from 'amqplib';

/** A consumer of another system, as far as the broker can tell. */
export interface Fake {
  /** Declares what their code declares, with the arguments of their code. */
  declare(channel: Channel): Promise<void>;
  /** The number of this attempt, as they count it. */
  attemptOf(message: ConsumeMessage): number;
  /** What they do with a message whose handler failed. */
  fail(channel: Channel, message: ConsumeMessage): void;
  /** Publishes as their publisher does. */
  publish(channel: Channel, id: string): void;
}

/** What all of them are told. */
export interface FakeOptions {
  readonly queue: string;
  readonly exchange: string;
  readonly key: string;
  readonly delaysMs: readonly number[];
}
