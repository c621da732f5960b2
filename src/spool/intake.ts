/**
 * intake — enqueues whose bodies are still coming in. A stop waits for them as long as for
 * handlers, then fails what is left: a slow upload must not keep a process from ending.
 */

import type { Clock } from '../ports/clock.ts';
import type { OwnBody } from './body.ts';

/** Once their streams failed, enqueues have this long to clean up. */
const CLEAN_UP_MS = 5_000;

/** Makes a stream of a body fail when the spool gives up. */
export type Guard = (body: OwnBody) => OwnBody;

/** The enqueues of one spool that take longer than one turn. */
export class Intake {
  readonly #clock: Clock;
  readonly #open = new Set<(error: Error) => void>();
  #onEmpty: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs an enqueue; what it reads through the guard fails when the spool gives up. */
  async during<T>(enqueue: (guard: Guard) => T | Promise<T>): Promise<T> {
    let fail: (error: Error) => void = () => undefined;
    const failed = new Promise<never>((_resolve, reject) => {
      fail = reject;
    });
    // Heard by whoever reads the stream; if nobody does any more, nobody needs to.
    failed.catch(() => undefined);
    this.#open.add(fail);
    try {
      return await enqueue((body) =>
        'stream' in body ? { stream: guarded(body.stream, failed) } : body,
      );
    } finally {
      this.#open.delete(fail);
      if (this.#open.size === 0) this.#onEmpty?.();
    }
  }

  /** Waits until nothing is coming in, at most this long; then fails what is. */
  async end(withinMs: number, error: Error): Promise<void> {
    await this.#emptyWithin(withinMs);
    for (const fail of this.#open) fail(error);
    await this.#emptyWithin(CLEAN_UP_MS);
  }

  #emptyWithin(ms: number): Promise<void> {
    if (this.#open.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#clock.after(ms, resolve);
      this.#onEmpty = () => {
        cancel();
        resolve();
      };
    });
  }
}

async function* guarded(
  input: AsyncIterable<Uint8Array | string>,
  failed: Promise<never>,
): AsyncGenerator<Uint8Array | string> {
  const parts = input[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const step = await Promise.race([parts.next(), failed]);
      isOver = step.done === true;
      if (step.done === true) return;
      yield step.value;
    }
  } finally {
    // Not waited for: a source that hangs in next() would hang here too.
    if (!isOver) parts.return?.().catch(() => undefined);
  }
}
