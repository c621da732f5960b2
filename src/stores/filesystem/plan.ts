/**
 * plan — what a call of the store means in file steps, and what its outcome means for the catalog.
 *
 * insert.ts, claim.ts and commit.ts plan their calls; writer.ts has the disk carry out the plans of
 * a batch and then finishes each: the catalog changes only when the disk has done its part. Two
 * calls that touch the same entry never share a batch (`'later'`), so the second one is judged by
 * what the first one really did.
 */

import type { Entry } from '../../core/entry.ts';
import type { Change, ClaimRequest } from '../../ports/entry-store.ts';
import type { Catalog, HeldEntry } from './catalog.ts';
import type { Damage, FileRange, DiskStep, StepDone } from './disk-protocol.ts';

/** What can be asked of the store in a batch. */
export type WriterCall =
  | { readonly kind: 'insert'; readonly entries: readonly Entry[] }
  | { readonly kind: 'claim'; readonly request: ClaimRequest }
  | { readonly kind: 'commit'; readonly changes: readonly Change[]; readonly isDurable: boolean }
  | { readonly kind: 'setAside'; readonly held: HeldEntry; readonly reason: string }
  | { readonly kind: 'flush' };

/** A call in file steps. */
export interface WriterPlan {
  readonly steps: readonly DiskStep[];
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

/** An entry that cannot be read leaves the catalog. */
export function noteDamage(round: WriterRound, entry: HeldEntry, done: StepDone | undefined): void {
  round.catalog.remove(entry);
  if (done?.kind === 'damaged') round.damages.push(done.found);
}

/** Notes an inline body for the piece that is sent with the batch. */
export function addBody(round: WriterRound, body: Uint8Array | undefined): FileRange | undefined {
  if (body === undefined) return undefined;
  const stretch = { at: round.bodiesBytes, bytes: body.length };
  round.bodies.push(body);
  round.bodiesBytes += body.length;
  return stretch;
}
