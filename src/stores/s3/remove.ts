/** remove — many objects with few requests, and one by one where the server cannot do that. */

import type { Calls } from './calls.ts';
import { isMissing, isUnsupported, storeError } from './errors.ts';

/** What the server takes in one request. */
const BATCH_MAX = 1_000;
/** Requests at once, where it is one per object. */
const SINGLES_AT_ONCE = 8;

/** Removes objects; one that is not there is no error. */
export async function removeKeys(calls: Calls, keys: readonly string[]): Promise<void> {
  for (let at = 0; at < keys.length; at += BATCH_MAX) {
    const batch = keys.slice(at, at + BATCH_MAX);
    if (batch.length > 1 && (await removeBatch(calls, batch))) continue;
    for (let from = 0; from < batch.length; from += SINGLES_AT_ONCE) {
      const some = batch.slice(from, from + SINGLES_AT_ONCE);
      await Promise.all(some.map((key) => removeOne(calls, key)));
    }
  }
}

/** False where the server does not know such a request, or wants a digest that is not sent. */
async function removeBatch(calls: Calls, keys: readonly string[]): Promise<boolean> {
  const input = { Delete: { Objects: keys.map((Key) => ({ Key })), Quiet: true } };
  try {
    const { Errors = [] } = await calls.send('DeleteObjects', input);
    const [failed] = Errors.filter(({ Code }) => Code !== 'NoSuchKey');
    if (failed === undefined) return true;
    throw Object.assign(new Error(`${Errors.length} of ${keys.length} were not removed`), {
      name: failed.Code ?? '',
      $metadata: { httpStatusCode: failed.Code === 'AccessDenied' ? 403 : 500 },
    });
  } catch (error) {
    if (isUnsupported(error)) return false;
    throw storeError(`remove ${keys.length} bodies`, error);
  }
}

async function removeOne(calls: Calls, key: string): Promise<void> {
  try {
    await calls.send('DeleteObject', { Key: key });
  } catch (error) {
    if (!isMissing(error)) throw storeError(`remove the body at "${key}"`, error);
  }
}
