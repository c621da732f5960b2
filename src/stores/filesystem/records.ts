/**
 * records — small durable facts as files beside the entries.
 *
 *   records/<kind>/log              append, read, trim: JSON lines (`RecordLog`)
 *   records/<kind>/map/<key>.json   put, get, list, remove: one file per key, replaced as a whole
 *
 * entry-store.ts makes it. One call at a time: there is one owner, and these are few and small.
 */

import { createHash } from 'node:crypto';
import { type FileHandle, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import type { KeyedRecord, LogRecord, RecordStore } from '../../ports/record-store.ts';
import { createBatchLine } from '../shared/batching.ts';
import { recordText } from '../shared/operations.ts';
import { errnoOf, storeError } from './errors.ts';
import { makeFolder, syncFolder, writeWhole } from './files.ts';

/** A record store that can be waited for. */
export interface FileRecords extends RecordStore {
  /** Resolves when nothing is on its way. */
  idle(): Promise<void>;
}

const APPENDS_MAX = 500;

/** Longer names are replaced by their hash; the key itself stands in the file. */
const NAME_MAX_CHARS = 200;

/** Makes the record store below `path`. */
export function createRecords(parts: {
  readonly path: string;
  readonly isDurable: boolean;
  readonly checkOpen: () => void;
}): FileRecords {
  const { path, isDurable, checkOpen } = parts;
  const logs = new Map<string, RecordLog>();
  let last: Promise<unknown> = Promise.resolve();

  function inTurn<Value>(doing: string, act: () => Promise<Value>): Promise<Value> {
    const turn = last.then(act).catch((error: unknown) => {
      throw storeError(`${doing} in "${path}"`, error);
    });
    last = turn.catch(() => undefined);
    return turn;
  }
  async function logOf(kind: string): Promise<RecordLog> {
    let log = logs.get(kind);
    if (log === undefined) {
      log = await RecordLog.open(folderOf(path, kind), isDurable);
      logs.set(kind, log);
    }
    return log;
  }
  const appends = createBatchLine<{ kind: string; text: string }, number>(
    (items) => inTurn('append records', () => appendAll(items, logOf)),
    { batchMax: APPENDS_MAX },
  );

  return {
    async append(kind, record) {
      checkOpen();
      const [sequence] = await appends.add([{ kind, text: recordText(record) }]);
      return sequence ?? 0;
    },
    async read(kind, after, max) {
      checkOpen();
      return inTurn('read records', async () => (await logOf(kind)).read(after, max));
    },
    async trim(kind, upTo) {
      checkOpen();
      await inTurn('trim records', async () => (await logOf(kind)).trim(upTo));
    },
    ...createMaps(parts, inTurn),
    async idle() {
      await appends.idle();
      await last;
    },
  };
}

function createMaps(
  { path, isDurable, checkOpen }: Parameters<typeof createRecords>[0],
  inTurn: <Value>(doing: string, act: () => Promise<Value>) => Promise<Value>,
): Pick<RecordStore, 'put' | 'get' | 'list' | 'remove'> {
  return {
    async put(kind, key, value, revision) {
      checkOpen();
      // Written down before anything is awaited: the caller may change the value afterwards.
      const text = recordText(value);
      return inTurn(`put record "${key}"`, async () => {
        const file = fileOf(path, kind, key);
        const present = (await readKeyed(file))?.revision ?? 0;
        if (revision !== undefined && revision !== present) return 'stale';
        await makeFolder(mapOf(path, kind), isDurable);
        const keyText = JSON.stringify(key);
        const line = `{"key":${keyText},"revision":${present + 1},"value":${text}}\n`;
        await writeWhole(file, line, isDurable);
        return 'done';
      });
    },
    async get(kind, key) {
      checkOpen();
      return inTurn(`read record "${key}"`, () => readKeyed(fileOf(path, kind, key)));
    },
    async list(kind) {
      checkOpen();
      return inTurn('list records', () => listKeyed(mapOf(path, kind)));
    },
    async remove(kind, key) {
      checkOpen();
      await inTurn(`remove record "${key}"`, async () => {
        const file = fileOf(path, kind, key);
        if ((await readKeyed(file)) === undefined) return;
        await rm(file, { force: true });
        if (isDurable) await syncFolder(mapOf(path, kind));
      });
    },
  };
}

async function appendAll(
  items: readonly { readonly kind: string; readonly text: string }[],
  logOf: (kind: string) => Promise<RecordLog>,
): Promise<readonly number[]> {
  const results: number[] = [];
  const kinds = new Set(items.map(({ kind }) => kind));
  for (const kind of kinds) {
    const places = items.flatMap((item, at) => (item.kind === kind ? [at] : []));
    const log = await logOf(kind);
    const sequences = await log.append(places.map((at) => items[at]?.text ?? 'null'));
    places.forEach((at, index) => {
      results[at] = sequences[index] ?? 0;
    });
  }
  return results;
}

async function listKeyed(folder: string): Promise<readonly KeyedRecord[]> {
  let names: string[];
  try {
    names = await readdir(folder);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
  const records: KeyedRecord[] = [];
  for (const name of names) {
    if (!name.endsWith('.json')) continue;
    const record = await readKeyed(join(folder, name));
    if (record !== undefined) records.push(record);
  }
  return records.sort((a, b) => (a.key < b.key ? -1 : 1));
}

async function readKeyed(file: string): Promise<KeyedRecord | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { key, value, revision } = JSON.parse(text) as KeyedRecord;
    return { key, value, revision };
  } catch (error) {
    throw new RespoolError(
      'store.corrupt',
      `cannot read the record "${file}": it is not JSON; restore it or remove the file`,
      { cause: error },
    );
  }
}

function folderOf(path: string, kind: string): string {
  return join(path, safeName(kind));
}

function mapOf(path: string, kind: string): string {
  return join(folderOf(path, kind), 'map');
}

function fileOf(path: string, kind: string, key: string): string {
  return join(mapOf(path, kind), `${safeName(key)}.json`);
}

/** A file name for any text: lower case only, for disks that do not tell `A` from `a`. */
function safeName(text: string): string {
  let name = '';
  for (const byte of Buffer.from(text)) {
    const character = String.fromCharCode(byte);
    const isPlain = /[a-z0-9_-]/.test(character) || (character === '.' && name !== '');
    name += isPlain ? character : `%${byte.toString(16).padStart(2, '0')}`;
  }
  if (name.length <= NAME_MAX_CHARS) return name;
  return `~${createHash('sha256').update(text).digest('hex')}`;
}

// One log of records: a file of JSON lines that only grows at its end.
//
//   {"sequence":12,"record":{…}}        one line per record
//   {"last":12}                         the first line after a trim: sequences are never used twice
//
// createRecords calls it, one call at a time. A last line that a crash cut off was never
// acknowledged; it is cut off for good when the log is opened.

/** Lines between remembered offsets, so that a read need not start at the beginning. */
const MARK_EVERY = 200;

/** How much of a log is copied at once by a trim. */
const COPY_BYTES = 64 * 1024;

interface Mark {
  readonly sequence: number;
  readonly at: number;
}

/** One log, opened. */
class RecordLog {
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
    if (this.#last <= after) return records;
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
