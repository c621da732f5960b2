/** rehearse — what an action would come to, by what is known of the messages. Does nothing. */

import type { BulkAction, Control } from '../../../operator/operator.ts';
import { DAY_MS } from '../../../core/duration.ts';
import { RespoolError, show, unreachable } from '../../../core/errors.ts';
import type { Retention } from '../../../core/next-status.ts';
import { type OperatorAction, operatorMove } from '../../../core/operator.ts';
import type { ActionResult } from '../../../spool/actions.ts';
import type { CommandContext } from '../../spec.ts';
import { lookUp } from '../../look-up.ts';

/** How long something is kept decides no refusal. */
const ANY_RETENTION: Retention = {
  deliveredMs: null,
  bouncedMs: null,
  removedMs: DAY_MS,
  dedupeWindowMs: DAY_MS,
};

/** What would become of these messages now. `done` means: would be. */
export async function rehearse(
  control: Control,
  ids: readonly string[],
  bulk: BulkAction,
  { io, out }: Pick<CommandContext, 'io' | 'out'>,
): Promise<ActionResult[]> {
  const found = await lookUp(control, ids, out);
  const action = operatorAction(bulk);
  const context = { now: io.clock.now(), by: control.by, retention: ANY_RETENTION };
  return ids.map((id) => {
    const entry = found.get(id);
    if (entry === undefined) return { id, result: 'unknown' };
    const answer = operatorMove(entry, action, context);
    return answer.kind === 'refused'
      ? { id, result: 'refused', why: answer.text }
      : { id, result: 'done' };
  });
}

/** Refuses a policy that is not known where the messages are. */
export async function checkPolicyKnown(control: Control, bulk: BulkAction): Promise<void> {
  if (bulk.kind !== 'policy') return;
  const names = (await control.policies()).map(({ name }) => name);
  if (names.includes(bulk.policy)) return;
  throw new RespoolError(
    'policy.unknown',
    `cannot set policy ${show(bulk.policy)}: known are ${names.join(', ')}`,
  );
}

function operatorAction(bulk: BulkAction): OperatorAction {
  switch (bulk.kind) {
    case 'hold':
    case 'bounce':
      return { kind: bulk.kind, reason: bulk.reason ?? '' };
    case 'release':
      return { kind: 'release' };
    case 'retry':
      return { kind: 'retryNow' };
    case 'remove':
      return { kind: 'remove', hard: bulk.hard === true, reason: bulk.reason ?? '' };
    case 'policy':
      return { kind: 'setPolicy', policy: bulk.policy };
    default:
      return unreachable(bulk);
  }
}
