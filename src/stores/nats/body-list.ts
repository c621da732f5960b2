/** body-list — every body of a bucket, and the chunks that belong to none. */

import type { StoredBody } from '../../ports/body-store.ts';
import { type BodyPlaces, NUID } from './body-meta.ts';
import { readAll } from './feed.ts';
import type { Stream } from './stream.ts';

/** Bodies written before a time; also what a crash left half written. */
export async function* listBodies(
  stream: Stream,
  places: BodyPlaces,
  writtenBefore: number,
): AsyncGenerator<StoredBody> {
  const metas = await readAll(stream, { filter: places.allMetas, headersOnly: true });
  const nuids = new Set<string>();
  const whole = new Set<string>();
  for (const { subject, headers } of metas) {
    whole.add(places.refOfMeta(subject));
    nuids.add(headers?.get(NUID) ?? '');
  }
  for (const { subject, storedAt } of metas) {
    const writtenAt = Math.floor(storedAt);
    if (writtenAt < writtenBefore) yield { ref: places.refOfMeta(subject), writtenAt };
  }
  const halves = new Set<string>();
  for await (const subject of chunkSubjects(stream, places)) {
    const found = places.readChunks(subject);
    if (found === undefined || nuids.has(found.nuid) || halves.has(found.ref)) continue;
    const last = await stream.last(subject);
    const writtenAt = Date.parse(last?.time ?? '');
    // A put that is still running has written its last chunk just now.
    if (!(writtenAt < writtenBefore)) continue;
    if (whole.has(found.ref)) {
      // Left by a second put of the same ref, which lost.
      await stream.purge(subject);
      continue;
    }
    halves.add(found.ref);
    yield { ref: found.ref, writtenAt };
  }
}

/** The subjects that chunks lie under, page by page. */
async function* chunkSubjects(stream: Stream, places: BodyPlaces): AsyncGenerator<string> {
  for (let offset = 0; ; ) {
    const info = await stream.info({ subjects_filter: places.allChunks, offset });
    const subjects = Object.keys(info?.state.subjects ?? {});
    yield* subjects;
    offset += subjects.length;
    if (subjects.length === 0 || offset >= (info?.total ?? 0)) return;
  }
}
