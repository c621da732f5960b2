/** body-store — the shared shelf as one process sees it: a BodyStore behind a line with faults. */

import { RespoolError } from '../../core/errors.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import type { SimFaults } from './faults.ts';
import type { StoreLine } from './line.ts';
import type { Observer } from './observer.ts';

/** What a simulated body store is made of. */
export interface SimBodiesParts {
  readonly line: StoreLine;
  readonly observer: Observer;
  readonly faults: SimFaults;
}

/** A body store for one process of a simulated world. */
export function simBodies({ line, observer, faults }: SimBodiesParts): BodyStore {
  const { shelf } = observer.scene;
  return {
    name: 'simulated',
    traits: { durability: 'power-loss' },
    open: () => line.call({ name: 'open the bodies', isWrite: false }, () => undefined),
    close: () => line.idle(),
    async put(ref, stream) {
      const parts: Uint8Array[] = [];
      for await (const part of stream) parts.push(Uint8Array.from(part));
      const bytes = Buffer.concat(parts);
      return line.call({ name: 'put a body', isWrite: true }, () => {
        if (shelf.put(ref, bytes, observer.scene.storeNow()) === 'taken') {
          throw new RespoolError('message.duplicate', `cannot put body "${ref}": it is there`);
        }
        return { size: bytes.byteLength };
      });
    },
    async *get(ref) {
      const bytes = await line.call({ name: 'get a body', isWrite: false }, () => {
        const fault = faults.bodyFault();
        const found = fault === 'missing' ? undefined : shelf.get(ref);
        if (found === undefined) {
          throw new RespoolError('body.missing', `cannot read body "${ref}": it does not exist`);
        }
        const copy = Uint8Array.from(found);
        if (fault === 'corrupt') copy[0] = (copy[0] ?? 0) ^ 1;
        return copy;
      });
      const half = bytes.length >> 1;
      if (half > 0) yield bytes.subarray(0, half);
      if (bytes.length > 0) yield bytes.subarray(half);
    },
    async remove(refs) {
      const asked = [...refs];
      await line.call({ name: 'remove bodies', isWrite: true }, () => observer.removeBodies(asked));
    },
    async *refs(writtenBefore) {
      const found = await line.call({ name: 'list bodies', isWrite: false }, () =>
        shelf.refs(writtenBefore),
      );
      yield* found;
    },
  };
}
