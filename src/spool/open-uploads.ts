/**
 * open-uploads — enqueues whose bodies are still coming in. A stop waits for them as long as for
 * handlers, then fails what is left: a slow upload must not keep a process from ending.
 */

import type { Clock } from '../ports/clock.ts';
import { WhenIdle } from '../system/wait.ts';
import type { OwnBody } from './body.ts';

/** Once their streams failed, enqueues have this long to clean up. */
const CLEAN_UP_MS = 5_000;

/** Makes a stream of a body fail when the spool gives up. */
export type UploadGuard = (body: OwnBody) => OwnBody;

/** The enqueues of one spool that take longer than one turn. */
export class OpenUploads {
  readonly #clock: Clock;
  readonly #open = new Set<Failing>();
  readonly #whenIdle = new WhenIdle(() => this.#open.size === 0);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs an enqueue; what it reads through the guard fails when the spool gives up. */
  async during<T>(enqueue: (guard: UploadGuard) => T | Promise<T>): Promise<T> {
    const failing = new Failing();
    this.#open.add(failing);
    try {
      return await enqueue((body) =>
        'stream' in body ? { stream: guarded(body.stream, failing) } : body,
      );
    } finally {
      this.#open.delete(failing);
      this.#whenIdle.check();
    }
  }

  /** Waits until nothing is coming in, at most this long; then fails what is. */
  async end(withinMs: number, error: Error): Promise<void> {
    await this.#whenIdle.within(this.#clock, withinMs);
    for (const failing of this.#open) failing.fail(error);
    await this.#whenIdle.within(this.#clock, CLEAN_UP_MS);
  }
}

/** Whether one enqueue may go on reading. */
class Failing {
  #error: Error | undefined;
  readonly #waits = new Set<(error: Error) => void>();

  fail(error: Error): void {
    this.#error = error;
    for (const reject of this.#waits) reject(error);
  }

  /**
   * The same promise, unless it fails first. n.b. A race against one promise for all parts would
   * keep every part in memory until the last.
   */
  orFail<T>(promise: Promise<T>): Promise<T> {
    if (this.#error !== undefined) return Promise.reject(this.#error);
    return new Promise<T>((resolve, reject) => {
      this.#waits.add(reject);
      // Made one of ours: an iterator may answer with something that only looks like a promise.
      void Promise.resolve(promise)
        .then(resolve, reject)
        .finally(() => this.#waits.delete(reject));
    });
  }
}

async function* guarded(
  input: AsyncIterable<Uint8Array | string>,
  failing: Failing,
): AsyncGenerator<Uint8Array | string> {
  const parts = input[Symbol.asyncIterator]();
  let isOver = false;
  try {
    for (;;) {
      const step = await failing.orFail(parts.next());
      isOver = step.done === true;
      if (step.done === true) return;
      yield step.value;
    }
  } finally {
    // Not waited for: a source that hangs in next() would hang here too.
    if (!isOver) endQuietly(parts);
  }
}

/** Whatever its end throws or returns: that the enqueue failed is told already. */
function endQuietly(parts: AsyncIterator<unknown>): void {
  const end = async (): Promise<void> => void (await parts.return?.());
  end().catch(() => undefined);
}
