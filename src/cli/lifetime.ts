/**
 * lifetime — how work ends: a signal interrupts it in an orderly way, and closers run last in,
 * first out, each of them even when an earlier one fails.
 */

import { endedBy } from './exit-codes.ts';
import type { CommandContext } from './spec.ts';
import type { Io } from './ui/output.ts';

/** A signal that work can be given, and which one of the process it was. */
interface Stop {
  readonly signal: AbortSignal;
  /** undefined: none came yet. */
  by(): 'SIGINT' | 'SIGTERM' | undefined;
  /** Listens no longer. */
  off(): void;
}

/** Listens for the first signal of the process. */
export function stopOnSignal(io: Pick<Io, 'onSignal'>): Stop {
  const stop = new AbortController();
  let stoppedBy: 'SIGINT' | 'SIGTERM' | undefined;
  const off = io.onSignal((signal) => {
    stoppedBy ??= signal;
    stop.abort();
  });
  return { signal: stop.signal, by: () => stoppedBy, off };
}

/**
 * Does the work. After a signal the command ends with that signal, even if the work was finished by
 * then: Ctrl-C also cancels what would come next. `then` says how far it came.
 */
export async function interruptible<T>(
  io: Pick<Io, 'onSignal'>,
  then: string | (() => string),
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = stopOnSignal(io);
  try {
    const done = await work(stop.signal);
    if (stop.by() === undefined) return done;
  } catch (error) {
    if (stop.by() === undefined) throw error;
  } finally {
    stop.off();
  }
  throw endedBy(stop.by() ?? 'SIGINT', typeof then === 'string' ? then : then());
}

interface Closers {
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
