/**
 * calls — one request to the server, with an end: a server that hangs does not hang a message.
 *
 * The package tries again by itself what may pass, with growing pauses; the time limit is for all
 * tries of a request together.
 */

import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { TimeLimit } from '../../system/wait.ts';
import type { Answers, CommandName, S3ClientLike, S3Package } from './client.ts';

/** Sends requests to one bucket. */
export class Calls {
  readonly #client: S3ClientLike;
  readonly #package: S3Package;
  readonly #bucket: string;
  readonly #clock: Clock;
  readonly requestTimeoutMs: number;

  constructor(
    client: S3ClientLike,
    s3Package: S3Package,
    {
      bucket,
      clock,
      requestTimeoutMs,
    }: { readonly bucket: string; readonly clock: Clock; readonly requestTimeoutMs: number },
  ) {
    this.#client = client;
    this.#package = s3Package;
    this.#bucket = bucket;
    this.#clock = clock;
    this.requestTimeoutMs = requestTimeoutMs;
  }

  /** Sends one request; rejects with the package's error, or ours when the time is over. */
  async send<Name extends CommandName>(
    name: Name,
    input: object,
    signal?: AbortSignal,
  ): Promise<Answers[Name]> {
    const command = this.#package.makeCommand(name, { Bucket: this.#bucket, ...input });
    const limit = new TimeLimit(this.#clock, this.requestTimeoutMs, signal);
    try {
      const answer = await this.#client.send(command, { abortSignal: limit.signal });
      return answer as Answers[Name];
    } catch (error) {
      if (!limit.isOver) throw error;
      throw new RespoolError(
        'store.unavailable',
        `cannot reach bucket "${this.#bucket}": no answer to ${name} within ` +
          `${this.requestTimeoutMs} ms; check the server, or raise requestTimeout`,
        { cause: error },
      );
    } finally {
      limit.stop();
    }
  }

  /** Calls back when nothing has come for the time of a request; the result calls it off. */
  watch(call: () => void): () => void {
    return this.#clock.after(this.requestTimeoutMs, call);
  }
}
