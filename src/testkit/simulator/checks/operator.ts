/** operator — was a change audited before it was made, and is it what the audit record says? */

import type { Entry, Status } from '../../../core/entry.ts';
import type { Audit, Story } from '../ledger.ts';
import type { SimProcess } from '../process.ts';
import type { CheckProblem } from './check-context.ts';

/** Uses up the audit line that explains this change; a problem when there is none. */
export function takeAudit(
  story: Story,
  process: SimProcess,
  before: Entry,
  after: Entry | undefined,
): CheckProblem | undefined {
  const { audits } = story;
  const at = audits.findIndex(
    (audit) => audit.process === process && isCarriedOut(audit, before, after),
  );
  const [audit] = at < 0 ? [] : audits.splice(at, 1);
  if (audit === undefined) {
    const { state } = before.status;
    const to = after === undefined ? 'removed' : after.status.state;
    const text = `"${story.id}" went from ${state} to ${to}, and no audit record says so`;
    return { invariant: 'audit', text };
  }
  story.isMoved = true;
  if (after === undefined) return undefined;
  // A smaller policy may find more attempts made than it allows.
  story.grants += audit.action === 'setPolicy' ? before.status.attempts + 1 : 1;
  const isReplay = after.status.replays > before.status.replays;
  if (isReplay) {
    story.excuses += 1;
    story.counted = 0;
  }
  return countersProblem(story.id, before.status, after.status, isReplay);
}

function isCarriedOut(
  { action, details }: Audit,
  before: Entry,
  after: Entry | undefined,
): boolean {
  if (after === undefined) return action === 'remove' && details['hard'] === true;
  const { status } = after;
  if (status.state === before.status.state) {
    // A check that finds the body of a delivered message missing records that it was not kept.
    const isForgotten = status.ending === 'delivered' && after.envelope.body.place === 'none';
    if (action === 'check') return isForgotten;
    if (after.envelope !== before.envelope) return action === 'updateHeaders';
    // What came before the clock was set back is incoming, and not due yet.
    if (action === 'retryNow') {
      return status.state === 'incoming' && Number(status.dueAt) < Number(before.status.dueAt);
    }
    return action === 'setPolicy' && status.policy === details['policy'];
  }
  switch (action) {
    case 'hold':
      return status.state === 'hold';
    case 'release':
      return status.state === (status.lane === 'notice' ? 'bounce' : 'incoming');
    case 'retryNow':
      return status.state === 'incoming' && status.lane === 'delivery';
    case 'bounce':
      // Archived at once where nobody would come to tell of it.
      return (
        status.lane === 'notice' &&
        (status.state === 'bounce' ||
          (status.state === 'archived' &&
            (status.ending === 'bounced' || status.ending === 'expired')))
      );
    case 'remove':
      return status.state === 'archived' && status.ending === 'removed';
    default:
      return false;
  }
}

function countersProblem(
  id: string,
  before: Status,
  after: Status,
  isReplay: boolean,
): CheckProblem | undefined {
  const attempts = isReplay ? 0 : before.attempts;
  if (after.attempts === attempts) return undefined;
  const text = `an operator's action took "${id}" to ${after.attempts} attempts, not ${attempts}`;
  return { invariant: 'attempts', text };
}
