/**
 * held — a message that lies open as a letter.
 *
 *   open ─begin()─▶ settling ─end()─▶ over
 *     └─ end(): the loop went on, or ended, and it was given back ─┘
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { OpenLetter, TakenLetter } from '../../ports/dead-letters.ts';
import type { AmqpMessage } from '../connection/amqp.ts';
import { keptFrom } from './archive-copy.ts';
import type { ReadLetter } from './letter.ts';

/** A message in hand, with its content until it is over. */
export class Held {
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
      copy: async (reason) => keptFrom(this.read.letter, this.message, reason),
    };
  }
}

/** What is behind a letter; undefined: it is none of a queue. */
export function heldOf(open: OpenLetter): Held | undefined {
  const { token } = open as Partial<TakenLetter>;
  return token instanceof Held ? token : undefined;
}
