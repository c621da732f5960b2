/**
 * flows — what each process on a store has counted, on record for the one that looks at the rules.
 *
 * Counts lie by time, so those of a process that is gone count for as long as the window goes back:
 * a rate survives a restart.
 */

import { DAY_MS, type Millis } from '../../core/duration.ts';
import type { AlertParts } from './types.ts';
import type { Flows } from './window.ts';

const FLOW_KIND = 'alert.flow';
/** Windows are not longer than this. */
const KEPT_MS: number = DAY_MS;

interface FlowRecord {
  readonly at: Millis;
  readonly flows: Flows;
}

/** Puts down what this process has counted; nothing where no rule is about rates. */
export async function shareFlows(
  { measures, records, name }: Pick<AlertParts, 'measures' | 'records' | 'name'>,
  now: Millis,
): Promise<void> {
  const flows = measures.flows?.();
  if (flows === undefined) return;
  const record: FlowRecord = { at: now, flows };
  await records.put(FLOW_KIND, name, record);
}

/** Tells the measures what others have counted, and forgets what is over. */
export async function hearFlows(
  { measures, records, name }: Pick<AlertParts, 'measures' | 'records' | 'name'>,
  now: Millis,
): Promise<void> {
  if (measures.flows?.() === undefined) return;
  const others: Flows[] = [];
  for (const { key, value } of await records.list(FLOW_KIND)) {
    const { at, flows } = value as FlowRecord;
    if (key === name) continue;
    if (now - at > KEPT_MS) await records.remove(FLOW_KIND, key);
    else others.push(flows);
  }
  measures.hearOthers?.(others);
}
