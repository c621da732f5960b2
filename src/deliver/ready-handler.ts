/**
 * ready-handler — what the ready-made handlers have in common: their interface, the body they send,
 * and the text they keep of an answer.
 */

import type { Handler } from '../ports/handler.ts';

/** A handler that can describe itself, without secrets. */
export interface ReadyHandler extends Handler {
  /** Its kind and its settings as plain JSON; durations in milliseconds. */
  describe(): Readonly<Record<string, unknown>>;
  /** The same handler with relative paths that start from this folder. */
  from?(folder: string): ReadyHandler;
  /**
   * Throws `config.invalid` when a secret is missing, so that nothing could be delivered. Called
   * before a service starts, and not by tools that only inspect.
   */
  check?(): void;
  /** Closes its connections; the next delivery opens new ones. */
  close?(): Promise<void>;
}

/**
 * The parts of a body, always one behind: the last part is sent only after the stream has ended
 * without an error. Whether a body is intact is known only then, so a receiver never has all bytes
 * of a damaged one. Calls `onError` before it throws an error of the stream.
 */
export async function* oneBehind(
  stream: AsyncIterable<Uint8Array>,
  onError: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  let last: Uint8Array | undefined;
  // n.b. A reader that gives up throws its own error in at the yield; that is not the stream's.
  let isYielding = false;
  try {
    for await (const part of stream) {
      if (part.length === 0) continue;
      isYielding = true;
      if (last !== undefined) yield last;
      isYielding = false;
      last = part;
    }
  } catch (error) {
    if (!isYielding) onError(error);
    throw error;
  }
  if (last !== undefined) yield last;
}

// Control characters, invisible characters, and those that change the writing direction.
const UNSAFE =
  // oxlint-disable-next-line no-control-regex -- control characters are exactly what is replaced.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+/g;

const decoder = new TextDecoder();

/** Foreign bytes as one line that is safe to store and to show, truncated with an ellipsis. */
export function plainText(foreign: Uint8Array | string, maxChars: number): string {
  const text = typeof foreign === 'string' ? foreign : decoder.decode(foreign);
  const line = text.replaceAll(UNSAFE, ' ').trim();
  return (line.length <= maxChars ? line : `${line.slice(0, maxChars - 1)}…`).toWellFormed();
}
