/**
 * file-watch — notices that a file was deleted or replaced while a store has it open.
 *
 * SQLite goes on writing to a file without a name and says that all is well; with the last process
 * that has it open, everything in it is gone. Promise: a write that begins more than a second after
 * that fails, and so does every later one.
 */

import { stat } from 'node:fs/promises';
import { RespoolError } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import { sqliteCode } from '../shared/client.ts';

/** A look costs as much as a small insert, so it is not taken for each. */
const LOOK_MS = 1_000;

/** Watches over one open file. */
export class FileWatch {
  readonly #path: string;
  readonly #clock: Clock;
  #opened: string | undefined;
  #lookedAt = 0;
  #looking: Promise<void> | undefined;
  #loss: string | undefined;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /** Notes which file was opened. Not before: some file systems copy a file when it is opened. */
  async begin(): Promise<void> {
    this.#lookedAt = this.#clock.monotonic();
    this.#opened = await identity(this.#path);
  }

  /** Looks, if the last look is a second ago; undefined: no need to wait. */
  look(): Promise<void> | undefined {
    if (this.#looking !== undefined || this.#opened === undefined) return this.#looking;
    const now = this.#clock.monotonic();
    if (now - this.#lookedAt < LOOK_MS) return undefined;
    this.#lookedAt = now;
    this.#looking = this.#compare();
    return this.#looking;
  }

  /** Whether the file was in its place at the last look. */
  get isThere(): boolean {
    return this.#loss === undefined;
  }

  /** Throws when it was not. */
  check(): void {
    if (this.#loss === undefined) return;
    throw new RespoolError(
      'store.unavailable',
      `cannot write to "${this.#path}": ${this.#loss} while it was open, so nothing written now ` +
        'would last; restart the process',
    );
  }

  async #compare(): Promise<void> {
    try {
      // For good: a file that is put back was not written to meanwhile.
      if ((await identity(this.#path)) !== this.#opened) this.#loss ??= 'another file replaced it';
    } catch (error) {
      // Any other error says nothing about the file, which is still open.
      if (/^(?:ENOENT|ENOTDIR)$/.test(sqliteCode(error))) this.#loss ??= 'the file was deleted';
    } finally {
      this.#looking = undefined;
    }
  }
}

/** As long as a file is open, no other gets its number. */
async function identity(path: string): Promise<string> {
  const { dev, ino } = await stat(path, { bigint: true });
  return `${dev}:${ino}`;
}
