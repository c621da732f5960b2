/**
 * records — records in memory, as JSON text: what was given cannot be changed from outside.
 */

import type { RecordStore } from '../../ports/record-store.ts';
import { recordText } from '../shared/operations.ts';
import type { Data, Log } from './data.ts';

/** Records over shared data; `checkOpen` throws once the store is closed. */
export function createMemoryRecords(data: Data, checkOpen: () => void): RecordStore {
  return {
    async append(kind, record) {
      checkOpen();
      const log = logOf(data, kind);
      log.last += 1;
      log.records.set(log.last, recordText(record));
      return log.last;
    },
    async read(kind, after, max) {
      checkOpen();
      const records = [];
      // A Map keeps the order of insertion, which is the order of sequences.
      for (const [sequence, text] of data.logs.get(kind)?.records ?? []) {
        if (records.length >= max) break;
        if (sequence > after) records.push({ sequence, record: JSON.parse(text) as unknown });
      }
      return records;
    },
    async trim(kind, upTo) {
      checkOpen();
      const records = data.logs.get(kind)?.records;
      for (const sequence of records?.keys() ?? []) {
        if (sequence > upTo) return;
        records?.delete(sequence);
      }
    },
    async put(kind, key, value, revision) {
      checkOpen();
      let map = data.maps.get(kind);
      if (map === undefined) data.maps.set(kind, (map = new Map()));
      const present = map.get(key)?.revision ?? 0;
      if (revision !== undefined && revision !== present) return 'stale';
      map.set(key, { value: recordText(value), revision: present + 1 });
      return 'done';
    },
    async get(kind, key) {
      checkOpen();
      const held = data.maps.get(kind)?.get(key);
      if (held === undefined) return undefined;
      return { key, value: JSON.parse(held.value) as unknown, revision: held.revision };
    },
    async list(kind) {
      checkOpen();
      return [...(data.maps.get(kind) ?? [])]
        .map(([key, { value, revision }]) => ({
          key,
          value: JSON.parse(value) as unknown,
          revision,
        }))
        .sort((one, other) => (one.key < other.key ? -1 : 1));
    },
    async remove(kind, key) {
      checkOpen();
      data.maps.get(kind)?.delete(key);
    },
  };
}

function logOf(data: Data, kind: string): Log {
  let log = data.logs.get(kind);
  if (log === undefined) data.logs.set(kind, (log = { last: 0, records: new Map() }));
  return log;
}
