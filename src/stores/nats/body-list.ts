/**
 * body-list — every body of a bucket, and the chunks that belong to none.
 *
 * The stream is walked once in its order, headers only, page by page behind the last sequence:
 * whatever is removed meanwhile shifts nothing, and no more than a page is in memory. What an
 * object is comes behind its chunks. So only chunks whose object has not come yet are remembered:
 * those of uploads that were under way at that place, and those that nobody finished.
 */

import type { StoredBody } from '../../ports/body-store.ts';
import { type BodyPlaces, NUID, readMeta, SETTLED } from './body-meta.ts';
import { readAll } from './feed.ts';
import type { Stream } from './stream.ts';

/** No filter: one that covers both kinds of subjects is refused by the server. */
const ALL = '';
/** Messages that are read at once. */
const PAGE_MAX = 500;
/** This many unfinished objects are remembered; of more, the oldest are looked at right away. */
const UNFINISHED_MAX = 10_000;
const DROPS_AT_ONCE = 64;

/** Which bodies are listed, and which markers of settled messages are removed on the way. */
export interface ListLimits {
  readonly writtenBefore: number;
  readonly markersBefore: number;
}

/** Bodies written before a time; also what a crash left half written. */
export async function* listBodies(
  stream: Stream,
  places: BodyPlaces,
  { writtenBefore, markersBefore }: ListLimits,
): AsyncGenerator<StoredBody> {
  const unfinished = new Map<string, string>();
  for (let from = 1; ; ) {
    const page = { filter: ALL, headersOnly: true, from, max: PAGE_MAX };
    const messages = await readAll(stream, page);
    const oldMarkers: number[] = [];
    for (const { seq, subject, headers, storedAt } of messages) {
      if (!places.isMeta(subject)) {
        const found = places.readChunks(subject);
        if (found !== undefined) unfinished.set(found.nuid, found.ref);
        continue;
      }
      if ((headers?.get(SETTLED) ?? '') !== '') {
        if (storedAt < markersBefore) oldMarkers.push(seq);
        continue;
      }
      unfinished.delete(headers?.get(NUID) ?? '');
      const writtenAt = Math.floor(storedAt);
      if (writtenAt < writtenBefore) yield { ref: places.refOfMeta(subject), writtenAt };
    }
    for (let at = 0; at < oldMarkers.length; at += DROPS_AT_ONCE) {
      const drops = oldMarkers.slice(at, at + DROPS_AT_ONCE);
      await Promise.all(drops.map((seq) => stream.drop(seq)));
    }
    const last = messages.at(-1);
    const isEnd = last === undefined || messages.length < PAGE_MAX;
    const keptMax = isEnd ? 0 : UNFINISHED_MAX;
    yield* examine({ stream, places, writtenBefore }, takeOldest(unfinished, keptMax));
    if (isEnd) return;
    from = last.seq + 1;
  }
}

/** Takes out the oldest ones beyond this many. */
function takeOldest(unfinished: Map<string, string>, max: number): Map<string, string> {
  const taken = new Map<string, string>();
  for (const [nuid, ref] of unfinished) {
    if (unfinished.size <= max) break;
    unfinished.delete(nuid);
    taken.set(nuid, ref);
  }
  return taken;
}

interface Search {
  readonly stream: Stream;
  readonly places: BodyPlaces;
  readonly writtenBefore: number;
}

/** Of objects without their last part, those that nobody will finish any more. */
async function* examine(
  { stream, places, writtenBefore }: Search,
  unfinished: ReadonlyMap<string, string>,
): AsyncGenerator<StoredBody> {
  const told = new Set<string>();
  for (const [nuid, ref] of unfinished) {
    if (told.has(ref)) continue;
    const subject = places.chunksOf(nuid);
    const last = await stream.last(subject);
    const writtenAt = Date.parse(last?.time ?? '');
    // A put that is still running has written its last chunk just now.
    if (!(writtenAt < writtenBefore)) continue;
    const stored = await stream.last(places.metaOf(ref));
    if (stored === undefined) {
      told.add(ref);
      yield { ref, writtenAt };
      continue;
    }
    // Finished since, or left by a second put of the same ref, which lost.
    const whole = stored.header(NUID) || readMeta(stored)?.nuid;
    if (whole !== nuid) await stream.purge(subject);
  }
}
