/**
 * insert — new entries in file steps: each once by its id and its dedupe key.
 */

import type { Entry } from '../../core/entry.ts';
import { assert } from '../../core/errors.ts';
import type { Duplicate } from '../../ports/entry-store.ts';
import { createHeldEntry, factsOf } from './catalog.ts';
import type { DiskStep, StepDone } from './disk-protocol.ts';
import { addBody, type WriterCall, type WriterPlan, type WriterRound } from './plan.ts';
import { fileName, headLine } from './row.ts';

/** Plans an insert, or says that it has to wait for another one of this batch. */
export function planInsert(
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
  const steps: DiskStep[] = [];
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
