/**
 * closers — what is closed with a round, and not only when the command ends.
 *
 * Promise: the last first, and each of them, also when one before it fails.
 */

import type { CommandContext } from './spec.ts';

export interface Closers {
  readonly atEnd: CommandContext['atEnd'];
  /** Closes what there is by now; throws the first of the errors when all had their turn. */
  readonly close: () => Promise<void>;
}

export function createClosers(): Closers {
  const closers: (() => Promise<void> | void)[] = [];
  return {
    atEnd: (close) => void closers.push(close),
    close: async () => {
      const errors: unknown[] = [];
      for (const close of closers.splice(0).reverse()) {
        try {
          await close();
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 0) throw errors[0];
    },
  };
}
