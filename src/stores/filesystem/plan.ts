/**
 * plan — what a call of the store means in file steps, and what its outcome means for the catalog.
 *
 * entry-store.ts plans all calls of a batch, has the disk carry them out, and then finishes each
 * plan: the catalog changes only when the disk has done its part. Two calls that touch the same
 * entry never share a batch (`'later'`), so the second one is judged by what the first one really
 * did.
 */

import type { Entry, Status } from '../../core/entry.ts';
import { assert } from '../../core/errors.ts';
import { claimedStatus } from '../../core/next-status.ts';
import { takesTopic } from '../../core/topic.ts';
import type { Change, ClaimFilter, ClaimRequest, Duplicate } from '../../ports/entry-store.ts';
import { type Catalog, createHeldEntry, factsOf, type HeldEntry, pathOf } from './catalog.ts';
import type { Damage, Step, StepDone, FileRange } from './disk-protocol.ts';
import { decodeContent, fileName, headLine, mergeStatus } from './layout.ts';

/** What can be asked of the store in a batch. */
export type WriterCall =
  | { readonly kind: 'insert'; readonly entries: readonly Entry[] }
  | { readonly kind: 'claim'; readonly request: ClaimRequest }
  | { readonly kind: 'commit'; readonly changes: readonly Change[]; readonly isDurable: boolean }
  | { readonly kind: 'setAside'; readonly held: HeldEntry; readonly reason: string }
  | { readonly kind: 'flush' };

/** A call in file steps. */
export interface WriterPlan {
  readonly steps: readonly Step[];
  readonly needsDisk: boolean;
  /** It must be on the disk before it is answered. */
  readonly isDurable: boolean;
  /** It must be on the disk soon. */
  readonly isLazy: boolean;
  /** Notes in the catalog what the disk did, and gives the call's answer. */
  finish(done: readonly StepDone[], contents: Uint8Array): unknown;
  /** Takes the plan back: the disk did nothing. */
  drop(): void;
}

/** What the calls of one batch share. */
export interface WriterRound {
  readonly catalog: Catalog;
  readonly damages: Damage[];
  /** Ids and dedupe keys of entries that this batch inserts, and the call that does. */
  readonly ids: Map<string, WriterCall>;
  readonly keys: Map<string, WriterCall>;
  /** Inline bodies, to be sent in one piece. */
  readonly bodies: Uint8Array[];
  bodiesBytes: number;
}

/** Plans a call, or says that it has to wait for another one of this batch. */
export function planCall(call: WriterCall, round: WriterRound): WriterPlan | 'later' {
  switch (call.kind) {
    case 'insert':
      return planInsert(call, round);
    case 'claim':
      return planClaim(call.request, round);
    case 'commit':
      return planCommit(call, round);
    case 'setAside':
      return planSetAside(call, round);
    default:
      return {
        steps: [],
        needsDisk: true,
        isDurable: true,
        isLazy: false,
        finish: () => undefined,
        drop: () => undefined,
      };
  }
}

/** Whether a claim with this filter may ever take the entry, its due time aside. */
export function fitsFilter(held: HeldEntry, filter: ClaimFilter): boolean {
  return (
    held.dueAt !== null &&
    held.lane === filter.lane &&
    filter.states.some((state) => state === held.state) &&
    takesTopic(filter.topics, held.topic) &&
    (held.destination === undefined ||
      filter.exceptDestinations?.includes(held.destination) !== true)
  );
}

function planInsert(
  call: Extract<WriterCall, { kind: 'insert' }>,
  round: WriterRound,
): WriterPlan | 'later' {
  const { entries } = call;
  for (const { envelope } of entries) {
    // What another call of this batch is about to insert may yet fail; then this one is no
    // duplicate.
    if (round.ids.has(envelope.id) || isKnownKey(round, envelope.dedupeKey)) return 'later';
  }
  const results: ('stored' | Duplicate)[] = [];
  const fresh: Entry[] = [];
  const steps: Step[] = [];
  for (const entry of entries) {
    const { id, dedupeKey } = entry.envelope;
    const duplicateOf = round.catalog.duplicateOf(entry.envelope) ?? twinOf(entry, fresh, round);
    if (duplicateOf !== undefined) {
      results.push({ duplicateOf });
      continue;
    }
    results.push('stored');
    fresh.push(entry);
    round.ids.set(id, call);
    if (dedupeKey !== undefined) round.keys.set(dedupeKey, call);
    steps.push({
      kind: 'create',
      state: entry.status.state,
      name: fileName(id, entry.status),
      head: headLine(JSON.stringify(entry.envelope), JSON.stringify(entry.status)),
      body: addBody(round, entry.inlineBody),
    });
  }
  return {
    steps,
    needsDisk: steps.length > 0,
    isDurable: true,
    isLazy: false,
    finish(done) {
      fresh.forEach((entry, at) => notePlaced(round, entry, done[at]));
      return results;
    },
    drop: () => undefined,
  };
}

function isKnownKey(round: WriterRound, key: string | undefined): boolean {
  return key !== undefined && round.keys.has(key);
}

/** The same message earlier in the same call. */
function twinOf(
  { envelope }: Entry,
  fresh: readonly Entry[],
  round: WriterRound,
): string | undefined {
  if (!round.ids.has(envelope.id) && !isKnownKey(round, envelope.dedupeKey)) return undefined;
  const twin = fresh.find(
    (other) =>
      other.envelope.id === envelope.id ||
      (envelope.dedupeKey !== undefined && other.envelope.dedupeKey === envelope.dedupeKey),
  );
  return twin?.envelope.id;
}

function notePlaced(
  round: WriterRound,
  { envelope, status }: Entry,
  done: StepDone | undefined,
): void {
  assert(done?.kind === 'placed', `an insert of "${envelope.id}" ended as ${done?.kind}`);
  const place = { state: status.state, shard: done.shard, bytes: done.bytes };
  round.catalog.put(createHeldEntry(envelope.id, status, factsOf(envelope, status), place));
}

function planClaim(request: ClaimRequest, round: WriterRound): WriterPlan {
  const { catalog } = round;
  const taken = pickDue(request, catalog);
  const next = taken.map((held) => claimedStatus(namedStatus(held), request));
  const steps = taken.map((held, at): Step => {
    catalog.hide(held);
    const name = fileName(held.id, next[at] as Status);
    const { id, bytes } = held;
    return { kind: 'claim', id, from: pathOf(held), bytes, state: 'active', name };
  });
  return {
    // A claim may be forgotten in a power cut: the message is then where it was.
    steps,
    needsDisk: steps.length > 0,
    isDurable: false,
    isLazy: false,
    finish(done, contents) {
      const entries: Entry[] = [];
      taken.forEach((held, at) => {
        const step = done[at];
        const entry = noteClaimed(round, held, next[at] as Status, step, contents);
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
  held: HeldEntry,
  next: Status,
  done: StepDone | undefined,
  contents: Uint8Array,
): Entry | undefined {
  if (done?.kind !== 'placed' || done.content === undefined) {
    noteDamage(round, held, done);
    return undefined;
  }
  const { at, bytes } = done.content;
  const content = decodeContent(Buffer.from(contents.buffer, at, bytes), held.id);
  assert(typeof content !== 'string', `the thread let a damaged "${held.id}" pass`);
  const place = { state: 'active', shard: done.shard, bytes: done.bytes } as const;
  round.catalog.put(createHeldEntry(held.id, next, held, place));
  return {
    envelope: content.envelope,
    status: mergeStatus(content.status, 'active', next),
    // A copy: a handler that keeps its body must not keep the whole batch.
    ...(content.envelope.body.place === 'inline' ? { inlineBody: content.body.slice() } : {}),
  };
}

function planCommit(
  call: Extract<WriterCall, { kind: 'commit' }>,
  round: WriterRound,
): WriterPlan | 'later' {
  const { catalog } = round;
  if (call.changes.some(({ id }) => catalog.byId.get(id)?.isBusy || round.ids.has(id))) {
    return 'later';
  }
  const planned: { readonly held: HeldEntry; readonly change: Change; readonly at: number }[] = [];
  const results: ('done' | 'stale')[] = call.changes.map((change, at) => {
    const held = catalog.byId.get(change.id);
    if (held === undefined || held.isBusy || !isCurrent(held, change)) return 'stale';
    // Hidden from claims too: a lease that is over must not be taken while its holder settles.
    catalog.hide(held);
    planned.push({ held, change, at });
    return 'done';
  });
  const steps = planned.map(({ held, change }) => changeStep(held, change, round));
  return {
    steps,
    needsDisk: steps.length > 0,
    isDurable: call.isDurable,
    isLazy: !call.isDurable,
    finish(done) {
      planned.forEach(({ held, change, at }, index) => {
        if (!noteChanged(round, held, change, done[index])) results[at] = 'stale';
      });
      return results;
    },
    drop() {
      for (const { held } of planned) catalog.show(held);
    },
  };
}

function isCurrent(held: HeldEntry, { revision, holder }: Change): boolean {
  return held.revision === revision && held.holder === holder;
}

function changeStep(
  held: HeldEntry,
  { to, envelope, inlineBody }: Change,
  round: WriterRound,
): Step {
  const { id, bytes } = held;
  const from = pathOf(held);
  if (to === 'remove') return { kind: 'remove', from, bytes };
  assert(to.revision > held.revision, `a change of "${id}" does not raise its revision`);
  const keepsBody = envelope === undefined || (envelope.body.place === 'inline' && !inlineBody);
  return {
    kind: 'change',
    id,
    from,
    bytes,
    state: to.state,
    name: fileName(id, to),
    status: JSON.stringify(to),
    envelope: envelope === undefined ? undefined : JSON.stringify(envelope),
    body: keepsBody ? 'same' : (addBody(round, inlineBody) ?? 'none'),
  };
}

/** Whether the change took place. */
function noteChanged(
  round: WriterRound,
  held: HeldEntry,
  { to, envelope }: Change,
  done: StepDone | undefined,
): boolean {
  if (done?.kind === 'removed') round.catalog.remove(held);
  else if (done?.kind === 'placed' && to !== 'remove') {
    const facts = envelope === undefined ? { ...held, ...statusFacts(to) } : factsOf(envelope, to);
    const place = { state: to.state, shard: done.shard, bytes: done.bytes };
    round.catalog.put(createHeldEntry(held.id, to, facts, place));
  } else {
    noteDamage(round, held, done);
    return false;
  }
  return true;
}

function statusFacts(
  status: Status,
): Pick<HeldEntry, 'lane' | 'failureCode' | 'becauseCode' | 'fingerprint'> {
  return {
    lane: status.lane,
    failureCode: status.lastFailure?.code,
    becauseCode: status.because?.code,
    fingerprint: status.lastFailure?.fingerprint,
  };
}

function planSetAside(
  { held, reason }: Extract<WriterCall, { kind: 'setAside' }>,
  round: WriterRound,
): WriterPlan {
  // The damage was seen some time ago; it is still there only if nothing happened since.
  const isThere = round.catalog.byId.get(held.id) === held && !held.isBusy;
  if (isThere) round.catalog.hide(held);
  return {
    steps: isThere ? [{ kind: 'setAside', id: held.id, from: pathOf(held), reason }] : [],
    needsDisk: isThere,
    isDurable: false,
    isLazy: true,
    finish(done) {
      if (isThere) noteDamage(round, held, done[0]);
    },
    drop() {
      if (isThere) round.catalog.show(held);
    },
  };
}

function noteDamage(round: WriterRound, held: HeldEntry, done: StepDone | undefined): void {
  round.catalog.remove(held);
  if (done?.kind === 'damaged') round.damages.push(done.found);
}

function addBody(round: WriterRound, body: Uint8Array | undefined): FileRange | undefined {
  if (body === undefined) return undefined;
  const stretch = { at: round.bodiesBytes, bytes: body.length };
  round.bodies.push(body);
  round.bodiesBytes += body.length;
  return stretch;
}

/** A status with all that a claim looks at; the rest stays in the file. */
function namedStatus(held: HeldEntry): Status {
  const { state, lane, revision, attempts, notices, lost, updatedAt, dueAt } = held;
  const unread = { policy: null, postponed: 0, replays: 0, history: [], notes: {} };
  return { state, lane, revision, attempts, notices, lost, updatedAt, dueAt, ...unread };
}
