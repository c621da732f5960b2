/**
 * claim — due entries found in the catalog and made active, each by one rename.
 */

import type { Entry, Status } from '../../core/entry.ts';
import { assert } from '../../core/errors.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { takesTopic } from '../../core/topic.ts';
import type { ClaimFilter, ClaimRequest } from '../../ports/entry-store.ts';
import { type Catalog, createHeldEntry, type HeldEntry, pathOf } from './catalog.ts';
import type { DiskStep, StepDone } from './disk-protocol.ts';
import { noteDamage, type WriterPlan, type WriterRound } from './plan.ts';
import { decodeContent, fileName, mergeStatus } from './row.ts';

/** Whether a claim with this filter may ever take the entry, its due time aside. */
export function fitsFilter(entry: HeldEntry, filter: ClaimFilter): boolean {
  return (
    entry.dueAt !== null &&
    entry.lane === filter.lane &&
    filter.states.some((state) => state === entry.state) &&
    takesTopic(filter.topics, entry.topic) &&
    (entry.destination === undefined ||
      filter.exceptDestinations?.includes(entry.destination) !== true)
  );
}

/** Plans a claim: never `later`, it takes what is free. */
export function planClaim(request: ClaimRequest, round: WriterRound): WriterPlan {
  const { catalog } = round;
  const taken = pickDue(request, catalog);
  const next = taken.map((item) => claimedStatus(namedStatus(item), request));
  const steps = taken.map((item, at): DiskStep => {
    catalog.hide(item);
    const name = fileName(item.id, next[at] as Status);
    const { id, bytes } = item;
    return { kind: 'claim', id, from: pathOf(item), bytes, state: 'active', name };
  });
  return {
    // A claim may be forgotten in a power cut: the message is then where it was.
    steps,
    needsDisk: steps.length > 0,
    isDurable: false,
    isLazy: false,
    finish(done, contents) {
      const entries: Entry[] = [];
      taken.forEach((item, at) => {
        const step = done[at];
        const entry = noteClaimed(round, item, next[at] as Status, step, contents);
        if (entry !== undefined) entries.push(entry);
      });
      return entries;
    },
    drop() {
      for (const held of taken) catalog.show(held);
    },
  };
}

function pickDue(request: ClaimRequest, catalog: Catalog): HeldEntry[] {
  const taken: HeldEntry[] = [];
  if (request.ids !== undefined) {
    for (const id of new Set(request.ids)) {
      const held = catalog.byId.get(id);
      if (held === undefined || held.isBusy || held.due > request.now) continue;
      if (fitsFilter(held, request)) taken.push(held);
    }
    taken.sort((a, b) => a.priority - b.priority || a.due - b.due || (a.id < b.id ? -1 : 1));
    return taken.slice(0, request.max);
  }
  if (request.max <= 0) return taken;
  for (const held of catalog.tree.due(request, request.now)) {
    if (held.isBusy) continue;
    taken.push(held);
    if (taken.length >= request.max) break;
  }
  return taken;
}

function noteClaimed(
  round: WriterRound,
  entry: HeldEntry,
  next: Status,
  done: StepDone | undefined,
  contents: Uint8Array,
): Entry | undefined {
  if (done?.kind !== 'placed' || done.content === undefined) {
    noteDamage(round, entry, done);
    return undefined;
  }
  const { at, bytes } = done.content;
  const content = decodeContent(Buffer.from(contents.buffer, at, bytes), entry.id);
  assert(typeof content !== 'string', `the thread let a damaged "${entry.id}" pass`);
  const place = { state: 'active', shard: done.shard, bytes: done.bytes } as const;
  round.catalog.put(createHeldEntry(entry.id, next, entry, place));
  return {
    envelope: content.envelope,
    status: mergeStatus(content.status, 'active', next),
    // A copy: a handler that keeps its body must not keep the whole batch.
    ...(content.envelope.body.place === 'inline' ? { inlineBody: content.body.slice() } : {}),
  };
}

/** A status with all that a claim looks at; the rest stays in the file. */
function namedStatus(entry: HeldEntry): Status {
  const { state, lane, revision, attempts, notices, lost, updatedAt, dueAt } = entry;
  const unread = { policy: null, postponed: 0, replays: 0, history: [], notes: {} };
  return { state, lane, revision, attempts, notices, lost, updatedAt, dueAt, ...unread };
}
