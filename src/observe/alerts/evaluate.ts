/**
 * evaluate — evaluates the rules in rounds: measure, next state, store it, notify, act. One process
 * does it at a time, the one that has the turn (a lease, records.ts).
 *
 *   round: take the turn ─▶ read states ─▶ for each rule: measure ─step─▶ record ─▶ message ─▶ mark
 *                └─ the store is away: in memory, notified without the spool
 *
 * Promise: each firing and each resolution enqueues one notification for each receiver, also across
 * a crash and with several processes: the state is stored with what is pending before it goes out,
 * and its id (`noticeId` of notice.ts) makes enqueueing it again a duplicate. Like every message it
 * is delivered at least once. While the store is away it is sent directly, and may come twice.
 *
 * Where a rule goes next: state.ts. What is on record: records.ts.
 *
 * Why: docs/decisions/0043-an-alert-is-a-record-and-a-message.md
 */

import { type Millis, MINUTE_MS } from '../../core/duration.ts';
import { asError, isRespoolError, textOf } from '../../core/errors.ts';
import { fulfils, printCondition } from './condition.ts';
import type { BacklogForecast, MeasureReading } from './external-measures.ts';
import { noticeOf } from './notice.ts';
import { parseCondition } from './parse.ts';
import { messageOf, notifyDirectly } from './receivers.ts';
import {
  fingerprintOf,
  giveAlertLease,
  leaseMsOf,
  type SavedState,
  SavedStates,
  SharedRates,
  takeAlertLease,
  WITHIN_MS,
  withinTime,
} from './records.ts';
import {
  type AlertState,
  begunAnew,
  endedState,
  isFiring,
  nextAlertState,
  type PendingNotice,
  withWhen,
  withWhy,
} from './state.ts';
import { backoff, type Backoff } from '../../system/wait.ts';
import type { AlertActionCall, AlertOptions, AlertRule } from './types.ts';

// Problems, reported once for as long as they last.

/** Problems that were reported and are not over. */
class ErrorOnce {
  readonly #parts: Pick<AlertOptions, 'tell' | 'now'>;
  readonly #reported = new Map<string, string>();

  constructor(parts: Pick<AlertOptions, 'tell' | 'now'>) {
    this.#parts = parts;
  }

  /** Reports it, unless it is the same as before. */
  tell(doing: string, thrown: unknown): void {
    const error = asError(thrown);
    if (this.#reported.get(doing) === error.message) return;
    this.#reported.set(doing, error.message);
    this.#parts.tell({ at: this.#parts.now(), kind: 'trouble', doing, error });
  }

  /** It worked: the next failure is reported again. */
  over(doing: string): void {
    this.#reported.delete(doing);
  }
}

/** The evaluation of rules. */
export interface Alerts {
  /** One round now; rounds never overlap. Never throws: failures are reported. */
  round(): Promise<void>;
  /** Rounds from now on. */
  start(): void;
  /** No more of them; the turn is given back. */
  stop(): Promise<void>;
}

/** Makes alerts; nothing is looked at before `start` or `round`. */
export function createAlerts(parts: AlertOptions): Alerts {
  return new Evaluation(parts);
}

/** The notification of a change. */
interface Change {
  readonly phase: 'fired' | 'resolved';
  readonly now: Millis;
  readonly value: number | undefined;
  readonly why?: string;
  readonly forecast?: BacklogForecast | undefined;
}

const READING = 'reading the state of the alerts';
const WRITING = 'writing the state of the alerts';
const ROUNDS = 'looking at the rules of the alerts';

class Evaluation implements Alerts {
  readonly #parts: AlertOptions;
  readonly #saved: SavedStates;
  readonly #rates: SharedRates;
  readonly #actions: AlertActions;
  readonly #troubles: ErrorOnce;
  readonly #fingerprint: string;
  #rounds: Promise<void> = Promise.resolve();
  #callOff: () => void = () => undefined;
  #isOurs = false;
  #isAway = false;
  #isOver = false;
  #lastAt: Millis | undefined;

  constructor(parts: AlertOptions) {
    this.#parts = parts;
    this.#saved = new SavedStates(parts);
    this.#rates = new SharedRates(parts);
    this.#fingerprint = fingerprintOf(parts.rules);
    this.#actions = new AlertActions(parts);
    this.#troubles = new ErrorOnce(parts);
  }

  start(): void {
    void this.round().then(() => this.#later());
  }

  #later(): void {
    if (this.#isOver) return;
    this.#callOff = this.#parts.clock.after(this.#parts.everyMs, () => this.start());
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    this.#callOff();
    await this.#rounds;
    await this.#actions.ended();
    // What was done meanwhile is put on record.
    await this.#rounds;
    if (!this.#isOurs) return;
    try {
      await giveAlertLease(this.#parts.records, this.#parts.name);
    } catch (error) {
      this.#troubles.tell('giving back the turn of the alerts', error);
    }
  }

  round(): Promise<void> {
    this.#rounds = this.#rounds.then(async () => {
      if (this.#isOver) return;
      try {
        await this.#round();
        this.#troubles.over(ROUNDS);
      } catch (error) {
        this.#troubles.tell(ROUNDS, error);
      }
    });
    return this.#rounds;
  }

  async #round(): Promise<void> {
    const { everyMs, rules } = this.#parts;
    const beganAt = this.#parts.now();
    const before = await this.#takeTurn(beganAt);
    if (before === 'elsewhere') return;
    const lastAt = Math.max(before.lastAt ?? 0, this.#lastAt ?? 0);
    // After the clock was set back, as after a pause, it is unknown how long a condition held.
    const isAfterGap = beganAt - lastAt > leaseMsOf(everyMs) || beganAt < lastAt;
    // All at once: one that hangs must not keep the others waiting.
    const readings = await Promise.all(rules.map((rule) => this.#read(rule)));
    // Taken only now: a rule that had to wait for the store did not see it healthy earlier.
    const now = this.#parts.now();
    for (const [at, rule] of rules.entries()) {
      const reading = readings[at] ?? { why: 'it was not measured' };
      await this.#apart(rule.name, () => this.#look(rule, reading, { now, isAfterGap }));
    }
    for (const name of this.#saved.gone)
      await this.#apart(name, () => this.#resolveRemoved(name, now));
    // A store that hangs counts as down while it is queried.
    this.#lastAt = this.#parts.now();
  }

  /** What goes wrong with one rule keeps no other from being looked at. */
  async #apart(name: string, work: () => Promise<void>): Promise<void> {
    const doing = `looking at the alert "${name}"`;
    try {
      await work();
      this.#troubles.over(doing);
    } catch (error) {
      this.#troubles.tell(doing, error);
    }
  }

  /** The turn, and what is on record; without an answer of the store, what is in memory. */
  async #takeTurn(now: Millis): Promise<'elsewhere' | { readonly lastAt: Millis | undefined }> {
    const { records, name: by, everyMs, clock } = this.#parts;
    const taking = { by, now, everyMs, rules: this.#fingerprint };
    try {
      await withinTime(clock, () => this.#rates.share(now));
      const turn = await withinTime(clock, () => takeAlertLease(records, taking));
      this.#isOurs = turn !== 'elsewhere';
      if (turn === 'elsewhere') {
        this.#isAway = false;
        await this.#yieldTurn(now);
        return turn;
      }
      await this.#saved.load(now);
      await withinTime(clock, () => this.#rates.hear(now));
      this.#isAway = false;
      this.#troubles.over(READING);
      return turn;
    } catch (error) {
      this.#isAway = true;
      this.#troubles.tell(READING, error);
      return this.#isOurs ? { lastAt: undefined } : 'elsewhere';
    }
  }

  /** Another process goes on; `store` rules that fired only here are resolved here. */
  async #yieldTurn(now: Millis): Promise<void> {
    for (const rule of this.#parts.rules) {
      const known = this.#saved.get(rule.name);
      if (known === undefined || !known.isDirty || !isFiring(known.state)) continue;
      if (rule.when.measure.name !== 'store') continue;
      known.state = this.#changed(rule, known.state, { phase: 'resolved', now, value: 0 });
      this.#tellEvent(known.state, 'resolved');
      await this.#notifyDirectly(known);
    }
    this.#saved.clear();
  }

  async #look(
    rule: AlertRule,
    reading: MeasureReading,
    { now, isAfterGap }: { readonly now: Millis; readonly isAfterGap: boolean },
  ): Promise<void> {
    const known = this.#saved.of(rule.name, now);
    // n.b. Asked only now: the store may have gone since the round began.
    const asksStore = rule.when.measure.name === 'store';
    const read: MeasureReading = asksStore ? { value: Number(this.#isAway) } : reading;
    this.#noteReading(rule, read);
    const value = 'value' in read ? read.value : undefined;
    const holds = value === undefined ? undefined : fulfils(rule.when, value);
    const when = printCondition(rule.when);
    const { everyMs } = this.#parts;
    const state = begunAnew(withWhy(known.state, 'why' in read ? read.why : undefined), when, now);
    const next = nextAlertState(state, { now, holds, isAfterGap, forMs: rule.when.forMs, everyMs });
    if (next.state !== known.state) {
      known.state = withWhen(next.state, when);
      known.isDirty = true;
    }
    if (next.change !== undefined) {
      const forecast = await this.#forecast(rule);
      known.state = this.#changed(rule, known.state, { phase: next.change, now, value, forecast });
    }
    await this.#carryOut(rule, known, next.change);
  }

  #noteReading(rule: AlertRule, reading: MeasureReading): void {
    const doing = `measuring for the alert "${rule.name}"`;
    if ('value' in reading) this.#troubles.over(doing);
    else if (reading.isEarly !== true) this.#troubles.tell(doing, new Error(reading.why));
  }

  /** A rule that left the configuration is resolved here: no other code would do so. */
  async #resolveRemoved(name: string, now: Millis): Promise<void> {
    const known = this.#saved.of(name, now);
    const { phase, when, to = [], pendingNotices, pendingActions } = known.state;
    const isAtRest =
      phase === 'quiet' && pendingNotices === undefined && pendingActions === undefined;
    if (isAtRest || when === undefined) return;
    const rule: AlertRule = { name, when: parseCondition(when), to, actions: [] };
    const next = phase === 'quiet' ? { state: known.state } : endedState(known.state, now);
    if (next.state !== known.state) {
      known.state = next.state;
      known.isDirty = true;
    }
    if (next.change !== undefined) {
      const why = 'the rule is not in the configuration any more';
      const change = { phase: next.change, now, value: undefined, why };
      known.state = this.#changed(rule, known.state, change);
    }
    await this.#carryOut(rule, known, next.change);
  }

  /** Record, message, mark, actions: in this order. */
  async #carryOut(
    rule: AlertRule,
    savedState: SavedState,
    change: 'fired' | 'resolved' | undefined,
  ): Promise<void> {
    dropUnwanted(rule, savedState);
    if (!(await this.#save(rule.name, savedState))) return;
    if (change !== undefined) this.#tellEvent(savedState.state, change);
    await this.#notifyPending(rule, savedState);
    this.#beginActions(rule);
  }

  async #read({ when }: AlertRule): Promise<MeasureReading> {
    const { clock, measures, everyMs } = this.#parts;
    // Below the lease (LEASE_ROUNDS of records.ts): one that hangs longer would lose the turn in
    // every round.
    const withinMs = Math.min(WITHIN_MS, 2 * everyMs);
    try {
      return await withinTime(clock, () => measures.read(when.measure, when.unit), withinMs);
    } catch (error) {
      return { why: textOf(error) };
    }
  }

  async #forecast({ when }: AlertRule): Promise<BacklogForecast | undefined> {
    if (this.#isAway) return undefined;
    const { clock, measures, everyMs } = this.#parts;
    try {
      const ask = () => measures.forecast(when.measure);
      return await withinTime(clock, ask, Math.min(WITHIN_MS, everyMs));
    } catch {
      // A failed forecast must not prevent the notification.
      return undefined;
    }
  }

  /** The state with the notifications and actions that are due. */
  #changed(rule: AlertRule, state: AlertState, change: Change): AlertState {
    const { host, hide = (text: string) => text } = this.#parts;
    const { phase, now, value, why, forecast } = change;
    const { name, when } = rule;
    const { episode, firedAt = state.since } = state;
    const since = phase === 'fired' ? state.since : firedAt;
    const about = { rule: name, when, phase, episode, at: now, since };
    const made = noticeOf({ ...about, value, why, forecast, host });
    const notice = { ...made, text: hide(made.text) };
    // What was to be done at the firing is not begun any more once it is over.
    const { pendingActions: _pendingActions, to = rule.to, pauses = [], ...rest } = state;
    const isFired = phase === 'fired';
    const pendingActions = isFired ? actionsOnFiring(rule) : actionsOnEnd(rule, pauses);
    return {
      ...rest,
      pendingNotices: [...(state.pendingNotices ?? []), { notice, to: isFired ? rule.to : to }],
      ...(isFired ? { to: rule.to, pauses: pausedBy(rule) } : {}),
      ...(pendingActions.length === 0 ? {} : { pendingActions }),
    };
  }

  /** Puts the state on record; false: another process was quicker, and goes on. */
  async #save(name: string, state: SavedState): Promise<boolean> {
    if (!state.isDirty || this.#isAway) return true;
    try {
      const isSaved = await this.#saved.save(name, state);
      this.#troubles.over(WRITING);
      return isSaved;
    } catch (error) {
      this.#isAway = true;
      this.#troubles.tell(WRITING, error);
      return true;
    }
  }

  #tellEvent(state: AlertState, phase: 'fired' | 'resolved'): void {
    const notice = state.pendingNotices?.at(-1)?.notice;
    if (notice === undefined) return;
    const { rule, episode, text } = notice;
    this.#parts.tell({ at: this.#parts.now(), kind: 'alert', rule, phase, episode, text });
  }

  /** Enqueues what is pending, then records that; sends directly if the store is the trouble. */
  async #notifyPending(rule: AlertRule, savedState: SavedState): Promise<void> {
    if (savedState.state.pendingNotices === undefined) return;
    if (!this.#isAway) {
      const { state, error } = await enqueueNotices(this.#parts, savedState.state);
      savedState.state = state;
      const doing = `enqueueing a notification of the alert "${rule.name}"`;
      if (error === undefined) this.#troubles.over(doing);
      else this.#troubles.tell(doing, error);
      if (error === undefined || !isOfStore(error)) {
        savedState.isDirty = true;
        await this.#save(rule.name, savedState);
        return;
      }
    }
    await this.#notifyDirectly(savedState);
    await this.#save(rule.name, savedState);
  }

  async #notifyDirectly(savedState: SavedState): Promise<void> {
    savedState.state = await notifyWithoutSpool(
      this.#parts,
      savedState.state,
      (receiver, rule, failure) => {
        const doing = `notifying "${receiver}" of the alert "${rule}"`;
        if (failure === undefined) this.#troubles.over(doing);
        else this.#troubles.tell(doing, new Error(failure));
      },
    );
    savedState.isDirty = true;
  }

  /** Begins what is to be done; rounds go on meanwhile. */
  #beginActions(rule: AlertRule): void {
    if (this.#isAway) return;
    const { name } = rule;
    const { pendingActions = [], episode } = this.#saved.get(name)?.state ?? {};
    for (const key of pendingActions) {
      const onDone = (): void => this.#done(name, key, episode);
      const doing = doingOf(name, key);
      if (this.#isWanted(name, key)) onDone();
      else {
        const onFailure = (error: unknown): void => this.#troubles.tell(doing, error);
        this.#actions.begin({ rule: name, key, onDone, onFailure });
      }
    }
  }

  /** Whether another rule that fires wants a topic paused that this one would resume. */
  #isWanted(name: string, key: string): boolean {
    return this.#parts.rules.some((rule) => {
      const { state } = this.#saved.get(rule.name) ?? {};
      if (rule.name === name || state === undefined || !isFiring(state)) return false;
      return actionsOnFiring(rule).some((one) => key === one.replace(/^pause /, 'resume '));
    });
  }

  /** After the present round, and never within one: both write the state. */
  #done(name: string, key: string, episode: number | undefined): void {
    this.#troubles.over(doingOf(name, key));
    this.#rounds = this.#rounds.then(async () => {
      const known = this.#saved.get(name);
      if (known?.state.episode !== episode || known?.state.pendingActions === undefined) return;
      const { pendingActions, ...rest } = known.state;
      const left = pendingActions.filter((one) => one !== key);
      known.state = left.length === 0 ? rest : { ...rest, pendingActions: left };
      known.isDirty = true;
      await this.#save(name, known);
    });
  }
}

function doingOf(rule: string, key: string): string {
  return `${key} for the alert "${rule}"`;
}

// What a rule does when it fires or resolves: its notifications are enqueued in the spool, or sent
// without it while the store is away, and its actions are run. A receiver that was notified is no
// longer pending, so it is not notified again when the store is back.

/** Timeout of a receiver that is notified without the spool; above that of `http()`, 30 s. */
const DIRECT_WITHIN_MS = 35_000;

/** Enqueues all pending notifications; with an error, the state has what is left. */
async function enqueueNotices(
  { clock, enqueue, now, receivers }: Pick<AlertOptions, 'clock' | 'enqueue' | 'now' | 'receivers'>,
  state: AlertState,
): Promise<{ readonly state: AlertState; readonly error?: unknown }> {
  const left: PendingNotice[] = [];
  let error: unknown;
  for (const { notice, to } of state.pendingNotices ?? []) {
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
  const rest = withoutDelivered(state, left, now());
  return error === undefined ? { state: rest } : { state: rest, error };
}

/** Notifies without the spool; the state keeps the receivers that failed. */
async function notifyWithoutSpool(
  parts: Pick<AlertOptions, 'receivers' | 'clock' | 'now'>,
  state: AlertState,
  onResult: (receiver: string, rule: string, failure: string | undefined) => void,
): Promise<AlertState> {
  const { receivers, clock, now } = parts;
  const left: PendingNotice[] = [];
  for (const { notice, to } of state.pendingNotices ?? []) {
    // All at once: one that hangs does not keep the others waiting.
    const missing = await Promise.all(
      to.map(async (receiver): Promise<readonly string[]> => {
        const handler = receivers.get(receiver);
        if (handler === undefined) return [];
        const tell = () => notifyDirectly(handler, notice, receiver, now());
        const answer = await withinTime(clock, tell, DIRECT_WITHIN_MS).catch((error: unknown) => ({
          result: 'failed' as const,
          why: textOf(error),
        }));
        onResult(receiver, notice.rule, answer.result === 'notified' ? undefined : answer.why);
        return answer.result === 'notified' ? [] : [receiver];
      }),
    );
    left.push({ notice, to: missing.flat() });
  }
  return withoutDelivered(state, left, now());
}

/** Whether the store is the trouble, and not what was to be written. */
function isOfStore(error: unknown): boolean {
  return isRespoolError(error) && /^(?:store|body|key)\./.test(error.code);
}

/** The state with what is still pending. */
function withoutDelivered(
  state: AlertState,
  all: readonly PendingNotice[],
  now: Millis,
): AlertState {
  const left = all.filter(({ to }) => to.length > 0);
  if (left.length > 0) return { ...state, pendingNotices: left };
  const { pendingNotices: _pendingNotices, ...rest } = state;
  return { ...rest, notifiedAt: now };
}

// What a rule does when it fires and when it is resolved.
//
// On record an action is its key; of a rule that is no longer there, only resumes are done. A new
// kind also goes into types.ts, config/load/alerts.ts and cli/commands/alerts/alerts-service.ts.

/** What is to be done when it fires, in the order of the actions. */
function actionsOnFiring({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'replay' ? [] : [`${action.kind} ${action.topic}`],
  );
}

/** Actions at its end: topics that it paused are resumed even if the rule has changed since. */
function actionsOnEnd({ actions }: AlertRule, paused: readonly string[]): readonly string[] {
  const replays = actions.flatMap((one) => (one.kind === 'replay' ? [`replay ${one.rule}`] : []));
  return [...paused.map((topic) => `resume ${topic}`), ...replays];
}

/** The topics that it pauses until it is resolved. */
function pausedBy({ actions }: AlertRule): readonly string[] {
  return actions.flatMap((action) =>
    action.kind === 'pause' && action.until === 'resolved' ? [action.topic] : [],
  );
}

/** The action of a key, of one of these rules. */
function actionOf(key: string, name: string, rules: readonly AlertRule[]): AlertActionCall {
  const [kind = ''] = key.split(' ', 1);
  const of = key.slice(kind.length + 1);
  if (kind === 'replay') return { kind, rule: of };
  if (kind !== 'resume') return { kind: kind as 'pause' | 'hold', topic: of };
  // A topic that another rule had paused counts as paused by this rule too.
  const makers = rules.filter((rule) => pausedBy(rule).includes(of)).map((rule) => rule.name);
  const madeBy = [...new Set([name, ...makers])].map((one) => `alert:${one}`);
  return { kind, topic: of, madeBy };
}

/** Whether the rule still has this action; a pause it made ends in any case. */
function isStillWanted(key: string, rule: AlertRule): boolean {
  if (key.startsWith('resume ')) return true;
  return [...actionsOnFiring(rule), ...actionsOnEnd(rule, [])].includes(key);
}

/** Takes off what its rule has no more: it would be pending for good. */
function dropUnwanted(rule: AlertRule, savedState: SavedState): void {
  const { pendingActions = [], ...rest } = savedState.state;
  const wanted = pendingActions.filter((key) => isStillWanted(key, rule));
  if (wanted.length === pendingActions.length) return;
  savedState.state = wanted.length === 0 ? rest : { ...rest, pendingActions: wanted };
  savedState.isDirty = true;
}

/**
 * Of the actions with the same key one runs at a time, so that a slow pause cannot land after its
 * resume.
 */
function exclusionKeyOf(rule: string, action: AlertActionCall): string {
  if (action.kind === 'replay') return `${rule} replay ${action.rule}`;
  return `${rule} ${action.kind === 'hold' ? 'hold' : 'pause'} ${action.topic}`;
}

/**
 * Longest wait before a failed action is tried again, unless rounds are further apart. Also in
 * docs/reference/alerts.md.
 */
const RETRY_MAX_MS: number = 5 * MINUTE_MS;

type ActionOptions = Pick<AlertOptions, 'act' | 'rules' | 'clock' | 'everyMs'>;

/** One action of a rule, and who hears of its result. */
interface RunAction {
  readonly rule: string;
  readonly key: string;
  readonly onDone: () => void;
  readonly onFailure: (error: unknown) => void;
}

/** Actions that are on their way. */
class AlertActions {
  readonly #parts: ActionOptions;
  /** By exclusion key. */
  readonly #running = new Map<string, Promise<void>>();
  /** By exclusion key, what has failed: its back-off, and when it may begin again. */
  readonly #failed = new Map<string, { readonly wait: Backoff; readonly until: number }>();

  constructor(parts: ActionOptions) {
    this.#parts = parts;
  }

  /** Begins one, unless it or its opposite is on its way: then the next round does. */
  begin({ rule, key, onDone, onFailure }: RunAction): void {
    const { act, rules, clock } = this.#parts;
    const action = actionOf(key, rule, rules);
    const exclusionKey = exclusionKeyOf(rule, action);
    const until = this.#failed.get(exclusionKey)?.until ?? Number.NEGATIVE_INFINITY;
    if (this.#running.has(exclusionKey) || clock.monotonic() < until) return;
    const done = act(action, `alert:${rule}`).then(
      () => {
        this.#failed.delete(exclusionKey);
        onDone();
      },
      (error: unknown) => {
        this.#postpone(exclusionKey);
        onFailure(error);
      },
    );
    this.#running.set(
      exclusionKey,
      done.finally(() => this.#running.delete(exclusionKey)),
    );
  }

  #postpone(exclusionKey: string): void {
    const { clock, everyMs } = this.#parts;
    const range = { firstMs: everyMs, maxMs: Math.max(everyMs, RETRY_MAX_MS) };
    const wait = this.#failed.get(exclusionKey)?.wait ?? backoff(range);
    this.#failed.set(exclusionKey, { wait, until: clock.monotonic() + wait.next() });
  }

  /** When all of them have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
  }
}
