/**
 * order — messages of one key go in the order they were inserted: what is claimed, and what starts.
 */

import type { Entry, Status } from '../../../core/entry.ts';
import type { ClaimFact, Story } from '../ledger.ts';
import type { CheckContext } from './check-context.ts';

/** Tells of entries as they lie there now whether their turn has come, or they need none. */
export function turnsOf({ disk }: Pick<CheckContext, 'disk'>): (entry: Entry) => boolean {
  let firsts: ReadonlyMap<string, number> | undefined;
  return ({ envelope, status }) => {
    const { orderKey, id } = envelope;
    if (orderKey === undefined || !isInTheWay(status)) return true;
    // Not before it is asked for: most claims meet no key, and this looks at everything.
    firsts ??= firstsIn(disk);
    return firsts.get(orderKey) === disk.seqOf(id);
  };
}

function firstsIn(disk: CheckContext['disk']): ReadonlyMap<string, number> {
  const firsts = new Map<string, number>();
  for (const { envelope, status } of disk.entries()) {
    const { orderKey, id } = envelope;
    if (orderKey === undefined || !isInTheWay(status)) continue;
    firsts.set(orderKey, Math.min(disk.seqOf(id), firsts.get(orderKey) ?? Infinity));
  }
  return firsts;
}

/**
 * A handler starts: nobody before it in its key is in its way, and nobody behind it was first. What
 * an operator moved, or a power cut brought back, has lost its place and excuses the others.
 */
export function checkTurn(scene: CheckContext, story: Story, claim: ClaimFact): void {
  const { disk, ledger, findings } = scene;
  const { orderKey } = story.entry.envelope;
  const isFirstStart = !story.hasStarted;
  story.hasStarted = true;
  // A claim that was lost meanwhile is nobody's turn any more.
  if (orderKey === undefined || disk.peek(story.id)?.status.holder !== claim.holder) return;
  for (const other of ledger.stories.values()) {
    if (other.entry.envelope.orderKey !== orderKey || other === story) continue;
    const isBefore = other.seq < story.seq;
    const status = disk.seqOf(other.id) === other.seq ? disk.peek(other.id)?.status : undefined;
    if (isBefore && !other.isMoved && status !== undefined && isInTheWay(status)) {
      const text = `"${story.id}" was started while "${other.id}" before it in "${orderKey}"`;
      findings.add('order', `${text} is ${status.state}`);
    }
    if (!isBefore && isFirstStart && other.hasStarted && !story.isMoved) {
      const text = `"${story.id}" was started after "${other.id}", which is behind it`;
      findings.add('order', `${text} in "${orderKey}"`);
    }
  }
}

function isInTheWay({ lane, state }: Status): boolean {
  return lane === 'delivery' && state !== 'bounce' && state !== 'archived';
}
