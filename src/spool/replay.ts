/**
 * replay — sends messages that had ended, or are held, once more: as they were, or repaired.
 *
 *   audited ─▶ new body kept, under another ref ─▶ guarded commit ─▶ old ref to the remover
 *
 * Promise: until the commit is durable the message has its old body, and after it the new one.
 */

import type { Entry } from '../core/entry.ts';
import { isRespoolError } from '../core/errors.ts';
import { checkHeaders, checkKey, checkNames, checkTopic } from '../core/limits.ts';
import { operatorMove, type ReplayAction } from '../core/operator.ts';
import type { LetterChange } from '../ports/dead-letters.ts';
import {
  type ActionParts,
  type ActionResult,
  actAs,
  changeTo,
  type PlannedMove,
  type PlannedAction,
} from './actions.ts';
import {
  type BodySettings,
  removedBodyRef,
  keepBody,
  type OwnBody,
  ownBody,
  type StoredOrInlineBody,
} from './body.ts';
import { isOrphan } from './caretaker.ts';

/** How messages are replayed. */
export interface ReplayOrder {
  /** The operation; written into the header `respool-replay` of each. */
  readonly replay: string;
  /** Another topic for them. */
  readonly topic?: string;
  /** Only messages replayed this often before; others are refused: another run was faster. */
  readonly replays?: number;
  /** What a repair makes of them; what is absent stays. */
  readonly change?: LetterChange;
}

/** What a replay needs. */
interface ReplayContext extends ActionParts {
  readonly bodySettings: BodySettings;
  readonly settings: { readonly headerMaxBytes: number };
  /** Opens the stores if they are not. */
  ready(): Promise<void>;
  /** A stop of the spool waits for this. */
  during<T>(work: () => Promise<T>): Promise<T>;
}

/** Sends them; what came of each, in their order. */
export async function replay(
  parts: ReplayContext,
  ids: readonly string[],
  order: ReplayOrder,
  by: string,
): Promise<ActionResult[]> {
  const action = actionOf(order);
  const given = order.change?.body;
  // Taken over before anything is awaited: the caller may use its buffer again.
  const body = given === undefined ? undefined : ownBody(given);
  const { kind, ...shown } = action;
  // The body itself is private; its size may be shown.
  const details = given === undefined ? shown : { ...shown, bodyBytes: given.byteLength };
  const plan: PlannedAction['plan'] = async (entry, context) => {
    const { replays } = entry.status;
    if (order.replays !== undefined && order.replays !== replays) {
      return refused(entry, `it was sent again meanwhile, ${replays} times in all`);
    }
    const answer = operatorMove(entry, action, context);
    if (answer.kind === 'refused') return answer;
    const envelope = answer.envelope ?? entry.envelope;
    try {
      checkHeaders(envelope.headers, parts.settings.headerMaxBytes);
      const change = changeTo(entry, { ...answer, envelope });
      return body === undefined
        ? { kind: 'do', change }
        : await repaired(parts, entry, change, body);
    } catch (error) {
      if (!isRespoolError(error) || !BEYOND.includes(error.code)) throw error;
      return refused(entry, error.message);
    }
  };
  await parts.ready();
  return parts.during(() => actAs(parts, ids, { action: kind, details, plan }, by));
}

function refused({ envelope }: Entry, why: string): PlannedMove {
  return { kind: 'refused', text: `cannot replay message "${envelope.id}": ${why}` };
}

const NAMES = ['replay', 'topic', 'replays', 'change'];
const CHANGE_NAMES = ['body', 'contentType', 'headers'];
/** What is wrong with one message, and with no other. */
const BEYOND: readonly string[] = ['limit.exceeded', 'message.invalid'];

function actionOf(order: ReplayOrder): ReplayAction {
  checkNames('a replay', order, NAMES);
  const { replay: operation, topic, change = {} } = order;
  checkNames('a change', change, CHANGE_NAMES);
  const { headers, contentType } = change;
  return {
    kind: 'replay',
    replay: checkKey('replay', operation),
    ...(topic === undefined ? {} : { topic: checkTopic(topic) }),
    ...(headers === undefined ? {} : { headers }),
    ...(contentType === undefined ? {} : { contentType }),
  };
}

/** The change with another body, which is durable by then. */
async function repaired(
  { entries, bodySettings }: ReplayContext,
  entry: Entry,
  change: Extract<PlannedMove, { kind: 'do' }>['change'],
  ownBody: OwnBody,
): Promise<PlannedMove> {
  const envelope = change.envelope ?? entry.envelope;
  const { info, inline }: StoredOrInlineBody = await keepBody(ownBody, envelope.id, bodySettings);
  return {
    kind: 'do',
    change: {
      ...change,
      ...removedBodyRef(entry.envelope),
      envelope: { ...envelope, body: info },
      ...(inline === undefined ? {} : { inlineBody: inline }),
    },
    onStale: async () => {
      // Asked, not believed: a store that repeats our own write may call it stale.
      const isUnused = info.place === 'store' && (await isOrphan(entries, info.ref));
      if (isUnused) await bodySettings.bodies.remove([info.ref]);
    },
  };
}
