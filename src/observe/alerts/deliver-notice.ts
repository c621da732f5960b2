/**
 * deliver-notice — the pending notifications of a rule, enqueued in the spool or sent without it.
 *
 * Promise: a receiver that was notified is no longer pending, so it is not notified again when the
 * store is back.
 */

import type { Millis } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import { withinTime } from './with-timeout.ts';
import { messageOf, notifyDirectly } from './receivers.ts';
import type { AlertState, OwedNotice } from './state.ts';
import type { AlertParts } from './types.ts';

/** A receiver may take so long, when it is told without the spool. */
const DIRECT_WITHIN_MS = 35_000;

/** Puts messages down for all that is owed; with an error, the state has what is left. */
export async function enqueueNotice(
  { clock, enqueue, now, receivers }: Pick<AlertParts, 'clock' | 'enqueue' | 'now' | 'receivers'>,
  state: AlertState,
): Promise<{ readonly state: AlertState; readonly error?: unknown }> {
  const left: OwedNotice[] = [];
  let error: unknown;
  for (const { notice, to } of state.owed ?? []) {
    const missing: string[] = [];
    for (const receiver of to) {
      // Taken out of the configuration meanwhile: nobody would deliver it.
      if (!receivers.has(receiver)) continue;
      try {
        if (error === undefined) {
          const put = () => withinTime(clock, () => enqueue(messageOf(notice, receiver)));
          // It may lie there though the store said no; put down again, it is a duplicate then.
          await put().catch((thrown: unknown) => {
            if (!isOfStore(thrown)) throw thrown;
            return put();
          });
          continue;
        }
      } catch (thrown) {
        error = thrown;
      }
      missing.push(receiver);
    }
    left.push({ notice, to: missing });
  }
  const paid = paidState(state, left, now());
  return error === undefined ? { state: paid } : { state: paid, error };
}

/** Tells without the spool; the state has who could not be told. */
export async function notifyWithoutSpool(
  parts: Pick<AlertParts, 'receivers' | 'clock' | 'now'>,
  state: AlertState,
  onTold: (receiver: string, rule: string, failure: string | undefined) => void,
): Promise<AlertState> {
  const { receivers, clock, now } = parts;
  const left: OwedNotice[] = [];
  for (const { notice, to } of state.owed ?? []) {
    // All at once: one that hangs does not keep the others waiting.
    const missing = await Promise.all(
      to.map(async (receiver): Promise<readonly string[]> => {
        const handler = receivers.get(receiver);
        if (handler === undefined) return [];
        const tell = () => notifyDirectly(handler, notice, receiver, now());
        const told = await withinTime(clock, tell, DIRECT_WITHIN_MS).catch((error: unknown) => ({
          result: 'failed' as const,
          why: textOf(error),
        }));
        onTold(receiver, notice.rule, told.result === 'told' ? undefined : told.why);
        return told.result === 'told' ? [] : [receiver];
      }),
    );
    left.push({ notice, to: missing.flat() });
  }
  return paidState(state, left, now());
}

/** Whether the store is the trouble, and not what was to be written. */
export function isOfStore(error: unknown): boolean {
  return isRespoolError(error) && /^(?:store|body|key)\./.test(error.code);
}

/** The state with what is still owed. */
function paidState(state: AlertState, all: readonly OwedNotice[], now: Millis): AlertState {
  const left = all.filter(({ to }) => to.length > 0);
  if (left.length > 0) return { ...state, owed: left };
  const { owed: _owed, ...rest } = state;
  return { ...rest, toldAt: now };
}
