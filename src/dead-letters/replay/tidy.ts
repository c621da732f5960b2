/**
 * tidy — after a run that ended badly: what was sent and is still here, since its ack was lost with
 * the connection, goes. Left alone it would be sent a second time by the next replay.
 *
 * Promise: a letter goes only when as many of its key were sent, and no other of that key is open,
 * unsure or failed.
 */

import { textOf } from '../../core/errors.ts';
import type { DeadLetters } from '../../ports/dead-letters.ts';
import type { Ledger } from './ledger.ts';
import type { Tenure } from './record-lease.ts';

interface TidyParts {
  readonly id: string;
  readonly by: string;
  readonly letters: DeadLetters;
  readonly ledger: Ledger;
  readonly tenure: Tenure;
}

/** Goes once through the place; never rejects. */
export async function tidy({ id, by, letters, ledger, tenure }: TidyParts): Promise<void> {
  const sent = ledger.sentKeys();
  const { signal } = tenure.halt;
  const reason = `it was sent by replay ${id}`;
  try {
    const taking = letters.take({
      // n.b. What failed again bears the name of the replay, and is another letter.
      isWanted: ({ key, replayedBy }) => replayedBy !== id && sent.has(key),
      signal,
    });
    for await (const taken of taking) {
      const { key } = taken.letter;
      const count = sent.get(key) ?? 0;
      if (count > 0) await letters.settle(taken, { kind: 'remove', hard: true, reason, by });
      else await letters.settle(taken, { kind: 'leave' });
      sent.set(key, count - 1);
    }
  } catch (error) {
    const because = `cannot take away what was sent already: ${textOf(error)}`;
    tenure.halt.stop({ kind: 'end', state: 'stopped', because });
  }
}
