/**
 * evaluate — rounds over the rules: measure, go on, put on record, tell, act.
 *
 *   round: take the turn ─▶ read states ─▶ for each rule: measure ─step─▶ record ─▶ message ─▶ mark
 *                └─ the store is away: in memory, and told without the spool
 *
 * Promise: a firing and a resolution are each told once, also across a crash and with several
 * processes. The state, with what is owed, is on record before anybody is told; the message has an
 * id made of rule and episode, so putting it down again after a crash puts down nothing.
 */

import type { Millis } from '../../core/duration.ts';
import { asError, textOf } from '../../core/errors.ts';
import { fulfils } from './condition.ts';
import { deedKey, deedsAt } from './deeds.ts';
import { hearFlows, shareFlows } from './flows.ts';
import { inTime } from './in-time.ts';
import type { Reading } from './measures.ts';
import { type NoticeForecast, noticeOf } from './notice.ts';
import { type AlertState, isFiring, quietSince, step, withWhy } from './state.ts';
import { isOfStore, putDown, tellWithoutSpool } from './tell.ts';
import { giveTurn, leaseMsOf, takeTurn } from './turn.ts';
import type { AlertParts, AlertRule } from './types.ts';

/** The kind of record that the state of rules is. */
export const STATE_KIND = 'alert.state';

/** Rules that are looked at. */
export interface Alerts {
  /** One round now; rounds never overlap. Never throws: what goes wrong is told. */
  round(): Promise<void>;
  /** Rounds from now on. */
  start(): void;
  /** No more of them; the turn is given back. */
  stop(): Promise<void>;
}

/** Makes alerts; nothing is looked at before `start` or `round`. */
export function createAlerts(parts: AlertParts): Alerts {
  return new Evaluation(parts);
}

interface Known {
  state: AlertState;
  revision: number;
  /** Not on record yet. */
  isDirty: boolean;
}

class Evaluation implements Alerts {
  readonly #parts: AlertParts;
  readonly #known = new Map<string, Known>();
  /** Troubles that were told, and are not over: each is told once. */
  readonly #troubles = new Map<string, string>();
  /** Deeds that are on their way. */
  readonly #running = new Map<string, Promise<void>>();
  #rounds: Promise<void> = Promise.resolve();
  #callOff: () => void = () => undefined;
  #isOurs = false;
  #isAway = false;
  #isOver = false;
  #lastAt: Millis | undefined;

  constructor(parts: AlertParts) {
    this.#parts = parts;
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
    await Promise.all(this.#running.values());
    // What was done meanwhile is put on record.
    await this.#rounds;
    if (!this.#isOurs) return;
    try {
      await giveTurn(this.#parts.records, this.#parts.name);
    } catch (error) {
      this.#trouble('giving back the turn of the alerts', error);
    }
  }

  round(): Promise<void> {
    this.#rounds = this.#rounds.then(async () => {
      if (this.#isOver) return;
      try {
        await this.#round();
      } catch (error) {
        this.#trouble('looking at the rules of the alerts', error);
      }
    });
    return this.#rounds;
  }

  async #round(): Promise<void> {
    const { everyMs, rules } = this.#parts;
    const now = this.#parts.now();
    const before = await this.#begin(now);
    if (before === 'taken') return;
    const lastAt = Math.max(before.lastAt ?? 0, this.#lastAt ?? 0);
    const isAfterGap = now - lastAt > leaseMsOf(everyMs);
    this.#lastAt = now;
    for (const rule of rules) await this.#look(rule, now, isAfterGap);
  }

  /** The turn, and what is on record; without an answer of the store, what is in memory. */
  async #begin(now: Millis): Promise<'taken' | { readonly lastAt: Millis | undefined }> {
    const { records, name, everyMs, clock } = this.#parts;
    try {
      await inTime(clock, () => shareFlows(this.#parts, now));
      const turn = await inTime(clock, () => takeTurn(records, { by: name, now, everyMs }));
      this.#isOurs = turn !== 'taken';
      if (turn === 'taken') {
        this.#isAway = false;
        await this.#leave(now);
        return turn;
      }
      await inTime(clock, () => this.#load(now));
      await inTime(clock, () => hearFlows(this.#parts, now));
      this.#isAway = false;
      this.#over('reading the state of the alerts');
      return turn;
    } catch (error) {
      this.#isAway = true;
      this.#trouble('reading the state of the alerts', error);
      return this.#isOurs ? { lastAt: undefined } : 'taken';
    }
  }

  async #load(now: Millis): Promise<void> {
    const { records, rules } = this.#parts;
    const found = new Map((await records.list(STATE_KIND)).map((one) => [one.key, one]));
    for (const { name } of rules) {
      const record = found.get(name);
      const revision = record?.revision ?? 0;
      const known = this.#known.get(name);
      // What happened while the store was away is ours to write, unless somebody else went on.
      if (known?.isDirty === true && known.revision === revision) continue;
      const state = (record?.value as AlertState | undefined) ?? quietSince(now);
      this.#known.set(name, { state, revision, isDirty: false });
    }
  }

  /** Another process goes on; what only this one has told of, it also tells the end of. */
  async #leave(now: Millis): Promise<void> {
    for (const rule of this.#parts.rules) {
      const known = this.#known.get(rule.name);
      if (known === undefined || !known.isDirty || !isFiring(known.state)) continue;
      if (rule.when.measure.name !== 'store') continue;
      const state = this.#changed(rule, known.state, { change: 'resolved', now, value: 0 });
      await this.#tellDirect({ ...known, state });
    }
    this.#known.clear();
  }

  async #look(rule: AlertRule, now: Millis, isAfterGap: boolean): Promise<void> {
    const known = this.#known.get(rule.name) ?? this.#fresh(rule, now);
    const reading = await this.#read(rule);
    const doing = `measuring for the alert "${rule.name}"`;
    const why = 'why' in reading ? reading.why : undefined;
    if ('value' in reading) this.#over(doing);
    else if (reading.isEarly !== true) this.#trouble(doing, new Error(reading.why));
    const value = 'value' in reading ? reading.value : undefined;
    const holds = value === undefined ? undefined : fulfils(rule.when, value);
    const { forMs } = rule.when;
    const { everyMs } = this.#parts;
    const state = withWhy(known.state, why);
    const next = step(state, { now, holds, isAfterGap, forMs, everyMs });
    if (next.change !== undefined) {
      const forecast = await this.#forecast();
      const told = { change: next.change, now, value, forecast };
      known.state = this.#changed(rule, next.state, told);
      known.isDirty = true;
    } else if (next.state !== known.state) {
      known.state = next.state;
      known.isDirty = true;
    }
    if (!(await this.#save(rule, known))) return;
    if (next.change !== undefined) this.#tellEvent(known.state, next.change);
    await this.#tellOwed(rule, known);
    this.#act(rule);
  }

  #fresh({ name }: AlertRule, now: Millis): Known {
    const known = { state: quietSince(now), revision: 0, isDirty: false };
    this.#known.set(name, known);
    return known;
  }

  async #read({ when }: AlertRule): Promise<Reading> {
    if (when.measure.name === 'store') return { value: this.#isAway ? 1 : 0 };
    const { clock, measures } = this.#parts;
    try {
      return await inTime(clock, () => measures.read(when.measure, when.unit));
    } catch (error) {
      return { why: textOf(error) };
    }
  }

  async #forecast(): Promise<NoticeForecast | undefined> {
    if (this.#isAway) return undefined;
    try {
      const found = await inTime(this.#parts.clock, () => this.#parts.measures.forecast());
      if (found === undefined) return undefined;
      const { backlog, drainsInMs, fullInMs } = found;
      return { backlog, drainsInMs, fullInMs };
    } catch {
      // It goes along with what is told, and must not keep it from being told.
      return undefined;
    }
  }

  /** The state with what is to be told and done now. */
  #changed(
    rule: AlertRule,
    state: AlertState,
    told: {
      readonly change: 'fired' | 'resolved';
      readonly now: Millis;
      readonly value: number | undefined;
      readonly forecast?: NoticeForecast | undefined;
    },
  ): AlertState {
    const { host, hide = (text: string) => text } = this.#parts;
    const { change: phase, now, value, forecast } = told;
    const since = phase === 'fired' ? state.since : (state.firedAt ?? state.since);
    const made = noticeOf({
      rule: rule.name,
      when: rule.when,
      phase,
      episode: state.episode,
      at: now,
      since,
      value,
      forecast,
      host,
    });
    const notice = { ...made, text: hide(made.text) };
    const owed = [...(state.owed ?? []), { notice, to: rule.to }];
    const todo = deedsAt(rule, phase).map(deedKey);
    // What was to be done at the firing is not begun any more once it is over.
    const { todo: _todo, ...rest } = state;
    return { ...rest, owed, ...(todo.length === 0 ? {} : { todo }) };
  }

  /** Puts the state on record; false: another process was quicker, and goes on. */
  async #save(rule: AlertRule, known: Known): Promise<boolean> {
    if (!known.isDirty || this.#isAway) return true;
    const { records, clock } = this.#parts;
    const { state, revision } = known;
    try {
      const put = () => records.put(STATE_KIND, rule.name, state, revision);
      if ((await inTime(clock, put)) === 'stale') {
        this.#known.delete(rule.name);
        return false;
      }
      known.revision = revision + 1;
      known.isDirty = false;
    } catch (error) {
      this.#isAway = true;
      this.#trouble('writing the state of the alerts', error);
    }
    return true;
  }

  #tellEvent(state: AlertState, phase: 'fired' | 'resolved'): void {
    const notice = state.owed?.at(-1)?.notice;
    if (notice === undefined) return;
    const { rule, episode, text } = notice;
    this.#parts.tell({ at: this.#parts.now(), kind: 'alert', rule, phase, episode, text });
  }

  /** Puts down what is owed, and then that it is; directly where the store is the trouble. */
  async #tellOwed(rule: AlertRule, known: Known): Promise<void> {
    if (known.state.owed === undefined) return;
    if (!this.#isAway) {
      const { state, error } = await putDown(this.#parts, known.state);
      known.state = state;
      if (error !== undefined) {
        this.#trouble(`putting down a notification of the alert "${rule.name}"`, error);
      }
      if (error === undefined || !isOfStore(error)) {
        known.isDirty = true;
        await this.#save(rule, known);
        return;
      }
    }
    await this.#tellDirect(known);
    await this.#save(rule, known);
  }

  async #tellDirect(known: Known): Promise<void> {
    const onFailure = (receiver: string, rule: string, why: string): void =>
      this.#trouble(`telling "${receiver}" of the alert "${rule}"`, new Error(why));
    known.state = await tellWithoutSpool(this.#parts, known.state, onFailure);
    known.isDirty = true;
  }

  /** Begins what is to be done; rounds go on meanwhile. */
  #act(rule: AlertRule): void {
    if (this.#isAway) return;
    const { todo = [], episode } = this.#known.get(rule.name)?.state ?? {};
    const deeds = (['fired', 'resolved'] as const).flatMap((phase) => deedsAt(rule, phase));
    for (const deed of deeds) {
      const key = deedKey(deed);
      const running = `${rule.name} ${key}`;
      if (!todo.includes(key) || this.#running.has(running)) continue;
      const doing = `${key} for the alert "${rule.name}"`;
      const done = this.#parts
        .act(deed, `alert:${rule.name}`)
        .then(() => {
          this.#over(doing);
          return this.#done(rule, key, episode);
        })
        .catch((error: unknown) => this.#trouble(doing, error))
        .finally(() => this.#running.delete(running));
      this.#running.set(running, done);
    }
  }

  /** After the present round, and never within one: both write the state. */
  #done(rule: AlertRule, key: string, episode: number | undefined): void {
    this.#rounds = this.#rounds.then(async () => {
      const known = this.#known.get(rule.name);
      if (known?.state.episode !== episode || known?.state.todo === undefined) return;
      const { todo, ...rest } = known.state;
      const left = todo.filter((one) => one !== key);
      known.state = left.length === 0 ? rest : { ...rest, todo: left };
      known.isDirty = true;
      await this.#save(rule, known);
    });
  }

  #trouble(doing: string, thrown: unknown): void {
    const error = asError(thrown);
    if (this.#troubles.get(doing) === error.message) return;
    this.#troubles.set(doing, error.message);
    this.#parts.tell({ at: this.#parts.now(), kind: 'trouble', doing, error });
  }

  #over(doing: string): void {
    this.#troubles.delete(doing);
  }
}
