/**
 * requeue-order — the consumers of one pass, and how what they hold is given back in its old order.
 * Called by queue-pass.ts.
 *
 * How order is kept, measured on 3.10.8 (2026-11-16; 500 to 6,000 messages, some rounds each):
 * - A classic queue puts everything back at its old place, whatever the way.
 * - A quorum queue breaks the order when messages are nacked. Without a delivery limit they go
 *   behind everything else; with one they go to the front, but more than 32 in one command (nack
 *   with `multiple`) in the order of a hash, and one command each overtakes what came before.
 * - It keeps the order when the channel ends, closed or killed: consumer by consumer in the order
 *   of their tags, as long as there are at most 32 (30: in order, 60: not). Hence tags that sort;
 *   windows that grow with what is held: 100,000 take about ten consumers; where they may not,
 *   since messages are large, each takes its share of what is left; and a further one only when
 *   the one before is full of held messages, so that each holds what belongs together.
 * - A consumer that is cancelled breaks it: what is on its way to it then is nacked by the broker.
 *   So none is cancelled, and what comes meanwhile is held, too, no more than a window.
 * - Acks just before the end of a channel can be lost (366 of 400): the broker sends the first 34
 *   to a quorum queue, and drops what waits behind them with the channel. Two commands that wait
 *   for the queue come after them, to consume without taking anything: see `settled`.
 * - The end of a channel does the same on 4.0.5 (1 and 30 consumers: in order, 60: not; 0 to 367 of
 *   400 acks lost; three rounds each). Nacks were not compared there.
 * - 4.0.5 does not heed `x-credit`, and such a consumer takes a message. While acks are still on
 *   their way those before it get further ones, and what was behind its own comes back before it
 *   (19 of 60 rounds). From 4.0 on we wait until each ack has brought another message, or none is
 *   left.
 * - From 4.3 on the end of a channel counts towards a delivery limit and a nack does not (before,
 *   both do): there it is nacked, in commands of 32. The order of that was not measured.
 *
 * Why: docs/decisions/0034-unsettled-letters-return-by-closing-the-channel.md
 */

import { assert, show } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import {
  type AmqpChannel,
  type AmqpConnection,
  type AmqpMessage,
  closeChannel,
  openChannel,
  type AmqpTable,
  versionOf,
} from '../connection/amqp.ts';
import { explainRefusal } from '../topology/explain.ts';

/** The smallest window of a consumer: each costs the broker a command, whatever it brings. */
const BLOCK_MIN = 50;
/** How many times the window a further consumer may hold at least. */
const ROOM = 4;
/**
 * Consumers that are meant to be enough: the last ones share what may be held. Two more come at
 * the end; with these they stay below the 32 of decision 0034.
 */
const BLOCKS_MAX = 28;
/** From this one on each takes its share of what is left, whatever the size of messages. */
const SHARED_FROM = 8;
/** What AMQP allows for a prefetch. Also in docs/guarantees.md. */
const BLOCK_MAX = 65_535;
/**
 * A window grows beyond the one that was asked for while it stays below this. Also in
 * docs/guarantees.md.
 */
const BLOCK_MAX_BYTES = 32 * 2 ** 20;
/** How long the broker may take to put back what a channel held. */
const RETURNED_MAX_MS = 2_000;
/** More in one command come back in another order. Also in decision 0034. */
const NACKED_MAX = 32;
const TAG = 'respool-pass-';
/** Maximum wait for further messages after acks; another consumer may get them instead. */
const REFILLED_MAX_MS = 2_000;
/** A consumer that asks for nothing; from 4.0 on it gets one message. */
const NO_CREDIT: AmqpTable = {
  'x-credit': { credit: { '!': 'long', value: 0 }, drain: false },
};

/** What one consumer of ours holds: messages that were next to each other. */
export interface RequeueBlock {
  readonly tag: string;
  readonly size: number;
  /** Delivery tags of what is held. */
  readonly held: number[];
}

/** What the next consumer is for. */
interface Wanted {
  readonly atMost: number;
  readonly largestBytes: number;
  /** How many more may be held until the pass ends. */
  readonly mayHold: number;
}

interface BlocksOptions {
  readonly queue: string;
  readonly window: number;
  /** Of a message, where that is known. */
  readonly averageBytes: number | undefined;
  readonly connection: AmqpConnection;
  readonly channel: AmqpChannel;
  readonly clock: Clock;
  /** Consumers of others. */
  readonly others: number;
  readonly onMessage: (message: AmqpMessage | null) => void;
}

/** The consumers of one pass. */
export class RequeueBlocks {
  readonly #parts: BlocksOptions;
  readonly #all: RequeueBlock[] = [];
  readonly #byTag = new Map<string, RequeueBlock>();
  readonly #countsEnds: boolean;
  readonly #knowsCredit: boolean;
  #held = 0;
  #isAdding = false;
  #isEnding = false;

  constructor(parts: BlocksOptions) {
    this.#parts = parts;
    const version = versionOf(parts.connection);
    this.#countsEnds = countsEnds(version);
    this.#knowsCredit = knowsCredit(version);
  }

  /** How many are held. */
  get held(): number {
    return this.#held;
  }

  get isAdding(): boolean {
    return this.#isAdding;
  }

  /** Whether there is any. */
  get isUsed(): boolean {
    return this.#all.length > 0;
  }

  /** How many more than it holds the last consumer can have. */
  get room(): number {
    const block = this.#all.at(-1);
    return block === undefined ? 0 : block.size - block.held.length;
  }

  /** Whether the last consumer has no room left but for what it holds. */
  get isFull(): boolean {
    const block = this.#all.at(-1);
    return !this.#isAdding && block !== undefined && block.held.length >= block.size;
  }

  of({ fields: { consumerTag = '' } }: AmqpMessage): RequeueBlock {
    const block = this.#byTag.get(consumerTag);
    assert(block !== undefined, `a message came for the unknown consumer ${show(consumerTag)}`);
    return block;
  }

  hold(block: RequeueBlock, deliveryTag: number): void {
    this.#held += 1;
    block.held.push(deliveryTag);
  }

  /** Opens a consumer. */
  async add(target: Wanted): Promise<void> {
    const { queue, channel, onMessage } = this.#parts;
    const size = Math.min(this.#nextSize(target), BLOCK_MAX, target.atMost);
    this.#isAdding = true;
    try {
      await channel.prefetch(size);
      if (this.#isEnding) return;
      const { tag } = this.#note(size, String(this.#all.length).padStart(6, '0'));
      await channel.consume(queue, onMessage, { consumerTag: tag });
    } catch (error) {
      throw explainRefusal(error, { act: 'consume', what: 'queue', name: queue });
    } finally {
      this.#isAdding = false;
    }
  }

  /** Has the broker apply every ack; `unsure` tells how many it may not have applied yet. */
  async settled(unsure: () => number): Promise<void> {
    const { queue, channel, onMessage } = this.#parts;
    this.#isEnding = true;
    if (!this.#knowsCredit && (await this.#refilled(unsure))) return;
    await channel.prefetch(1);
    // n.b. Each waits until the queue has done it. With the first answer all acks that were on
    // their way are done, and those that waited behind are sent; with the second these are done.
    for (const name of ['last-0', 'last-1']) {
      // They sort behind the others: what they may get was behind theirs.
      const { tag } = this.#note(1, name);
      await channel.consume(queue, onMessage, { consumerTag: tag, arguments: NO_CREDIT });
    }
  }

  /** Gives back what is held, and ends the channel. */
  async giveBack(): Promise<void> {
    const { channel } = this.#parts;
    if (this.#countsEnds) await this.#nackAll();
    await closeChannel(channel);
    await this.#returned();
  }

  /**
   * Whether a further message came for each that was acked: then all acks are applied. Otherwise
   * none was left to come. n.b. One that is published just then may come back behind the next.
   */
  async #refilled(unsure: () => number): Promise<boolean> {
    const { queue, channel, clock } = this.#parts;
    const deadline = clock.monotonic() + REFILLED_MAX_MS;
    while (unsure() > 0) {
      const { messageCount } = await channel.checkQueue(queue);
      if (messageCount === 0 || clock.monotonic() >= deadline) return unsure() === 0;
    }
    return true;
  }

  #note(size: number, name: string): RequeueBlock {
    const block: RequeueBlock = { tag: TAG + name, size, held: [] };
    this.#all.push(block);
    this.#byTag.set(block.tag, block);
    return block;
  }

  /**
   * n.b. A queue gives a consumer all it may have in one step. With room for everything that was
   * given back before, a process that is killed puts it back as a whole, in its order.
   */
  get #first(): number {
    const { averageBytes } = this.#parts;
    return averageBytes === undefined ? 0 : Math.floor(BLOCK_MAX_BYTES / Math.max(1, averageBytes));
  }

  #nextSize({ largestBytes, mayHold }: Wanted): number {
    const { window } = this.#parts;
    const left = BLOCKS_MAX - this.#all.length;
    const share = this.#all.length < SHARED_FROM ? 0 : Math.ceil(mayHold / Math.max(1, left));
    // Wide, since the room of a consumer shrinks with what it holds, and with it the speed.
    const grown = this.#held === 0 ? window : Math.max(ROOM * window, this.#held);
    const fitting = Math.min(grown, Math.floor(BLOCK_MAX_BYTES / largestBytes));
    return Math.max(BLOCK_MIN, window, fitting, share, this.#all.length === 0 ? this.#first : 0);
  }

  async #nackAll(): Promise<void> {
    const { channel, queue } = this.#parts;
    // Otherwise what is nacked would come to us again.
    for (const { tag } of this.#all) await channel.cancel(tag);
    const tags = this.#all.flatMap(({ held }) => held.toSorted((a, b) => a - b));
    for (let at = 0; at < tags.length; at += NACKED_MAX) {
      const last = tags[Math.min(at + NACKED_MAX, tags.length) - 1] ?? 0;
      channel.nack(onlyTag(last), true, true);
      await channel.checkQueue(queue);
    }
  }

  /** Waits until a quorum queue has put everything back: it counts our consumers until then. */
  async #returned(): Promise<void> {
    const { queue, connection, clock, others } = this.#parts;
    const channel = await openChannel(connection);
    const deadline = clock.monotonic() + RETURNED_MAX_MS;
    for (;;) {
      const { consumerCount } = await channel.checkQueue(queue);
      // n.b. Others may have come meanwhile, so this is no wait without an end.
      if (consumerCount <= others || clock.monotonic() >= deadline) break;
    }
    await closeChannel(channel);
  }
}

/** Whether the end of a channel counts as a failed delivery, where a nack does not. */
function countsEnds(version: string | undefined): boolean {
  const [major = 0, minor = 0] = (version ?? '').split('.').map(Number);
  return major > 4 || (major === 4 && minor >= 3);
}

/** Whether a consumer may ask for nothing. */
function knowsCredit(version: string | undefined): boolean {
  return version !== undefined && Number.parseInt(version, 10) < 4;
}

const NOTHING = Buffer.alloc(0);

/** As much of a message as it takes to name it. */
function onlyTag(deliveryTag: number): AmqpMessage {
  const fields = { deliveryTag, redelivered: true, exchange: '', routingKey: '' };
  return { content: NOTHING, fields, properties: {} };
}
