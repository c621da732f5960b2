/** chosen — a place of which only some letters are seen, by what it cannot be asked itself. */

import type { DeadLetters, Letter } from '../../../../ports/dead-letters.ts';

/** The same place; looks give only what fits. What is taken by its key is taken as before. */
export function chosenOf(letters: DeadLetters, fits: (letter: Letter) => boolean): DeadLetters {
  return {
    name: letters.name,
    caution: () => letters.caution(),
    count: () => letters.count(),
    async *look(options) {
      for await (const open of letters.look(options)) if (fits(open.letter)) yield open;
    },
    take: (options) => letters.take(options),
    settle: (taken, fate) => letters.settle(taken, fate),
    isAlone: () => letters.isAlone(),
    since: (replay, ids) => letters.since(replay, ids),
    close: () => letters.close(),
    ...(letters.waitingAt === undefined
      ? {}
      : { waitingAt: (routes) => letters.waitingAt?.(routes) ?? Promise.resolve(undefined) }),
  };
}
