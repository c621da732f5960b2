/**
 * seal-records — records whose values are sealed; kinds, keys, sequences and revisions are not.
 *
 * A value is bound to its kind, and in a map to its key. Within one log, records could be moved by
 * somebody who may write to the store: the sequence is not known before the record is written.
 */

import { textOf } from '../core/errors.ts';
import { SEALED_NAME } from '../core/reserved-headers.ts';
import type { RecordStore } from '../ports/record-store.ts';
import { keyIdOf, type MissingKeys, type SealCipher, type SealPlace } from './seal-cipher.ts';

/** Records over those of another store. */
export function createSealedRecords(inner: () => RecordStore, cipher: SealCipher): RecordStore {
  const seal = (place: SealPlace, value: unknown): unknown => ({
    [SEALED_NAME]: cipher.seal(place, JSON.stringify(value) ?? 'null'),
  });

  async function openAll<T>(rows: readonly Row<T>[]): Promise<readonly Opened<T>[]> {
    const ids = rows.flatMap(({ value }) => keyIdIn(value));
    const missing = await cipher.need(ids);
    return rows.map(({ row, place, value }) => ({
      row,
      value: openValue(cipher, place, value, missing),
    }));
  }

  /** Refuses while a key cannot be had: a stand-in might be written back, or taken for good. */
  async function openNow<T>(rows: readonly Row<T>[]): Promise<readonly Opened<T>[]> {
    const missing = await cipher.need(rows.flatMap(({ value }) => keyIdIn(value)));
    for (const lack of missing.values()) if (lack.code === 'store.unavailable') throw lack;
    return openAll(rows);
  }

  return {
    append: async (kind, record) => inner().append(kind, seal(logOf(kind), record)),
    async read(kind, after, max) {
      const lines = await inner().read(kind, after, max);
      const place = logOf(kind);
      const opened = await openNow(lines.map((row) => ({ row, place, value: row.record })));
      return opened.map(({ row, value }) => ({ sequence: row.sequence, record: value }));
    },
    trim: (kind, upTo) => inner().trim(kind, upTo),
    put: async (kind, key, value, revision) =>
      inner().put(kind, key, seal(mapOf(kind, key), value), revision),
    async get(kind, key) {
      const row = await inner().get(kind, key);
      if (row === undefined) return undefined;
      const [opened] = await openNow([{ row, place: mapOf(kind, key), value: row.value }]);
      return { ...row, value: opened?.value };
    },
    async list(kind) {
      const rows = await inner().list(kind);
      // Also while a key cannot be had: what is paused, a spool has to know in order to start.
      const opened = await openAll(
        rows.map((row) => ({ row, place: mapOf(kind, row.key), value: row.value })),
      );
      return opened.map(({ row, value }) => ({ ...row, value }));
    },
    remove: (kind, key) => inner().remove(kind, key),
  };
}

interface Opened<T> {
  readonly row: T;
  readonly value: unknown;
}

interface Row<T> extends Opened<T> {
  readonly place: SealPlace;
}

function openValue(
  cipher: SealCipher,
  place: SealPlace,
  value: unknown,
  missing: MissingKeys,
): unknown {
  const sealed = sealedIn(value);
  if (sealed === undefined) return value;
  try {
    const lacking = missing.get(keyIdOf(sealed));
    if (lacking !== undefined) throw lacking;
    return JSON.parse(cipher.unseal(place, sealed)) as unknown;
  } catch (error) {
    return standIn(textOf(error));
  }
}

/**
 * What is read instead of a value that does not open. A lost key must not hide the records of other
 * keys, keep a log from being trimmed, or undo a pause, whose topic is its key; so it is no error,
 * and has the fields that records have: who, when, what.
 */
function standIn(why: string): unknown {
  return { at: 0, by: 'unknown', action: 'unreadable', ids: [], details: { why } };
}

function keyIdIn(value: unknown): readonly string[] {
  const sealed = sealedIn(value);
  if (sealed === undefined) return [];
  try {
    return [keyIdOf(sealed)];
  } catch {
    // No key can help; reading it says so.
    return [];
  }
}

function sealedIn(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const sealed: unknown = Object.hasOwn(value, SEALED_NAME)
    ? (value as Record<string, unknown>)[SEALED_NAME]
    : undefined;
  return sealed === undefined || Object.keys(value).length > 1 ? undefined : textOf(sealed);
}

function logOf(kind: string): SealPlace {
  return ['log', kind];
}

function mapOf(kind: string, key: string): SealPlace {
  return ['map', kind, key];
}
