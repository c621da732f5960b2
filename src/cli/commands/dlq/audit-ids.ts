/**
 * audit-ids — what is about to be done to letters that were named one by one, on the audit record:
 * in as many lines as it takes, for a store or a service takes no line of any length.
 */

import type { Control } from '../../../operator/operator.ts';

/** Ids in one line; with the longest ones it has about 256 KiB. */
const IDS_MAX = 1_000;

/** Writes the lines; durable when it resolves. */
export async function recordWithIds(
  control: Pick<Control, 'recordAction'>,
  action: string,
  { ids, ...details }: Readonly<Record<string, unknown>> & { readonly ids?: readonly string[] },
): Promise<void> {
  if (ids === undefined) return control.recordAction(action, details);
  const parts = Math.max(Math.ceil(ids.length / IDS_MAX), 1);
  for (let part = 0; part < parts; part += 1) {
    const some = ids.slice(part * IDS_MAX, (part + 1) * IDS_MAX);
    const place = parts === 1 ? {} : { part: part + 1, parts };
    await control.recordAction(action, { ...details, ids: some, ...place });
  }
}
