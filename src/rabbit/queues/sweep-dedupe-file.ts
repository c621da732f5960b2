/**
 * sweep-dedupe-file — which messages were moved by a run that may not live to ack them, in a file.
 *
 *   confirmed ─add()─▶ written and synced ─▶ acked ─settle()─▶ the broker has taken it out
 *        killed in between: the next run takes the message for moved, and acks it without a copy
 *
 * Promise: what is in it has its copy in the target; it stands for as many messages as there are
 * entries, no more. What the broker is known to have taken out stands for none: there may be
 * another that is equal in id, body and headers, sent twice, and it needs a copy of its own. The
 * same holds for equal ones that are in hand together. Without an id equal ones are common, and
 * none is remembered. Earlier content of the file belongs to another program, and stays.
 */

import { createHash } from 'node:crypto';
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';
import { checkNumber } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import { systemClock } from '../../system/clock.ts';
import type { AmqpMessage } from '../connection/amqp.ts';
import { digestOf } from './letter.ts';

/** What was moved and perhaps not acked. */
export interface SweepJournal {
  /** Reads what an earlier run left; again for each run. */
  open(): Promise<void>;
  /** Whether a run that was killed moved it; used up by the answer. */
  take(identity: string): boolean;
  /** What a message is called here; undefined: it has no id, so that others may be equal to it. */
  identityOf(queue: string, message: AmqpMessage): string | undefined;
  /** Resolves when it is on the disk. */
  add(identity: string): Promise<void>;
  /** One that was added or taken is out of the queue for certain; written with what comes next. */
  settle(identity: string): void;
  /** One that was added stands for none from now on; resolves when that is on the disk. */
  strike(identity: string): Promise<void>;
  /** What this run moved is acked for certain; what an earlier one did only if all was seen. */
  forget(queue: string, isAllSeen: boolean): Promise<void>;
  /** Takes our lines out of the file when nothing is left that could come back. */
  close(): Promise<void>;
}

/** Options of `sweepJournal`. */
export interface SweepJournalOptions {
  /** Older entries are ignored, in milliseconds; default 7 days. */
  readonly maxAgeMs?: number;
  /** The broker and its virtual host: another one may have a queue of the same name. */
  readonly place?: string;
  readonly clock?: Clock;
}

/** The default of `maxAgeMs`: docs/reference/dead-letters.md. */
const MAX_AGE_MS = 7 * 24 * 60 * 60 * 1_000;
const FILE_MAX_BYTES = 256 * 2 ** 20;
const WORD_CHARS = 16;
const LINE = /^([-+=]) (\d{1,16}) ([0-9a-f.]{16,80})$/m;

/** A journal in a file, which one process at a time may use. */
export function sweepJournal(path: string, options: SweepJournalOptions = {}): SweepJournal {
  const { maxAgeMs = MAX_AGE_MS, place = '', clock = systemClock } = options;
  checkNumber('maxAgeMs', maxAgeMs, { min: 1, max: Number.MAX_SAFE_INTEGER });
  return new FileJournal(path, { maxAgeMs, place, clock });
}

interface Waiting {
  readonly line: string;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

class FileJournal implements SweepJournal {
  readonly #path: string;
  readonly #maxAgeMs: number;
  readonly #place: string;
  readonly #clock: Clock;
  /** Left by a run that was killed: when each entry was written. */
  readonly #left = new Map<string, number[]>();
  /** Queues with entries that may still be needed. */
  readonly #unsettled = new Set<string>();
  #file: FileHandle | undefined;
  /** This many bytes at its beginning are not ours. */
  #othersBytes = 0;
  #waiting: Waiting[] = [];
  /** Written with what comes next. */
  #settled: string[] = [];
  #isWriting = false;

  constructor(path: string, { maxAgeMs, place, clock }: Required<SweepJournalOptions>) {
    this.#path = path;
    this.#maxAgeMs = maxAgeMs;
    this.#place = place;
    this.#clock = clock;
  }

  async open(): Promise<void> {
    let file: FileHandle | undefined;
    try {
      await this.#file?.close();
      this.#file = undefined;
      file = await open(this.#path, 'a+', 0o600);
      const stat = await file.stat();
      if (!stat.isFile()) throw new Error('it is no file that keeps what is written');
      const { size } = stat;
      if (size > FILE_MAX_BYTES) throw new Error(`it has ${size} bytes: it is not a sweep journal`);
      // One character for each byte, whatever else is in it.
      this.#read(await readFile(this.#path, 'latin1'));
      // What a kill cut off must not run into the next line.
      if (size > 0) await file.appendFile('\n');
      this.#file = file;
    } catch (error) {
      await file?.close();
      throw this.#unusable('read', error);
    }
  }

  identityOf(queue: string, message: AmqpMessage): string | undefined {
    const { messageId } = message.properties;
    if (typeof messageId !== 'string' || messageId === '') return undefined;
    return `${this.#wordOf(queue)}.${digestOf(message)}`;
  }

  take(identity: string): boolean {
    return this.#left.get(identity)?.pop() !== undefined;
  }

  add(identity: string): Promise<void> {
    this.#unsettled.add(wordIn(identity));
    return this.#write(`+ ${this.#clock.now()} ${identity}`);
  }

  settle(identity: string): void {
    this.#settled.push(`= ${this.#clock.now()} ${identity}`);
  }

  strike(identity: string): Promise<void> {
    return this.#write(`= ${this.#clock.now()} ${identity}`);
  }

  async forget(queue: string, isAllSeen: boolean): Promise<void> {
    const word = this.#wordOf(queue);
    if (!this.#unsettled.has(word)) return;
    const still = isAllSeen ? [] : [...this.#left].filter(([one]) => wordIn(one) === word);
    const lines = still.flatMap(([one, ats]) => ats.map((at) => `+ ${at} ${one}`));
    await this.#write([`- ${this.#clock.now()} ${word}`, ...lines].join('\n'));
    if (lines.length === 0) this.#drop(word);
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    if (file === undefined) return;
    try {
      if (this.#unsettled.size === 0) await file.truncate(this.#othersBytes);
      else await file.appendFile(this.#settled.map((line) => `${line}\n`).join(''));
    } finally {
      await file.close();
    }
  }

  #read(text: string): void {
    this.#settled = [];
    this.#left.clear();
    this.#unsettled.clear();
    const ours = text.search(LINE);
    this.#othersBytes = ours < 0 ? text.length : ours;
    for (const line of text.split('\n')) {
      const [, sign, at, word] = LINE.exec(line) ?? [];
      if (word === undefined) continue;
      if (sign === '-') this.#drop(word);
      else if (sign === '=') this.take(word);
      else if (this.#clock.now() - Number(at) <= this.#maxAgeMs) {
        this.#left.set(word, [...(this.#left.get(word) ?? []), Number(at)]);
        this.#unsettled.add(wordIn(word));
      }
    }
  }

  #wordOf(queue: string): string {
    const name = this.#place === '' ? queue : `${this.#place}\n${queue}`;
    return createHash('sha256').update(name).digest('hex').slice(0, WORD_CHARS);
  }

  #drop(word: string): void {
    this.#unsettled.delete(word);
    for (const identity of this.#left.keys()) {
      if (wordIn(identity) === word) this.#left.delete(identity);
    }
  }

  /** While one batch is on its way to the disk, the next one gathers. */
  #write(line: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ line, resolve, reject });
      if (!this.#isWriting) void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    this.#isWriting = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        if (this.#file === undefined) throw new Error('it is closed');
        const lines = [...this.#settled.splice(0), ...batch.map(({ line }) => line)];
        await this.#file.appendFile(`${lines.join('\n')}\n`);
        await this.#file.datasync();
        for (const { resolve } of batch) resolve();
      } catch (error) {
        const unusable = this.#unusable('write', error);
        for (const { reject } of batch) reject(unusable);
      }
    }
    this.#isWriting = false;
  }

  #unusable(act: string, error: unknown): RespoolError {
    if (isRespoolError(error)) return error;
    return new RespoolError(
      'store.unavailable',
      `cannot ${act} the journal of the sweep ${show(this.#path)}: ${textOf(error)}; give ` +
        'another file, or none',
      { cause: error },
    );
  }
}

/** The queue in an identity. */
function wordIn(identity: string): string {
  return identity.slice(0, WORD_CHARS);
}
