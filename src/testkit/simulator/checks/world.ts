/**
 * world — the world as a whole, looked at every 100 moments (simulate.ts) and after a power cut:
 * every accepted message is in one state and has its body. Also whether messages of one key are
 * claimed and started in the order of their insertion, and whether a body may be removed.
 */

import type { Entry, Status } from '../../../core/entry.ts';
import type { CheckScene } from './check-scene.ts';
import type { Write } from '../disk.ts';
import type { ClaimFact, MessageHistory } from '../sim-ledger.ts';

/** Whether the order allows these entries to run now, or they have no key. */
export function turnsOf({ disk }: Pick<CheckScene, 'disk'>): (entry: Entry) => boolean {
  let firsts: ReadonlyMap<string, number> | undefined;
  return ({ envelope, status }) => {
    const { orderKey, id } = envelope;
    if (orderKey === undefined || !isInTheWay(status)) return true;
    // Not before it is asked for: most claims meet no key, and this looks at everything.
    firsts ??= firstsIn(disk);
    return firsts.get(orderKey) === disk.seqOf(id);
  };
}

function firstsIn(disk: CheckScene['disk']): ReadonlyMap<string, number> {
  const firsts = new Map<string, number>();
  for (const { envelope, status } of disk.entries()) {
    const { orderKey, id } = envelope;
    if (orderKey === undefined || !isInTheWay(status)) continue;
    firsts.set(orderKey, Math.min(disk.seqOf(id), firsts.get(orderKey) ?? Infinity));
  }
  return firsts;
}

/**
 * A handler starts: no earlier message of its key blocks it, and no later one went first. What
 * an operator moved, or a power cut brought back, has lost its place and excuses the others.
 */
export function checkTurn(scene: CheckScene, history: MessageHistory, claim: ClaimFact): void {
  const { disk, ledger, findings } = scene;
  const { orderKey } = history.entry.envelope;
  const isFirstStart = !history.hasStarted;
  history.hasStarted = true;
  // A claim that was lost meanwhile does not count.
  if (orderKey === undefined || disk.peek(history.id)?.status.holder !== claim.holder) return;
  for (const other of ledger.histories.values()) {
    if (other.entry.envelope.orderKey !== orderKey || other === history) continue;
    const isBefore = other.seq < history.seq;
    const status = disk.seqOf(other.id) === other.seq ? disk.peek(other.id)?.status : undefined;
    if (isBefore && !other.isMoved && status !== undefined && isInTheWay(status)) {
      const text = `"${history.id}" was started while "${other.id}" before it in "${orderKey}"`;
      findings.add('order', `${text} is ${status.state}`);
    }
    if (!isBefore && isFirstStart && other.hasStarted && !history.isMoved) {
      const text = `"${history.id}" was started after "${other.id}", which is behind it`;
      findings.add('order', `${text} in "${orderKey}"`);
    }
  }
}

/** Stated apart from `isInTheWay` of spool/source.ts. */
function isInTheWay({ lane, state }: Status): boolean {
  return lane === 'delivery' && state !== 'bounce' && state !== 'archived';
}

/** Looks at every entry and every accepted message. */
export function checkWhole({ disk, bodyDisk, ledger, findings }: CheckScene): void {
  for (const { envelope, status, inlineBody } of disk.entries()) {
    const { id, body } = envelope;
    const isActive = status.state === 'active';
    if (isActive !== (status.holder !== undefined)) {
      findings.add('claim', `"${id}" is in ${status.state}, its holder is ${status.holder}`);
    }
    const hasBody =
      body.place === 'none' ||
      (body.place === 'inline' ? inlineBody !== undefined : bodyDisk.get(body.ref) !== undefined);
    if (!hasBody) findings.add('body', `the body of "${id}" (${status.state}) is gone`);
    if (!ledger.histories.has(id)) findings.add('conservation', `"${id}" came from nowhere`);
  }
  for (const history of ledger.histories.values()) {
    if (!history.isAccepted || history.ended !== undefined || disk.peek(history.id) !== undefined)
      continue;
    findings.add('conservation', `"${history.id}" was accepted and is gone`);
  }
}

/** A body goes: no entry may need it, nor any that a power cut could bring back. */
export function checkBodyRemoval({ disk, findings }: CheckScene, ref: string): void {
  for (const { envelope } of disk.entries()) {
    if (envelope.body.ref !== ref || envelope.body.place !== 'store') continue;
    findings.add('body', `the body of "${envelope.id}" was removed under it`);
  }
  for (const { id, before } of disk.undurable()) {
    const body = before?.envelope.body;
    if (body?.ref !== ref || body.place !== 'store') continue;
    findings.add('body', `the body of "${id}" was removed before that of its entry was durable`);
  }
}

/** After a power cut: what was forgotten is excused, but nothing that was promised is gone. */
export function afterPowerCut(scene: CheckScene, dropped: readonly Write[]): void {
  for (const { id, before } of dropped) {
    const history = scene.ledger.histories.get(id);
    if (history === undefined) continue;
    // Its settlement is lost: another attempt may succeed again.
    const claim = history.claims.get(before?.status.holder ?? '');
    if (claim !== undefined) claim.isSettled = false;
    history.excuses += 1;
    history.slack += 1;
    history.isMoved = true;
    if (scene.disk.peek(id) !== undefined) delete history.ended;
  }
  checkWhole(scene);
}
