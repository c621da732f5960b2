/**
 * actions — what a rule does when it fires or resolves: its notifications are enqueued in the
 * spool, or sent without it while the store is away, and its actions are run.
 *
 * Promise: a receiver that was notified is no longer pending, so it is not notified again when
 * the store is back.
 */

import { type Millis, MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import { messageOf, notifyDirectly } from './receivers.ts';
import { withinTime } from './records.ts';
import type { AlertState, OwedNotice } from './state.ts';
import type { AlertActionCall, AlertOptions, AlertRule } from './types.ts';

/** Timeout of a receiver that is notified without the spool. */
const DIRECT_WITHIN_MS = 35_000;

/** Puts messages down for all that is owed; with an error, the state has what is left. */
export async function enqueueNotice(
  { clock, enqueue, now, receivers }: Pick<AlertOptions, 'clock' | 'enqueue' | 'now' | 'receivers'>,
  state: AlertState,
): Promise<{ readonly state: AlertState; readonly error?: unknown }> {
  const left: OwedNotice[] = [];
  let error: unknown;
  for (const { notice, to } of state.owed ?? []) {
    const missing: string[] = [];
    for (const receiver of to) {
      // Removed from the configuration meanwhile: it could not be delivered.
      if (!receivers.has(receiver)) continue;
      try {
        if (error === undefined) {
          const put = () => withinTime(clock, () => enqueue(messageOf(notice, receiver)));
          // It may be stored in spite of the error; then the next enqueue is a duplicate.
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

/** Notifies without the spool; the state keeps the receivers that failed. */
export async function notifyWithoutSpool(
  parts: Pick<AlertOptions, 'receivers' | 'clock' | 'now'>,
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

// What a rule does when it fires and when it is resolved.
//
// On record a deed is its key, so that it is done also when its rule is no longer there.

/** What is to be done when it fires, in the order of the actions. */
export function actionsOnFiring({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'replay' ? [] : [`${action.kind} ${action.topic}`],
  );
}

/** What is to be done at its end: the topics it has paused are resumed, whatever it says now. */
export function actionsOnEnd({ actions }: AlertRule, paused: readonly string[]): readonly string[] {
  const replays = actions.flatMap((one) => (one.kind === 'replay' ? [`replay ${one.rule}`] : []));
  return [...paused.map((topic) => `resume ${topic}`), ...replays];
}

/** The topics that it pauses until it is resolved. */
export function pausedBy({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'pause' && action.until === 'resolved' ? [action.topic] : [],
  );
}

/** The deed of a key, of one of these rules. */
function actionOf(key: string, name: string, rules: readonly AlertRule[]): AlertActionCall {
  const [kind = ''] = key.split(' ', 1);
  const of = key.slice(kind.length + 1);
  if (kind === 'replay') return { kind, rule: of };
  if (kind !== 'resume') return { kind: kind as 'pause' | 'hold', topic: of };
  // A pause that another rule made was also this one's, which found it made already.
  const makers = rules.filter((rule) => pausedBy(rule).includes(of)).map((rule) => rule.name);
  const madeBy = [...new Set([name, ...makers])].map((one) => `alert:${one}`);
  return { kind, topic: of, madeBy };
}

/** Whether a rule says so still; a pause it has made ends in any case. */
export function isStillWanted(key: string, rule: AlertRule): boolean {
  if (key.startsWith('resume ')) return true;
  return [...actionsOnFiring(rule), ...actionsOnEnd(rule, [])].includes(key);
}

/** Deeds that keep out of each other's way: a pause that is slow does not outlast its end. */
function laneOf(rule: string, deed: AlertActionCall): string {
  if (deed.kind === 'replay') return `${rule} replay ${deed.rule}`;
  return `${rule} ${deed.kind === 'hold' ? 'hold' : 'pause'} ${deed.topic}`;
}

/** What failed is tried again after so long, at the latest. */
const AGAIN_MAX_MS: number = 5 * MINUTE_MS;

type ActParts = Pick<AlertOptions, 'act' | 'rules' | 'clock' | 'everyMs'>;

/** One deed of a rule, and what becomes of it. */
interface RunAction {
  readonly rule: string;
  readonly key: string;
  readonly onDone: () => void;
  readonly onFailure: (error: unknown) => void;
}

/** Deeds that are on their way. */
export class AlertActions {
  readonly #parts: ActParts;
  readonly #running = new Map<string, Promise<void>>();
  /** By lane, what has failed: how long it waits, and until when. */
  readonly #failed = new Map<string, { readonly waitMs: number; readonly until: number }>();

  constructor(parts: ActParts) {
    this.#parts = parts;
  }

  /** Begins one, unless it or its opposite is on its way: then the next round does. */
  begin({ rule, key, onDone, onFailure }: RunAction): void {
    const { act, rules, clock } = this.#parts;
    const deed = actionOf(key, rule, rules);
    const lane = laneOf(rule, deed);
    const until = this.#failed.get(lane)?.until ?? Number.NEGATIVE_INFINITY;
    if (this.#running.has(lane) || clock.monotonic() < until) return;
    const done = act(deed, `alert:${rule}`).then(
      () => {
        this.#failed.delete(lane);
        onDone();
      },
      (error: unknown) => {
        this.#putOff(lane);
        onFailure(error);
      },
    );
    this.#running.set(
      lane,
      done.finally(() => this.#running.delete(lane)),
    );
  }

  #putOff(lane: string): void {
    const { clock, everyMs } = this.#parts;
    const waitedMs = this.#failed.get(lane)?.waitMs ?? everyMs / 2;
    const waitMs = Math.max(everyMs, Math.min(2 * waitedMs, AGAIN_MAX_MS));
    this.#failed.set(lane, { waitMs, until: clock.monotonic() + waitMs });
  }

  /** When all of them have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
