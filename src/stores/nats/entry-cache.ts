/**
 * entry-cache — entries this process wrote or read lately, so that its next step need not read
 * them.
 */

import type { Content } from './row.ts';

/** What an entry costs beside its bytes. */
const OVERHEAD_BYTES = 1_500;

/** Contents by id and sequence, up to this many bytes; the oldest go first. */
export class Cache {
  readonly #maxBytes: number;
  readonly #contents = new Map<string, { readonly seq: number; readonly content: Content }>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get(id: string, seq: number): Content | undefined {
    const held = this.#contents.get(id);
    return held?.seq === seq ? held.content : undefined;
  }

  set(id: string, seq: number, content: Content): void {
    this.delete(id);
    this.#bytes += content.tail.length + OVERHEAD_BYTES;
    this.#contents.set(id, { seq, content });
    for (const oldest of this.#contents.keys()) {
      if (this.#bytes <= this.#maxBytes) break;
      this.delete(oldest);
    }
  }

  delete(id: string): void {
    const held = this.#contents.get(id);
    if (held === undefined) return;
    this.#contents.delete(id);
    this.#bytes -= held.content.tail.length + OVERHEAD_BYTES;
  }

  /** Empties it; what was in it. */
  takeAll(): ReadonlyMap<string, { readonly seq: number; readonly content: Content }> {
    const all = new Map(this.#contents);
    this.#contents.clear();
    this.#bytes = 0;
    return all;
  }
}
