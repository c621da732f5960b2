/**
 * records — small durable facts as files beside the entries.
 *
 *   records/<kind>/log              append, read, trim: JSON lines (record-log.ts)
 *   records/<kind>/map/<key>.json   put, get, list, remove: one file per key, replaced as a whole
 *
 * entry-store.ts makes it. One call at a time: there is one owner, and these are few and small.
 */

import { createHash } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { RespoolError } from '../../core/errors.ts';
import { checkKey } from '../../core/limits.ts';
import type { KeyedRecord, RecordStore } from '../../ports/record-store.ts';
import { createBatchLine } from '../shared/batching.ts';
import { makeFolder, syncFolder, writeWhole } from './durable-writes.ts';
import { storeError } from './errors.ts';
import { errnoOf } from './files.ts';
import { RecordLog } from './record-log.ts';

/** A record store that can be waited for. */
export interface FileRecords extends RecordStore {
  /** Resolves when nothing is on its way. */
  idle(): Promise<void>;
}

const APPENDS_MAX = 500;
const READ_MAX = 1_000;

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
      checkKey('kind of records', kind);
      const [sequence] = await appends.add([{ kind, text: JSON.stringify(record ?? null) }]);
      return sequence ?? 0;
    },
    async read(kind, after, max) {
      checkOpen();
      return inTurn('read records', async () =>
        (await logOf(kind)).read(after, Math.min(max, READ_MAX)),
      );
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
      checkKey('kind of records', kind);
      checkKey('key of a record', key);
      // Written down before anything is awaited: the caller may change the value afterwards.
      const text = JSON.stringify(value ?? null);
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
