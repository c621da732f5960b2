/**
 * rewind — a server that went back: what it acknowledged, and has forgotten after its restart.
 *
 * A stream of one replica may lose its last writes with its server. The processes that live on know
 * better: which entries they saw removed, and what they wrote or read last. When the stream is read
 * anew (watcher.ts), an entry whose removal this process has seen is removed again, and one that
 * shows an older revision than this process has at hand is written again. Nothing is made up: an
 * entry counts as settled only when the server had acknowledged or shown the removal of this very
 * life of its id (pending-inserts.ts). Everything found is told.
 *
 * In memory only. When all processes end together with the server, only the markers of removed
 * bodies still tell that a message has ended (body-store.ts).
 */

import { RespoolError } from '../../core/errors.ts';
import type { Cache } from './entry-cache.ts';
import type { FallenRow, Row } from './catalog.ts';
import type { Content } from './row.ts';

/** Removals that are remembered; the oldest are forgotten first. */
const REMOVALS_MAX = 200_000;
/** Writes on their way at once; each that is refused found a newer state there. */
const WRITES_AT_ONCE = 64;

/** What was found when the stream was read again. */
export interface RewindFindings {
  /** Where the stream ends now, and the last sequence of it that was seen before. */
  readonly lastSeq: number;
  readonly seenSeq: number;
  /** Entries whose last write was lost, and that are not there. */
  readonly gone: number;
  readonly fallen: readonly FallenRow[];
  /** Entries that were removed before, and are removed again. */
  readonly returned: readonly Row[];
}

/** What a rewind works with. */
export interface RewindParts {
  readonly cache: Cache;
  readonly streamName: string;
  /** Writes an entry over the sequence it has; undefined: it has moved on. */
  readonly write: (content: Content, expected: number) => Promise<number | undefined>;
  /** Removes an entry of the sequence it has; false: it has moved on. */
  readonly remove: (row: Row) => Promise<boolean>;
  readonly tell: (error: RespoolError) => void;
}

/** Remembers removals and contents, and compares them with a stream that is read again. */
export class Rewind {
  readonly #parts: RewindParts;
  /** The life of each id whose removal was seen last. */
  readonly #removals = new Map<string, number>();
  #contents: ReadonlyMap<string, { readonly seq: number; readonly content: Content }> = new Map();

  constructor(parts: RewindParts) {
    this.#parts = parts;
  }

  /** The server acknowledged or showed that this life of an id is over. */
  noteRemoval(id: string, birth: number): void {
    if (birth === 0) return;
    this.#removals.delete(id);
    this.#removals.set(id, birth);
    if (this.#removals.size <= REMOVALS_MAX) return;
    for (const oldest of this.#removals.keys()) {
      this.#removals.delete(oldest);
      break;
    }
  }

  wasRemoved(id: string, birth: number): boolean {
    return birth !== 0 && this.#removals.get(id) === birth;
  }

  /** Before the stream is read again: cached sequence numbers are invalid after it. */
  begin(): void {
    // What a reading that broke off had before it is kept: it is the newer state.
    this.#contents = new Map([...this.#parts.cache.takeAll(), ...this.#contents]);
  }

  /** Restores entries that fell back from the cache, and reports everything. */
  async finish(findings: RewindFindings): Promise<void> {
    const { gone, fallen, returned } = findings;
    const contents = this.#contents;
    this.#contents = new Map();
    if (gone + fallen.length + returned.length === 0) return;
    let restored = 0;
    await inParts(returned, (row) => this.#parts.remove(row));
    await inParts(fallen, async ({ row, seen }) => {
      const known = contents.get(row.id);
      if (known?.seq !== seen.seq) return;
      if ((await this.#parts.write(known.content, row.seq)) !== undefined) restored += 1;
    });
    this.#parts.tell(wentBack(this.#parts.streamName, findings, restored));
  }
}

/** Some at a time. One that fails is left as it is: the server is away again, and read anew. */
async function inParts<Item>(
  items: readonly Item[],
  act: (item: Item) => Promise<unknown>,
): Promise<void> {
  for (let at = 0; at < items.length; at += WRITES_AT_ONCE) {
    await Promise.allSettled(items.slice(at, at + WRITES_AT_ONCE).map(act));
  }
}

function wentBack(name: string, findings: RewindFindings, restored: number): RespoolError {
  const { lastSeq, seenSeq, gone, fallen, returned } = findings;
  const parts = [
    ...(gone > 0 ? [`${gone} of its messages are gone`] : []),
    ...(fallen.length > 0
      ? [`${fallen.length} fell back to an older state, ${restored} of them were written again`]
      : []),
    ...(returned.length > 0
      ? [`${returned.length} that were settled came back and were removed again`]
      : []),
  ];
  return new RespoolError(
    'store.corrupt',
    `the NATS server lost writes that it had acknowledged: stream "${name}" ends at ${lastSeq}, ` +
      `and ${seenSeq} was seen; ${parts.join('; ')}. Use NATS 2.10 or newer with ` +
      'sync_interval: always, and look for messages that are missing or came twice',
  );
}
