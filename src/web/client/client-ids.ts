/** client-ids — an action on messages by their ids, in as many requests as it takes. */

import { isRespoolError, RespoolError } from '../../core/errors.ts';
import { ID_PATTERN } from '../../core/limits.ts';
import type { ActionResult } from '../../spool/actions.ts';
import * as forms from './answers.ts';
import type { ServiceClient } from './http.ts';

/** Ids in one request, at the most. */
const IDS_MAX = 5_000;

/** What became of each, in their order; `json` is what goes with the ids. */
export async function byIds(
  client: ServiceClient,
  ids: readonly string[],
  { path, json: about }: { readonly path: string; readonly json: object },
): Promise<ActionResult[]> {
  const results = new Map<string, ActionResult>();
  const possible = ids.filter((id) => ID_PATTERN.test(id));
  for (let from = 0; from < possible.length; from += IDS_MAX) {
    const some = possible.slice(from, from + IDS_MAX);
    const json = { ...about, ids: some };
    const asking = client.ask(path, forms.results, { method: 'POST', json });
    const answer = await asking.catch((error: unknown) => {
      throw partly(error, from, `of ${possible.length} messages were done before`);
    });
    for (const result of answer.results) results.set(result.id, result);
    const missing = some.find((id) => !results.has(id));
    if (missing !== undefined) throw client.strange(`no result for the message "${missing}"`);
  }
  // What cannot be an id is no reason to refuse the others.
  return ids.map((id) => results.get(id) ?? { id, result: 'unknown' });
}

/** The same error; what was done before it happened must not be lost with it. */
export function partly(error: unknown, done: number, what: string): unknown {
  if (done === 0 || !isRespoolError(error)) return error;
  return new RespoolError(error.code, `${error.message}; ${done} ${what}`, { cause: error });
}
