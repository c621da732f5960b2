/**
 * no-bodies — the store of bodies of a spool over an outbox: there are none beside the entries.
 */

import { RespoolError } from '../core/errors.ts';
import type { BodyStore, StoredBody } from '../ports/body-store.ts';

/** Holds nothing, and takes nothing. */
export function noBodies(): BodyStore {
  return {
    name: 'none',
    // Promises no less than the entries do.
    traits: { durability: 'node-loss' },
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    put: () =>
      Promise.reject(
        new RespoolError(
          'limit.exceeded',
          'cannot keep a body beside its entry in an outbox: it has to ride with it; keep large ' +
            'bodies elsewhere and send where they are',
        ),
      ),
    get: (ref) => missing(ref),
    remove: () => Promise.resolve(),
    refs: () => nothing(),
  };
}

// oxlint-disable-next-line require-yield -- it throws before there is anything to yield.
async function* missing(ref: string): AsyncGenerator<Uint8Array> {
  throw new RespoolError('body.missing', `there is no body "${ref}": an outbox keeps none`);
}

async function* nothing(): AsyncGenerator<StoredBody> {
  // Nothing is ever here.
}
