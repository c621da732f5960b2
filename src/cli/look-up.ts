/** look-up — messages by their ids, many in one question: a service takes only so many a second. */

import type { Operator } from '../operator/operator.ts';
import type { SeenEntry } from './ui/message-view.ts';
import type { Out } from './ui/output.ts';
import { safe } from '../observe/logs/safe-text.ts';

/** The messages there are, by their ids; at most 500 are asked for. */
export async function lookUp(
  operator: Operator,
  ids: readonly string[],
  out: Out,
): Promise<ReadonlyMap<string, SeenEntry>> {
  if (ids.length === 0) return new Map();
  const [id = ''] = ids;
  if (ids.length === 1) {
    const entry = await operator.get(id);
    return new Map(entry === undefined ? [] : [[id, entry]]);
  }
  const page = await operator.page({ ids: [...new Set(ids)], limit: ids.length });
  for (const { where, reason } of page.corrupt) {
    out.warn(`cannot read the entry at ${safe(where)}: ${safe(reason)}; see: respool check`);
  }
  return new Map(page.entries.map((entry) => [entry.envelope.id, entry]));
}
