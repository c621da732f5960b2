/** check-all — the check over a whole spool, with what it repairs in the audit record. */

import type { Millis } from '../core/duration.ts';
import { audit } from './actions.ts';
import { check, type CheckParts, type CheckReport } from './check.ts';
import type { CheckOptions } from './operator-options.ts';
import type { Runtime } from './runtime.ts';

/** Looks through every entry and body; repairs when asked. */
export async function checkAll(
  runtime: Runtime,
  by: string,
  { repair = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  await runtime.ready();
  const { entries, bodies, chain, source, settings } = runtime;
  const record: CheckParts['record'] = ({ ids, details }) =>
    audit(runtime, { by, action: 'check', ids, details: { ...details } });
  const now = (): Millis => source.now();
  return check({ ...settings, entries, bodies, chain, repair, record, onProgress, now });
}
