/**
 * shared-rates — what each process on a store has counted, on record for the one that looks at the
 * rules.
 *
 * Counts lie by time, so those of a process that is gone count for as long as the window goes back:
 * a rate survives a restart.
 */

import { createHash } from 'node:crypto';
import type { Millis } from '../../core/duration.ts';
import type { AlertParts } from './types.ts';
import type { WindowRates } from './sliding-window.ts';

const FLOW_KIND = 'alert.flow';

interface FlowRecord {
  readonly flows: WindowRates;
  /** Then the longest of its windows has passed over all that was counted. */
  readonly until: Millis;
}

type FlowParts = Pick<AlertParts, 'measures' | 'records' | 'name'>;

/** Shares the counts of this process, and hears those of others. */
export class SharedRates {
  readonly #parts: FlowParts;
  /** Not the name: keys of records are in the clear also under a seal, and it may tell a user. */
  readonly #key: string;
  #shared = '';

  constructor(parts: FlowParts) {
    this.#parts = parts;
    this.#key = createHash('sha256').update(parts.name).digest('hex').slice(0, 16);
  }

  /** Puts down what was counted here since the last time; nothing where no rule is about rates. */
  async share(now: Millis): Promise<void> {
    const { measures, records } = this.#parts;
    const counted = measures.flows?.();
    if (counted === undefined) return;
    const { flows, longestMs } = counted;
    const text = JSON.stringify(flows);
    if (text === this.#shared) return;
    const record: FlowRecord = { flows, until: now + longestMs };
    await records.put(FLOW_KIND, this.#key, record);
    this.#shared = text;
  }

  /** Tells the measures what others have counted, and forgets what is over. */
  async hear(now: Millis): Promise<void> {
    const { measures, records } = this.#parts;
    if (measures.flows?.() === undefined) return;
    const others: WindowRates[] = [];
    for (const { key, value } of await records.list(FLOW_KIND)) {
      const { until, flows } = value as FlowRecord;
      if (key === this.#key) continue;
      if (now > until) await records.remove(FLOW_KIND, key);
      else others.push(flows);
    }
    measures.hearOthers?.(others);
  }
}
