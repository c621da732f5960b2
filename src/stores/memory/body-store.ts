/**
 * memoryBodies — bodies in the memory of this process, beside the entries of `memory`.
 *
 * Chunks are copied on the way in and on the way out; what is kept of a body is `HeldBody` of
 * data.ts. No timer, and no turn of the event loop beside those of the source: virtual time needs
 * that.
 */

import { RespoolError } from '../../core/errors.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import { systemClock } from '../../system/clock.ts';
import { Operations } from '../shared/operations.ts';
import { bodyData, type MemoryBodiesOptions } from './options.ts';

/** A body store that forgets everything with the process, or with the last use of its data. */
export function memoryBodies(options: MemoryBodiesOptions = {}): BodyStore {
  const { bodies } = bodyData(options);
  const { clock = systemClock } = options;
  const operations = new Operations('bodies', clock);
  let isOpen = false;
  const checkOpen = (): void => {
    if (isOpen) return;
    throw new RespoolError(
      'store.unavailable',
      'cannot use body store "memory": it is not open; call open() first',
    );
  };
  const checkFree = (ref: string): void => {
    if (!bodies.has(ref)) return;
    throw new RespoolError(
      'message.duplicate',
      `cannot put body "${ref}": there is one already; a ref is used once`,
    );
  };
  return {
    name: 'memory',
    traits: { durability: 'none' },
    async open() {
      isOpen = true;
    },
    async close() {
      isOpen = false;
    },
    ...operations.bodies({
      async put(ref, stream) {
        checkOpen();
        checkFree(ref);
        const chunks: Uint8Array[] = [];
        let size = 0;
        for await (const chunk of stream) {
          chunks.push(Uint8Array.from(chunk));
          size += chunk.byteLength;
        }
        // Again, because others went on while the stream ran.
        checkOpen();
        checkFree(ref);
        bodies.set(ref, { chunks, writtenAt: clock.now() });
        return { size };
      },
      async *get(ref) {
        checkOpen();
        const body = bodies.get(ref);
        if (body === undefined) {
          throw new RespoolError('body.missing', `cannot read body "${ref}": it does not exist`);
        }
        for (const chunk of body.chunks) yield Uint8Array.from(chunk);
      },
      async remove(refs) {
        checkOpen();
        for (const ref of refs) bodies.delete(ref);
      },
    }),
    async *refs(writtenBefore) {
      checkOpen();
      for (const [ref, { writtenAt }] of bodies) {
        if (writtenAt < writtenBefore) yield { ref, writtenAt };
      }
    },
    onOperation: operations.on,
  };
}
