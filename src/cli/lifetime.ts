/**
 * lifetime — how work ends: a signal interrupts it in an orderly way, and closers run last in,
 * first out, each of them even when an earlier one fails. Also work that is repeated until then.
 */

import type { Clock } from '../ports/clock.ts';
import { sleep } from '../system/wait.ts';
import { endedBy, EXIT } from './exit-codes.ts';
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

// What runs until a signal.

/** Why it ends. */
export type ServiceEnd =
  | { readonly kind: 'signal'; readonly signal: 'SIGINT' | 'SIGTERM' }
  | { readonly kind: 'error'; readonly error: unknown };

/** The parent may pass on a Ctrl-C that reached us too: within this time it is the same one. */
const SAME_SIGNAL_MS = 100;

/** From now on a first signal is a wish and a second an order. */
export function listenForTheEnd({
  io,
  atEnd,
}: Pick<CommandContext, 'io' | 'atEnd'>): Promise<ServiceEnd> {
  const { promise, resolve } = Promise.withResolvers<ServiceEnd>();
  let firstAt: number | undefined;
  const isSecond = (): boolean => {
    const now = io.clock.monotonic();
    firstAt ??= now;
    return now - firstAt >= SAME_SIGNAL_MS;
  };
  const off = io.onSignal((signal) => {
    if (isSecond()) io.exit(signal === 'SIGINT' ? EXIT.interrupted : EXIT.terminated);
    resolve({ kind: 'signal', signal });
  });
  const offUncaught = io.onUncaught?.((error) => {
    if (isSecond()) io.exit(EXIT.refused);
    resolve({ kind: 'error', error });
  });
  atEnd(() => {
    off();
    offUncaught?.();
  });
  return promise;
}

/** Does it at once, then every span; one that takes longer is followed at once by the next. */
export async function inRounds(
  {
    clock,
    everyMs,
    signal,
  }: { readonly clock: Clock; readonly everyMs: number; readonly signal: AbortSignal },
  round: () => Promise<void>,
): Promise<void> {
  while (!signal.aborted) {
    const startedAt = clock.monotonic();
    await round();
    const waitMs = startedAt + everyMs - clock.monotonic();
    if (waitMs > 0) await sleep(clock, waitMs, signal);
  }
}
