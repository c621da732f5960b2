/**
 * enqueue-tx — a streamed enqueue: write parts as they come, then commit or abort.
 *
 *   open ─write()─▶ open ─commit()─▶ committed        open ─abort(), dispose─▶ aborted
 *
 * Nothing is visible before commit. Writing waits while the store is behind.
 */

import type { Headers } from '../core/entry.ts';
import { RespoolError } from '../core/errors.ts';
import type { Enqueued } from './accept.ts';
import type { StoredOrInlineBody } from './body.ts';

/** What a transaction asks of its spool. */
export interface EnqueueTxHost {
  /** Keeps a streamed body. */
  keep(stream: AsyncIterable<Uint8Array>): Promise<StoredOrInlineBody>;
  /** Inserts the entry with these headers over those given at begin. */
  accept(body: StoredOrInlineBody, headers: Headers): Promise<Enqueued>;
  /** Removes the body of a transaction that does not commit. */
  discard(body: StoredOrInlineBody): Promise<void>;
  checkHeaders(headers: Headers): void;
}

/** A message that is being written. */
export class EnqueueTx {
  /** The id the message will have. */
  readonly id: string;
  readonly #host: EnqueueTxHost;
  readonly #parts = new Parts();
  readonly #body: Promise<StoredOrInlineBody>;
  #headers: Record<string, string> = {};
  /** The last write: they follow each other, also when nobody awaits them one by one. */
  #writing: Promise<void> = Promise.resolve();
  #committed: Promise<Enqueued> | undefined;
  #isAborted = false;

  constructor(id: string, host: EnqueueTxHost) {
    this.id = id;
    this.#host = host;
    this.#body = host.keep(this.#parts.read());
    // A failed body is told by write() and commit(); nobody else waits for it here.
    this.#body.catch((error: unknown) => this.#parts.fail(error));
  }

  /** Adds bytes to the body; resolves when more may come. */
  async write(part: Uint8Array | string): Promise<void> {
    this.#refuseUnlessOpen('write to');
    // Copied at once: the caller may use its buffer again before it is this part's turn.
    const bytes = typeof part === 'string' ? Buffer.from(part) : new Uint8Array(part);
    const work = this.#writing.then(() => this.#parts.write(bytes));
    // A failed write fails the body, and so the commit; here it only must not stop the next.
    this.#writing = work.catch(() => undefined);
    await work;
  }

  setHeader(name: string, value: string): void {
    this.setHeaders({ [name]: value });
  }

  setHeaders(headers: Headers): void {
    this.#refuseUnlessOpen('change headers of');
    this.#host.checkHeaders({ ...this.#headers, ...headers });
    this.#headers = { ...this.#headers, ...headers };
  }

  /** Makes the message visible; a second call answers the same. */
  async commit(): Promise<Enqueued> {
    if (this.#isAborted) this.#refuseUnlessOpen('commit');
    this.#committed ??= this.#commit();
    return this.#committed;
  }

  /** Forgets what was written; after a commit it does nothing. */
  async abort(): Promise<void> {
    if (this.#committed !== undefined || this.#isAborted) return;
    this.#isAborted = true;
    this.#parts.fail(new RespoolError('message.invalid', 'the enqueue was aborted'));
    const body = await this.#body.catch(() => undefined);
    if (body !== undefined) await this.#host.discard(body);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.abort();
  }

  async #commit(): Promise<Enqueued> {
    await this.#writing;
    this.#parts.end();
    return this.#host.accept(await this.#body, this.#headers);
  }

  #refuseUnlessOpen(verb: string): void {
    if (this.#committed === undefined && !this.#isAborted) return;
    const state = this.#isAborted ? 'aborted' : 'committed';
    throw new RespoolError(
      'message.invalid',
      `cannot ${verb} the message "${this.id}": its enqueue is ${state}; begin another`,
    );
  }
}

/** One part at a time from a writer to a reader. */
class Parts {
  #part: Uint8Array | undefined;
  #isEnded = false;
  #failure: { readonly error: unknown } | undefined;
  #onPart: (() => void) | undefined;
  #onTaken: (() => void) | undefined;

  async write(part: Uint8Array): Promise<void> {
    while (this.#part !== undefined && this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#onTaken = resolve;
      });
    }
    if (this.#failure !== undefined) throw this.#failure.error;
    this.#part = part;
    this.#onPart?.();
  }

  end(): void {
    this.#isEnded = true;
    this.#onPart?.();
  }

  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#onPart?.();
    this.#onTaken?.();
  }

  async *read(): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error;
      if (this.#part !== undefined) {
        const part = this.#part;
        this.#part = undefined;
        this.#onTaken?.();
        yield part;
      } else if (this.#isEnded) return;
      else {
        await new Promise<void>((resolve) => {
          this.#onPart = resolve;
        });
      }
    }
  }
}
