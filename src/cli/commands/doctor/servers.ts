/** servers — what stores on servers say about those: reached or not, settings, dangers. */

import { isRespoolError, textOf } from '../../../core/errors.ts';
import type { Durability } from '../../../ports/entry-store.ts';
import type { Diagnosis } from '../../../stores/shared/finding.ts';
import { type DoctorFinding, unsafe } from './finding.ts';

/** What a look at a store's server found; of a store without one, nothing. */
export interface Looked {
  readonly findings: readonly DoctorFinding[];
  readonly durability?: Durability;
  /** Whether our tables, stream or bucket are there; undefined where there is no server. */
  readonly isThere?: boolean;
  /** There is a server, and it cannot be reached. */
  readonly isAway: boolean;
}

/** Asks a server, if there is one. */
export async function examineServer(
  id: string,
  diagnose: (() => Promise<Diagnosis>) | undefined,
): Promise<Looked> {
  if (diagnose === undefined) return { findings: [], isAway: false };
  try {
    const { findings, durability, isThere } = await diagnose();
    const named = findings.map((finding) => ({ ...finding, id: `${id}.${finding.id}` }));
    return { findings: named, durability, isThere, isAway: false };
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    const todo = error.code === 'peer.missing' ? 'install it' : 'mend what the sentence names';
    const finding = unsafe(`${id}.reached`, textOf(error), todo);
    return { findings: [finding], isThere: false, isAway: true };
  }
}
