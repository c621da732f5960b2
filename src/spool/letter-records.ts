/**
 * letter-records — small durable facts about dead letters: replays, notes on groups, the state of
 * rules. The spool's own records, such as the audit record, are out of reach here.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { RecordStore } from '../ports/record-store.ts';
import type { Runtime } from './runtime.ts';

/** What their kinds begin with. */
const LETTER_KIND = 'dlq.';

/** The records of a spool, for kinds of dead letters only; others are `config.invalid`. */
export function letterRecords(runtime: Runtime): RecordStore {
  const of = async (kind: string): Promise<RecordStore> => {
    checkLetterKind(kind);
    await runtime.ready();
    return runtime.entries.records;
  };
  return {
    append: async (kind, record) => (await of(kind)).append(kind, record),
    read: async (kind, after, max) => (await of(kind)).read(kind, after, max),
    trim: async (kind, upTo) => (await of(kind)).trim(kind, upTo),
    put: async (kind, key, value, revision) => (await of(kind)).put(kind, key, value, revision),
    get: async (kind, key) => (await of(kind)).get(kind, key),
    list: async (kind) => (await of(kind)).list(kind),
    remove: async (kind, key) => (await of(kind)).remove(kind, key),
  };
}

/** Refuses a kind that is not of dead letters. */
export function checkLetterKind(kind: unknown): void {
  const fits = typeof kind === 'string' && kind.startsWith(LETTER_KIND) && kind !== LETTER_KIND;
  if (fits) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use records of kind ${show(kind)}: those of dead letters begin with "${LETTER_KIND}"`,
  );
}
