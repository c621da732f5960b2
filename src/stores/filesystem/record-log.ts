/**
 * record-log — one log of records: a file of JSON lines that only grows at its end.
 *
 *   {"sequence":12,"record":{…}}        one line per record
 *   {"last":12}                         the first line after a trim: sequences are never used twice
 *
 * records.ts calls it, one call at a time. A last line that a crash cut off was never acknowledged;
 * it is cut off for good when the log is opened.
 */

import { type FileHandle, open, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { LogRecord } from '../../ports/record-store.ts';
import { makeFolder, syncFolder } from './durable-writes.ts';
import { errnoOf } from './files.ts';

/** Every so many lines the place is remembered, so that a read need not start at the beginning. */
const MARK_EVERY = 200;

/** How much of a log is copied at once by a trim. */
const COPY_BYTES = 64 * 1024;

interface Mark {
  readonly sequence: number;
  readonly at: number;
}

/** One log, opened. */
export class RecordLog {
  readonly #path: string;
  readonly #isDurable: boolean;
  #marks: Mark[] = [];
  #lines = 0;
  #bytes = 0;
  #first = 0;
  #last = 0;

  private constructor(path: string, isDurable: boolean) {
    this.#path = path;
    this.#isDurable = isDurable;
  }

  /** Reads a log through; one that is not there yet is empty. */
  static async open(folder: string, isDurable: boolean): Promise<RecordLog> {
    const log = new RecordLog(join(folder, 'log'), isDurable);
    await log.#load();
    return log;
  }

  /** Adds records; their sequences. Nothing of them is left when it fails. */
  async append(texts: readonly string[]): Promise<readonly number[]> {
    if (this.#bytes === 0) await makeFolder(dirname(this.#path), this.#isDurable);
    const sequences = texts.map((_, index) => this.#last + 1 + index);
    const lines = texts.map((text, index) => `{"sequence":${sequences[index]},"record":${text}}\n`);
    const file = await open(this.#path, 'a+', 0o600);
    try {
      await file.appendFile(lines.join(''));
      if (this.#isDurable) await file.datasync();
      if (this.#isDurable && this.#bytes === 0) await syncFolder(dirname(this.#path));
    } catch (error) {
      await file.truncate(this.#bytes);
      throw error;
    } finally {
      await file.close();
    }
    lines.forEach((line, index) => this.#note(sequences[index] ?? 0, Buffer.byteLength(line)));
    return sequences;
  }

  /** Records with a higher sequence, oldest first. */
  async read(after: number, max: number): Promise<readonly LogRecord[]> {
    const records: LogRecord[] = [];
    if (this.#last <= after || max <= 0) return records;
    for await (const { parsed } of this.#linesFrom(this.#markBefore(after).at)) {
      if (parsed === undefined || parsed.sequence <= after) continue;
      records.push(parsed);
      if (records.length >= max) break;
    }
    return records;
  }

  /** Forgets records up to and including this sequence. */
  async trim(upTo: number): Promise<void> {
    if (this.#lines === 0 || upTo < this.#first) return;
    const draft = `${this.#path}.draft`;
    const file = await open(draft, 'w', 0o600);
    try {
      await this.#copyAfter(upTo, file);
      if (this.#isDurable) await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, this.#path);
    if (this.#isDurable) await syncFolder(dirname(this.#path));
    await this.#load();
  }

  async #copyAfter(upTo: number, file: FileHandle): Promise<void> {
    let piece = `{"last":${this.#last}}\n`;
    for await (const { line, parsed } of this.#linesFrom(this.#markBefore(upTo).at)) {
      if (parsed === undefined || parsed.sequence <= upTo) continue;
      piece += `${line}\n`;
      if (piece.length < COPY_BYTES) continue;
      await file.appendFile(piece);
      piece = '';
    }
    await file.appendFile(piece);
  }

  #markBefore(after: number): Mark {
    return this.#marks.findLast(({ sequence }) => sequence <= after) ?? { sequence: 0, at: 0 };
  }

  #note(sequence: number, bytes: number): void {
    if (this.#lines % MARK_EVERY === 0) this.#marks.push({ sequence, at: this.#bytes });
    if (this.#first === 0) this.#first = sequence;
    this.#lines += 1;
    this.#bytes += bytes;
    this.#last = Math.max(this.#last, sequence);
  }

  async #load(): Promise<void> {
    [this.#marks, this.#lines, this.#bytes, this.#first] = [[], 0, 0, 0];
    let file: FileHandle;
    try {
      file = await open(this.#path, 'r+');
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return;
      throw error;
    }
    try {
      const { size } = await file.stat();
      for await (const { line, parsed, last } of this.#linesFrom(0, size)) {
        const bytes = Buffer.byteLength(line) + 1;
        // The last line has its end, or it was cut off by a crash before it was acknowledged.
        if (this.#bytes + bytes > size) break;
        if (parsed === undefined) this.#bytes += bytes;
        else this.#note(parsed.sequence, bytes);
        this.#last = Math.max(this.#last, last);
      }
      if (this.#bytes < size) await file.truncate(this.#bytes);
    } finally {
      await file.close();
    }
  }

  async *#linesFrom(
    at: number,
    end = this.#bytes,
  ): AsyncGenerator<{ readonly line: string; readonly parsed?: LogRecord; readonly last: number }> {
    if (end <= at) return;
    const file = await open(this.#path, 'r');
    try {
      for await (const line of file.readLines({ start: at, end: end - 1, encoding: 'utf8' })) {
        yield { line, ...parseLine(line) };
      }
    } finally {
      await file.close();
    }
  }
}

function parseLine(line: string): { readonly parsed?: LogRecord; readonly last: number } {
  try {
    const { sequence, record, last } = JSON.parse(line) as Record<string, unknown>;
    if (typeof sequence !== 'number') return { last: typeof last === 'number' ? last : 0 };
    return { parsed: { sequence, record }, last: sequence };
  } catch {
    // A damaged line must not take its neighbours with it; it stays in the file until a trim.
    return { last: 0 };
  }
}
