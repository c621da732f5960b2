/**
 * take-letters — one pass through a queue with letters in hand.
 *
 *   pass ─▶ unwanted: left
 *      └──▶ in hand ─settle─▶ published, confirmed, acked · acked · left
 *                └─ the loop ends: given back, in the order they lay
 *
 * Promise: a message is acked only when its copy is confirmed and routed, or when it is to be gone.
 * What fails leaves it where it was.
 */

import { isRespoolError, RespoolError, show, textOf, unreachable } from '../../core/errors.ts';
import type {
  Fate,
  LetterTakeOptions,
  OpenLetter,
  SettleResult,
  TakenLetter,
} from '../../ports/dead-letters.ts';
import type { AmqpMessage, Outgoing } from '../connection/amqp.ts';
import { isNack } from '../publish/confirm-publisher.ts';
import { archiveCopyOf } from './letter-copy.ts';
import type { ReadLetter } from './letter.ts';
import { lostAtTheEnd, type Walk } from './pass.ts';

// A message that lies open as a letter.
//
//   open ─begin()─▶ settling ─end()─▶ over
//     └─ end(): the loop went on, or ended, and it was given back ─┘

/** A message in hand, with its content until it is over. */
export class OpenMessage {
  readonly read: ReadLetter;
  #message: AmqpMessage | undefined;
  #isSettling = false;

  constructor(read: ReadLetter, message: AmqpMessage) {
    this.read = read;
    this.#message = message;
  }

  /** The message; `body.missing` when it is not in hand any more. */
  get message(): AmqpMessage {
    if (this.#message !== undefined) return this.#message;
    throw new RespoolError(
      'body.missing',
      `cannot read message ${show(this.read.letter.id)}: it is not in hand any more; read it ` +
        'before the next one is asked for, and before it is settled',
    );
  }

  /** Whether somebody settled it, or began to. */
  get wasSettled(): boolean {
    return this.#isSettling;
  }

  /** Begins to settle it; undefined: it is not open. */
  begin(): AmqpMessage | undefined {
    if (this.#isSettling || this.#message === undefined) return undefined;
    this.#isSettling = true;
    return this.#message;
  }

  /** It is not in hand any more. */
  end(): void {
    this.#message = undefined;
  }

  /** As others see it. */
  letter(): TakenLetter {
    return {
      letter: this.read.letter,
      token: this,
      // A copy: what somebody writes into it must not go into what is sent.
      body: async () => new Uint8Array(this.message.content),
      copy: async (reason) => archiveCopyOf(this.read.letter, this.message, reason),
    };
  }
}

/** What is behind a letter; undefined: it is none of a queue. */
export function openMessageOf(open: OpenLetter): OpenMessage | undefined {
  const { token } = open as Partial<TakenLetter>;
  return token instanceof OpenMessage ? token : undefined;
}

/** What becomes of a message by its fate. */
export type Action =
  | { readonly kind: 'leave' }
  | { readonly kind: 'ack' }
  | { readonly kind: 'publish'; readonly outgoing: Outgoing }
  | { readonly kind: 'refuse'; readonly code: string; readonly reason: string };

/** What taking needs. */
interface LetterBatchParts {
  readonly queue: string;
  readonly walk: Walk;
  readonly inHand: number;
  read(message: AmqpMessage): ReadLetter;
  /** What a fate means for a message; may throw, and then it is left. */
  deedOf(message: AmqpMessage, read: ReadLetter, fate: Fate): Promise<Action>;
  send(outgoing: Outgoing): Promise<void>;
}

/** Letters in hand, until its loop ends. */
export class LetterBatch {
  readonly #parts: LetterBatchParts;
  readonly #open = new Set<OpenMessage>();
  readonly #settling = new Set<Promise<unknown>>();
  #hasAcked = false;
  #hasRoom: () => void = () => undefined;

  constructor(parts: LetterBatchParts) {
    this.#parts = parts;
  }

  get walk(): Walk {
    return this.#parts.walk;
  }

  /** Whether this letter is one of its own. */
  has(held: OpenMessage): boolean {
    return this.#open.has(held);
  }

  /** Throws at its end when the last acks may be lost. */
  async *letters({ isWanted, signal }: LetterTakeOptions): AsyncGenerator<TakenLetter> {
    const onAbort = (): void => this.#hasRoom();
    signal?.addEventListener('abort', onAbort);
    let isBroken = false;
    try {
      for (;;) {
        const message = await this.walk.next();
        if (message === undefined) return;
        const known = this.#parts.read(message);
        if (!isWanted(known.letter)) {
          this.#leave(message);
          continue;
        }
        const held = new OpenMessage(known, message);
        this.#open.add(held);
        yield held.letter();
        await this.#room(signal);
      }
    } catch (error) {
      isBroken = true;
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
      await this.#end();
      if (!isBroken) this.#checkAcks();
    }
  }

  /** Settles one of its own. */
  async settle(held: OpenMessage, fate: Fate): Promise<SettleResult> {
    const message = held.begin();
    if (message === undefined) return notInHand(held);
    const work = this.#carryOut(held, message, fate);
    this.#settling.add(work);
    try {
      return await work;
    } finally {
      this.#settling.delete(work);
      held.end();
      this.#open.delete(held);
      this.#hasRoom();
    }
  }

  async #carryOut(held: OpenMessage, message: AmqpMessage, fate: Fate): Promise<SettleResult> {
    let deed: Action;
    try {
      deed = await this.#parts.deedOf(message, held.read, fate);
    } catch (error) {
      deed = { kind: 'refuse', code: codeOf(error), reason: textOf(error) };
    }
    switch (deed.kind) {
      case 'leave':
        this.#leave(message);
        return DONE;
      case 'refuse':
        this.#leave(message);
        return { kind: 'failed', code: deed.code, reason: deed.reason };
      case 'ack':
        return this.walk.pass.isLost ? BACK : this.#ack(message, 'it is where it was');
      case 'publish':
        // n.b. With its channel the message went back: anyone who sends it now sends it twice.
        return this.walk.pass.isLost ? BACK : this.#publish(message, deed.outgoing);
      default:
        return unreachable(deed);
    }
  }

  async #publish(message: AmqpMessage, outgoing: Outgoing): Promise<SettleResult> {
    try {
      await this.#parts.send(outgoing);
    } catch (error) {
      this.#leave(message);
      const reason = textOf(error);
      return isUnsure(error)
        ? { kind: 'unsure', reason }
        : { kind: 'failed', code: codeOf(error), reason };
    }
    return this.#ack(message, 'it was sent, and may be back in its queue all the same');
  }

  #ack(message: AmqpMessage, otherwise: string): SettleResult {
    try {
      this.walk.pass.done(message);
      this.#hasAcked = true;
      return DONE;
    } catch (error) {
      return { kind: 'unsure', reason: `${textOf(error)}; ${otherwise}` };
    }
  }

  #leave(message: AmqpMessage): void {
    try {
      this.walk.pass.leave(message);
    } catch {
      // The channel is lost, and with it the message is back where it was.
    }
  }

  /** Waits until one more may be in hand. */
  async #room(signal: AbortSignal | undefined): Promise<void> {
    const isFull = (): boolean => this.#open.size >= this.#parts.inHand;
    const isWanted = (): boolean => signal?.aborted !== true;
    while (isFull() && isWanted()) {
      await new Promise<void>((resolve) => {
        this.#hasRoom = resolve;
      });
    }
  }

  /** What is being settled is waited for; what nobody settled goes back. */
  async #end(): Promise<void> {
    for (const held of this.#open) {
      if (held.wasSettled) continue;
      this.#leave(held.message);
      held.end();
    }
    await Promise.allSettled(this.#settling);
    this.#open.clear();
    await this.walk.close();
  }

  /** What was told as done is, but it may lie in its queue all the same: somebody has to look. */
  #checkAcks(): void {
    if (this.#hasAcked && this.walk.pass.isLost) throw lostAtTheEnd(this.#parts.queue);
  }
}

const DONE: SettleResult = { kind: 'done' };
const BACK: SettleResult = {
  kind: 'failed',
  code: 'broker.unavailable',
  reason: 'the connection to the broker was lost, and the message is back in its queue',
};

/** What comes of settling a letter that is not in hand: it was settled before, or given back. */
export function notInHand(held: OpenMessage | undefined): SettleResult {
  if (held?.wasSettled === true) return { kind: 'gone' };
  const reason =
    'it is not in hand any more: its loop has ended, and it was given back; take it again';
  return { kind: 'failed', code: 'move.refused', reason };
}

function codeOf(error: unknown): string {
  return isRespoolError(error) ? error.code : 'unknown';
}

/** Whether what was sent may have arrived all the same; a broker that refuses says so. */
function isUnsure(error: unknown): boolean {
  return isRespoolError(error, 'broker.unconfirmed') && !isNack(error.cause);
}
