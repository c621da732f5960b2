/**
 * commit — guarded changes and removals in file steps, and entries put aside as damaged.
 */

import type { Status } from '../../core/entry.ts';
import { assert } from '../../core/errors.ts';
import type { Change } from '../../ports/entry-store.ts';
import { createHeldEntry, factsOf, type HeldEntry, pathOf } from './catalog.ts';
import type { DiskStep, StepDone } from './disk-protocol.ts';
import { addBody, noteDamage, type WriterCall, type WriterPlan, type WriterRound } from './plan.ts';
import { fileName } from './row.ts';

/** Plans a commit, or says that it has to wait for another one of this batch. */
export function planCommit(
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
    // `put` and `remove` end this, too; `drop` shows it again.
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

function isCurrent(entry: HeldEntry, { revision, holder }: Change): boolean {
  return entry.revision === revision && entry.holder === holder;
}

function changeStep(
  entry: HeldEntry,
  { to, envelope, inlineBody }: Change,
  round: WriterRound,
): DiskStep {
  const { id, bytes } = entry;
  const from = pathOf(entry);
  if (to === 'remove') return { kind: 'remove', from, bytes };
  assert(to.revision > entry.revision, `a change of "${id}" does not raise its revision`);
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
  entry: HeldEntry,
  { to, envelope }: Change,
  done: StepDone | undefined,
): boolean {
  if (done?.kind === 'removed') round.catalog.remove(entry);
  else if (done?.kind === 'placed' && to !== 'remove') {
    const facts = envelope === undefined ? { ...entry, ...statusFacts(to) } : factsOf(envelope, to);
    const place = { state: to.state, shard: done.shard, bytes: done.bytes };
    round.catalog.put(createHeldEntry(entry.id, to, facts, place));
  } else {
    noteDamage(round, entry, done);
    return false;
  }
  return true;
}

/** What `factsOf` (catalog.ts) takes from the status. */
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

/** Plans to put an entry aside that a reader found damaged. */
export function planSetAside(
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
