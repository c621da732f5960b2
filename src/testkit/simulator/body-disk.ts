/**
 * body-disk — the bodies all processes of a simulated world share. A body is durable once it is put
 * and gone without a trace once it is removed: the worst case for both.
 */

import type { Timeline } from './timeline.ts';

/** A body as it lies there. */
export interface StoredSimBody {
  readonly bytes: Uint8Array;
  readonly writtenAt: number;
}

/** The shared bodies of a world. */
export class SimBodyDisk {
  readonly timeline: Timeline;
  readonly bodies: Map<string, StoredSimBody> = new Map();

  constructor(timeline: Timeline) {
    this.timeline = timeline;
  }

  put(ref: string, bytes: Uint8Array, writtenAt: number): 'stored' | 'taken' {
    if (this.bodies.has(ref)) return 'taken';
    this.bodies.set(ref, { bytes, writtenAt });
    return 'stored';
  }

  get(ref: string): Uint8Array | undefined {
    return this.bodies.get(ref)?.bytes;
  }

  remove(refs: readonly string[]): void {
    for (const ref of refs) this.bodies.delete(ref);
  }

  refs(writtenBefore: number): { ref: string; writtenAt: number }[] {
    const found: { ref: string; writtenAt: number }[] = [];
    for (const [ref, { writtenAt }] of this.bodies) {
      if (writtenAt < writtenBefore) found.push({ ref, writtenAt });
    }
    return found;
  }
}
