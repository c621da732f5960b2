/** whole — the world between two steps: everything accepted is somewhere and has its body. */

import type { Write } from '../disk.ts';
import type { CheckContext } from './check-context.ts';

/** Looks at every entry and every accepted message. */
export function checkWhole({ disk, shelf, ledger, findings }: CheckContext): void {
  for (const { envelope, status, inlineBody } of disk.entries()) {
    const { id, body } = envelope;
    const isActive = status.state === 'active';
    if (isActive !== (status.holder !== undefined)) {
      findings.add('claim', `"${id}" is in ${status.state}, its holder is ${status.holder}`);
    }
    const hasBody =
      body.place === 'none' ||
      (body.place === 'inline' ? inlineBody !== undefined : shelf.get(body.ref) !== undefined);
    if (!hasBody) findings.add('body', `the body of "${id}" (${status.state}) is gone`);
    if (!ledger.stories.has(id)) findings.add('conservation', `"${id}" came from nowhere`);
  }
  for (const story of ledger.stories.values()) {
    if (!story.isAccepted || story.ended !== undefined || disk.peek(story.id) !== undefined)
      continue;
    findings.add('conservation', `"${story.id}" was accepted and is gone`);
  }
}

/** A body goes: no entry may need it, nor any that a power cut could bring back. */
export function checkBodyRemoval({ disk, findings }: CheckContext, ref: string): void {
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
export function afterPowerCut(scene: CheckContext, dropped: readonly Write[]): void {
  for (const { id, before } of dropped) {
    const story = scene.ledger.stories.get(id);
    if (story === undefined) continue;
    // Its settlement is forgotten: whoever tries it again may succeed again.
    const claim = story.claims.get(before?.status.holder ?? '');
    if (claim !== undefined) claim.isSettled = false;
    story.excuses += 1;
    story.slack += 1;
    story.isMoved = true;
    if (scene.disk.peek(id) !== undefined) delete story.ended;
  }
  checkWhole(scene);
}
