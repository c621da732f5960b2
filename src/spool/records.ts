/**
 * records — small durable facts that others keep beside the messages: replays, notes on groups, the
 * state of rules and alerts. The spool's own records, such as the audit record, are out of reach.
 */

import { RespoolError, show } from '../core/errors.ts';
import type { RecordStore } from '../ports/record-store.ts';
import type { Runtime } from './runtime.ts';

/** What their kinds begin with. */
const FACT_KINDS = ['dlq.', 'alert.'] as const;

/** The records of a spool, for kinds of facts only; others are `config.invalid`. */
export function recordsOf(runtime: Runtime): RecordStore {
  const of = async (kind: string): Promise<RecordStore> => {
    checkRecordKind(kind);
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

/** Refuses a kind that is not of facts. */
export function checkRecordKind(kind: unknown): void {
  const fits =
    typeof kind === 'string' &&
    FACT_KINDS.some((prefix) => kind.startsWith(prefix) && kind !== prefix);
  if (fits) return;
  const [letters, alerts] = FACT_KINDS;
  throw new RespoolError(
    'config.invalid',
    `cannot use records of kind ${show(kind)}: those of dead letters begin with "${letters}", ` +
      `those of alerts with "${alerts}"`,
  );
}
