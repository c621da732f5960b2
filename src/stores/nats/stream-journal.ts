/**
 * stream-journal — what this process has seen of the stream, in a folder of its own machine: where
 * the stream ended, and which entries were removed.
 *
 * A server that comes back without its last writes takes everything along that could tell so. A
 * process that lives on remembers it (feed.ts); this is that memory for a process that is started
 * later. It is written at most once a second, and only after a write or a removal (also by `tidy`
 * and at the end): one append, synced.
 *
 *   seen <created> <seq> <time>     the stream that was created then ended there
 *   gone <id> <birth>               the server acknowledged or showed that this life of it is over
 *
 * Each opened store has files of its own, and reads those of all, in the order of the times of
 * their lines: `gone` has that of the `seen` before it. A line that is cut off or cannot be read is
 * left out: then the process knows as little of it as without a journal.
 *
 * Why: docs/decisions/0049-a-journal-beside-the-process-tells-that-nats-went-back.md
 */

import { mkdir, open, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { HOUR_MS, type Millis, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Stream } from './stream.ts';

/**
 * It is written this often at most. Also in docs/guarantees.md, docs/reference/stores/nats.md,
 * decision 0049 and test/stores/nats/stream-journal.test.ts.
 */
const WRITE_EVERY_MS = SECOND_MS;
/**
 * Files that were not written for so long go once they were read: servers have synced long ago.
 * Also in docs/reference/stores/nats.md.
 */
const KEPT_MS = HOUR_MS;
/**
 * Approximate number of lines in one file, and maximum that wait; a process keeps two files. Also
 * in docs/guarantees.md and docs/reference/stores/nats.md.
 */
const LINES_PER_FILE = 100_000;
/** After a failed append: ends what is left of it, so that it is not read as a whole line. */
const CUT_OFF = '~\n';
const ENDING = '.journal';

/** What a journal needs. */
export interface JournalOptions {
  readonly folder: string;
  readonly stream: Stream;
  /** Names the files of this opened store. */
  readonly session: string;
  readonly clock: Clock;
  /** The last sequence that was acknowledged or seen; 0 while that is not known. */
  readonly position: () => number;
  /** Hears of each file that cannot be read, and once that none can be written, until one can. */
  readonly tell: (error: RespoolError) => void;
}

/** One life of an id, by its birth. */
export type EntryLife = readonly [id: string, birth: number];

/** What earlier processes, or this one, have seen of a stream. */
interface SeenBefore {
  /** Where the stream ended; 0: not known. */
  readonly seq: number;
  readonly at: Millis | undefined;
  /** The stream was made anew since. */
  readonly isAnother: boolean;
  /** The lives of ids whose removal was seen, the latest last. */
  readonly removals: readonly EntryLife[];
}

/** The journal of one opened store. */
export class StreamJournal {
  readonly #parts: JournalOptions;
  /** Files of earlier processes that are not needed once the stream was read. */
  #old: string[] = [];
  #lines: string[] = [];
  /** The highest sequence that was seen of the stream created at this time. */
  #mark = { created: '', seq: 0 };
  #part = 1;
  #count = 0;
  #cancel: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #isDue = false;
  #isClosed = false;
  #isBroken = false;

  constructor(parts: JournalOptions) {
    this.#parts = parts;
  }

  /** What is in the journals of this machine. Ask `stream.info()` before: `created` is compared. */
  async read(): Promise<SeenBefore> {
    const { stream } = this.#parts;
    const files: Batch[][] = [];
    for (const path of await this.#paths()) files.push(await this.#readFile(path));
    const batches = files.flat().sort((a, b) => a.seen.at - b.seen.at);
    const removals = batches.flatMap(({ removed }) => removed);
    let latest: Seen | undefined;
    for (const { seen } of batches) latest = laterOf(latest, seen);
    const isAnother = latest !== undefined && latest.created !== stream.created;
    if (latest !== undefined && !isAnother) this.#mark = latest;
    return { seq: latest?.seq ?? 0, at: latest?.at, isAnother, removals };
  }

  /** Something was written to the stream. */
  noteWrite(): void {
    this.#isDue = true;
    if (this.#isClosed || this.#cancel !== undefined || this.#writing !== undefined) return;
    this.#cancel = this.#parts.clock.after(WRITE_EVERY_MS, () => {
      this.#cancel = undefined;
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined;
        if (this.#isDue) this.noteWrite();
      });
    });
  }

  /** The server acknowledged or showed that this life of an id is over. */
  noteRemoval(id: string, birth: number): void {
    this.#lines.push(`gone ${id} ${birth}\n`);
    this.noteWrite();
  }

  /** The stream was read, and what had come back is removed: old files may go. */
  async tidy(): Promise<void> {
    if (this.#old.length === 0) return;
    // What they knew of where the stream ended is in the file of this process then.
    await this.#write();
    if (this.#isBroken) return;
    for (const path of this.#old.splice(0)) await rm(path, { force: true }).catch(() => undefined);
  }

  /** Writes the rest. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancel?.();
    await this.#writing;
    if (this.#isDue) await this.#write();
  }

  async #paths(): Promise<readonly string[]> {
    const { folder, stream } = this.#parts;
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const names = await readdir(folder);
      const ours = names.filter((one) => one.startsWith(`${stream.name}.`) && one.endsWith(ENDING));
      return ours.map((name) => join(folder, name));
    } catch (error) {
      throw broken('read', folder, error);
    }
  }

  /** One that cannot be read, such as that of another user, does not keep the store closed. */
  async #readFile(path: string): Promise<Batch[]> {
    const { clock, tell } = this.#parts;
    try {
      const [text, { mtimeMs }] = await Promise.all([readFile(path, 'utf8'), stat(path)]);
      if (mtimeMs < clock.now() - KEPT_MS) this.#old.push(path);
      return readBatches(text);
    } catch (error) {
      // Another process may have removed it since the folder was read.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') tell(broken('read', path, error));
      return [];
    }
  }

  async #write(): Promise<void> {
    const { folder, stream, session, tell } = this.#parts;
    const lines = this.#lines;
    this.#lines = [];
    this.#isDue = false;
    const path = (part: number) => join(folder, `${stream.name}.${session}-${part}${ENDING}`);
    const begin = this.#isBroken ? CUT_OFF : '';
    try {
      await append(folder, path(this.#part), `${begin}${this.#seen()}${lines.join('')}`);
    } catch (error) {
      if (!this.#isBroken) tell(broken('write', folder, error));
      this.#isBroken = true;
      this.#lines = [...lines, ...this.#lines].slice(-LINES_PER_FILE);
      this.noteWrite();
      return;
    }
    this.#isBroken = false;
    this.#count += lines.length + 1;
    if (this.#count < LINES_PER_FILE) return;
    this.#count = 0;
    this.#part += 1;
    await rm(path(this.#part - 2), { force: true }).catch(() => undefined);
  }

  /** Only grows while the stream is the same: one that went back is noticed until it is past it. */
  #seen(): string {
    const { stream, clock, position } = this.#parts;
    const { created } = stream;
    const before = this.#mark.created === created ? this.#mark.seq : 0;
    this.#mark = { created, seq: Math.max(before, position()) };
    return `seen ${created} ${this.#mark.seq} ${clock.now()}\n`;
  }
}

/** Adds to a file, which is on the disk with its name when it resolves. */
async function append(folder: string, path: string, text: string): Promise<void> {
  const isNew = await stat(path).then(
    () => false,
    () => true,
  );
  const file = await open(path, 'a', 0o600);
  try {
    await file.appendFile(text);
    await file.datasync();
  } finally {
    await file.close();
  }
  if (!isNew) return;
  const names = await open(folder, 'r');
  try {
    await names.sync();
  } finally {
    await names.close();
  }
}

interface Seen {
  readonly created: string;
  readonly seq: number;
  readonly at: Millis;
}

/** What was written at one time. */
interface Batch {
  readonly seen: Seen;
  readonly removed: EntryLife[];
}

/** Of the stream that was seen last, the end that was furthest. */
function laterOf(one: Seen | undefined, other: Seen): Seen {
  if (one === undefined) return other;
  if (one.created === other.created) return other.seq > one.seq ? other : one;
  return other.at > one.at ? other : one;
}

/** What follows the last line break was cut off. */
function readBatches(text: string): Batch[] {
  const batches: Batch[] = [];
  for (const line of text.split('\n').slice(0, -1)) {
    const [word, name = '', first, second, ...more] = line.split(' ');
    if (name === '' || more.length > 0) continue;
    if (word === 'seen' && isCount(first) && isCount(second)) {
      const seen = { created: name, seq: Number(first), at: Number(second) };
      batches.push({ seen, removed: [] });
    } else if (word === 'gone' && isCount(first) && second === undefined) {
      batches.at(-1)?.removed.push([name, Number(first)]);
    }
  }
  return batches;
}

function isCount(text: string | undefined): text is string {
  return text !== undefined && /^\d{1,15}$/.test(text);
}

function broken(doing: 'read' | 'write', path: string, error: unknown): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot ${doing} the journal in "${path}": ${textOf(error)}; without it a process that is ` +
      'started later does not notice that the server lost writes',
    { cause: error },
  );
}
