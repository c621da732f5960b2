/**
 * records — logs and maps in the bucket of the entries.
 *
 * The sequence of a log line is that of the stream: it grows, and is used twice only by a server
 * that lost its last writes. A value of a map is guarded by the sequence of its message; its own
 * revision is counted inside. entry-store.ts makes them.
 */

import type { KeyedRecord, RecordStore } from '../../ports/record-store.ts';
import { RespoolError } from '../../core/errors.ts';
import { recordText } from '../shared/operations.ts';
import { hashOf, OPERATION, REMOVE_MARK } from './row.ts';
import { readAll } from './feed.ts';
import type { Stream } from './stream.ts';

const ROUNDS_MAX = 100;

/** What records are kept with. */
interface OpenRecords {
  readonly stream: Stream;
  /** `$KV.<bucket>.` */
  readonly prefix: string;
  readonly makeToken: () => string;
}

interface Held {
  readonly record: KeyedRecord | undefined;
  readonly seq: number;
}

/** Records over an open bucket; `open` throws when it is not. */
export function createRecords(open: () => OpenRecords): RecordStore {
  const logOf = ({ prefix }: OpenRecords, kind: string) => `${prefix}l.${hashOf(kind)}`;
  const mapOf = ({ prefix }: OpenRecords, kind: string) => `${prefix}m.${hashOf(kind)}`;
  return {
    async append(kind, record) {
      const parts = open();
      const token = parts.makeToken();
      // The token makes the subject unique, so a repetition after a lost answer is refused.
      const subject = `${logOf(parts, kind)}.${token.replace('.', '-')}`;
      const data = `{"record":${recordText(record)}}`;
      const seq = await parts.stream.write(subject, data, { token, expected: 0 });
      if (seq !== undefined) return seq;
      throw new RespoolError('store.corrupt', `cannot add to the log "${kind}": the name is taken`);
    },
    async read(kind, after, max) {
      const parts = open();
      const filter = `${logOf(parts, kind)}.*`;
      const from = Math.max(1, after + 1);
      const lines = await readAll(parts.stream, { filter, headersOnly: false, from, max });
      return lines.map(({ seq, data }) => ({ sequence: seq, record: readJson(data).record }));
    },
    async trim(kind, upTo) {
      const parts = open();
      if (upTo > 0) await parts.stream.purge(`${logOf(parts, kind)}.*`, upTo + 1);
    },
    async put(kind, key, value, revision) {
      const parts = open();
      const text = recordText(value);
      const subject = `${mapOf(parts, kind)}.${hashOf(key)}`;
      for (let round = 0; round < ROUNDS_MAX; round += 1) {
        const { record, seq } = await readHeld(parts, subject);
        const present = record?.revision ?? 0;
        if (revision !== undefined && revision !== present) return 'stale';
        const data = `{"key":${JSON.stringify(key)},"value":${text},"revision":${present + 1}}`;
        const token = parts.makeToken();
        const written = await parts.stream.write(subject, data, { token, expected: seq });
        if (written !== undefined) return 'done';
      }
      throw busy(key);
    },
    async get(kind, key) {
      const parts = open();
      return (await readHeld(parts, `${mapOf(parts, kind)}.${hashOf(key)}`)).record;
    },
    async list(kind) {
      const parts = open();
      const filter = `${mapOf(parts, kind)}.*`;
      const all = await readAll(parts.stream, { filter, headersOnly: false });
      // A value that was replaced while it was listed comes twice; the later one counts.
      const byKey = new Map<string, KeyedRecord | undefined>();
      for (const { subject, headers, data } of all) {
        byKey.set(subject, headers?.get(OPERATION) ? undefined : readJson(data));
      }
      return [...byKey.values()]
        .filter((record) => record !== undefined)
        .sort((one, other) => (one.key < other.key ? -1 : 1));
    },
    async remove(kind, key) {
      const parts = open();
      const subject = `${mapOf(parts, kind)}.${hashOf(key)}`;
      await removeHeld(parts, subject, key);
    },
  };
}

async function removeHeld(parts: OpenRecords, subject: string, key: string): Promise<void> {
  const headers = [[OPERATION, REMOVE_MARK]] as const;
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const { record, seq } = await readHeld(parts, subject);
    if (record === undefined) return;
    const token = parts.makeToken();
    const mark = await parts.stream.write(subject, '', { token, expected: seq, headers });
    if (mark !== undefined) return;
  }
  throw busy(key);
}

function busy(key: string): RespoolError {
  const text = `cannot change the record "${key}": others do all the time; try again`;
  return new RespoolError('store.unavailable', text);
}

async function readHeld({ stream }: OpenRecords, subject: string): Promise<Held> {
  const stored = await stream.last(subject);
  if (stored === undefined) return { record: undefined, seq: 0 };
  const isRemoved = stored.header(OPERATION) !== '';
  return { record: isRemoved ? undefined : readJson(stored.data), seq: stored.seq };
}

function readJson(data: Uint8Array): KeyedRecord & { readonly record: unknown } {
  return JSON.parse(Buffer.from(data).toString('utf8')) as KeyedRecord & { record: unknown };
}
