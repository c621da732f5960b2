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
import { InFlight } from '../../system/wait.ts';
import type { AmqpMessage } from '../connection/amqp.ts';
import { isNack } from '../publish/confirm-publisher.ts';
import { archiveCopyOf } from './letter-copy.ts';
import type { ReadLetter } from './letter.ts';
import type { CarryResult, QueueDrain, DrainRemoval } from './queue-drain.ts';

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

  /** Whether it was settled, or is being settled. */
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
      // A copy: changes by the caller must not reach the message that is sent.
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
  | DrainRemoval
  | { readonly kind: 'refuse'; readonly code: string; readonly reason: string };

/** What taking needs. */
interface LetterBatchParts {
  readonly drain: QueueDrain;
  readonly inHand: number;
  read(message: AmqpMessage): ReadLetter;
  /** What a fate means for a message; may throw, and then it is left. */
  actionOf(message: AmqpMessage, read: ReadLetter, fate: Fate): Promise<Action>;
}

/** Letters in hand, until its loop ends. */
export class LetterBatch {
  readonly #parts: LetterBatchParts;
  readonly #open = new Set<OpenMessage>();
  readonly #settling = new InFlight();
  #hasRoom: () => void = () => undefined;

  constructor(parts: LetterBatchParts) {
    this.#parts = parts;
  }

  get drain(): QueueDrain {
    return this.#parts.drain;
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
        const message = await this.drain.next();
        if (message === undefined) return;
        const known = this.#parts.read(message);
        if (!isWanted(known.letter)) {
          this.drain.leave(message);
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
    try {
      return await this.#settling.track(this.#carryOut(held, message, fate));
    } finally {
      held.end();
      this.#open.delete(held);
      this.#hasRoom();
    }
  }

  async #carryOut(held: OpenMessage, message: AmqpMessage, fate: Fate): Promise<SettleResult> {
    let action: Action;
    try {
      action = await this.#parts.actionOf(message, held.read, fate);
    } catch (error) {
      action = { kind: 'refuse', code: codeOf(error), reason: textOf(error) };
    }
    if (action.kind === 'ack' || action.kind === 'publish') {
      return settledBy(action.kind, await this.drain.carry(message, action));
    }
    this.drain.leave(message);
    return action.kind === 'leave'
      ? DONE
      : { kind: 'failed', code: action.code, reason: action.reason };
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

  /** Waits for pending settlements; letters that were not settled go back. */
  async #end(): Promise<void> {
    for (const held of this.#open) {
      if (held.wasSettled) continue;
      this.drain.leave(held.message);
      held.end();
    }
    await this.#settling.idle();
    this.#open.clear();
    await this.drain.close();
  }

  /** What was reported as done is, but it may lie in its queue all the same. */
  #checkAcks(): void {
    if (this.drain.lostError !== undefined) throw this.drain.lostError;
  }
}

const DONE: SettleResult = { kind: 'done' };

function settledBy(kind: DrainRemoval['kind'], result: CarryResult): SettleResult {
  switch (result.kind) {
    case 'done':
      return DONE;
    case 'stays': {
      const reason = textOf(result.error);
      if (isUnsure(result.error)) return { kind: 'unsure', reason };
      return { kind: 'failed', code: codeOf(result.error), reason };
    }
    case 'unsure': {
      const otherwise =
        kind === 'ack'
          ? 'it is where it was'
          : 'it was sent, and may be back in its queue all the same';
      return { kind: 'unsure', reason: `${textOf(result.error)}; ${otherwise}` };
    }
    default:
      return unreachable(result);
  }
}

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
