/**
 * run — rules at their own pace, until a signal. Each rule runs by itself: one that waits or fails
 * does not hold up the others, and of several processes one runs it.
 *
 * A round of a rule: which letters fit, is their destination well, and then a replay of them, the
 * canaries first. Promise: nothing is sent before the destination is well. What may have been sent
 * already is left to people. A replay that an earlier round did not finish is resumed before
 * another is planned; one that an operator paused is left alone.
 */

import { categoryOf } from '../../core/category.ts';
import { durationMs, HOUR_MS, MINUTE_MS } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Letter, LetterQuery, LetterRoute } from '../../ports/dead-letters.ts';
import type { Replay, ReplayOptions } from '../../spool/operator/replays.ts';
import type { RecordLease } from '../../spool/record-lease.ts';
import { backoffMs, sleep } from '../../system/wait.ts';
import { INTERRUPTED_REASON } from '../replay/run-state.ts';
import {
  type ReplayRule,
  type RoundResult,
  type RuleHealth,
  type RuleNews,
  type RulePlace,
  type RuleState,
  type RuleTools,
  runnerOf,
  stateOf,
  takeRule,
} from './types.ts';

/** What came of a round. */
interface RuleRound {
  readonly result: RoundResult;
  readonly because?: string;
  /** Those that this round ran. */
  readonly replays: readonly string[];
  /** Those, and older ones that are not over. */
  readonly known: readonly string[];
  readonly sent: number;
  /** Of these, how many failed again. */
  readonly again: number;
  readonly unsure: readonly string[];
  /** It ended early, because it was asked to. */
  readonly isInterrupted: boolean;
  /** An earlier one did, and what it left is not gone on with yet. */
  readonly wasInterrupted: boolean;
}

/**
 * Letters that are remembered as left to people, the latest of them. Also in
 * docs/reference/dead-letters.md.
 */
const UNSURE_MAX = 1_000;
/** Replays of a rule that are remembered until they are over, the latest of them. */
const KNOWN_MAX = 100;

/** The worst first: it is the result of a round over several places. */
const RANKS: readonly RoundResult[] = ['failed', 'stopped', 'done', 'waiting', 'quiet'];

/** What a round at one place came to. */
interface Part {
  readonly result: RoundResult;
  readonly because?: string;
}

interface RoundOptions {
  readonly rule: ReplayRule;
  readonly tools: RuleTools;
  readonly lease: RecordLease<RuleState>;
  readonly signal: AbortSignal;
}

/** One round over all places of a rule. */
async function runRound(
  rule: ReplayRule,
  tools: RuleTools,
  lease: RecordLease<RuleState>,
): Promise<RuleRound> {
  const signal = AbortSignal.any([tools.signal, lease.lost]);
  const round = new RoundOfRule({ rule, tools, lease, signal });
  await round.runAll();
  return round.end();
}

/** The name that stands in the audit record. */
function byOfRule({ name }: Pick<ReplayRule, 'name'>): string {
  return `rule:${name}`;
}

class RoundOfRule {
  readonly #parts: RoundOptions;
  readonly #by: string;
  readonly #outcomes: Part[] = [];
  readonly #replays: string[] = [];
  readonly #unsure: Set<string>;
  readonly #known: Set<string>;
  #sent = 0;
  #again = 0;
  #left: number;

  constructor(parts: RoundOptions) {
    this.#parts = parts;
    this.#by = byOfRule(parts.rule);
    this.#unsure = new Set(parts.lease.before.unsure);
    this.#known = new Set(parts.lease.before.replays);
    this.#left = parts.rule.max;
  }

  /** All places, one after the other. */
  async runAll(): Promise<void> {
    const { rule, tools, signal } = this.#parts;
    try {
      const opened = await tools.openPlaces(rule);
      try {
        for (const place of opened.places) if (!signal.aborted) await this.#at(place);
      } finally {
        await opened.close();
      }
    } catch (error) {
      if (!signal.aborted) this.#outcomes.push({ result: 'failed', because: textOf(error) });
    }
  }

  /** One place; what goes wrong there does not keep the others waiting. */
  async #at(place: RulePlace): Promise<void> {
    try {
      this.#outcomes.push(await this.#goOn(place));
    } catch (error) {
      if (this.#parts.signal.aborted) return;
      // Another process works on this queue, or runs the replay.
      const isBusy = isRespoolError(error, 'move.refused');
      const because = `${place.letters.name}: ${textOf(error)}`;
      this.#outcomes.push({ result: isBusy ? 'waiting' : 'failed', because });
    }
  }

  end(): RuleRound {
    const [worst = { result: 'quiet' }] = this.#outcomes.toSorted(
      (one, other) => RANKS.indexOf(one.result) - RANKS.indexOf(other.result),
    );
    // What was interrupted stays so until it is run: its destination may not be well for long.
    const isPending = [...this.#known].some((id) => !this.#replays.includes(id));
    const wasInterrupted = this.#parts.lease.before.isInterrupted === true && isPending;
    return {
      ...worst,
      replays: this.#replays,
      known: [...this.#known].slice(-KNOWN_MAX),
      sent: this.#sent,
      again: this.#again,
      unsure: [...this.#unsure].slice(-UNSURE_MAX),
      isInterrupted: this.#parts.signal.aborted,
      wasInterrupted,
    };
  }

  /** What a round before has begun here comes first. */
  async #goOn(place: RulePlace): Promise<Part> {
    const { tools, lease } = this.#parts;
    for (const id of this.#known) {
      const replay = await tools.hands.read(id);
      if (replay !== undefined && !isAt(replay, place)) continue;
      if (replay !== undefined) await this.#remember(replay);
      if (replay === undefined || replay.state === 'done' || replay.state === 'cancelled') {
        this.#known.delete(id);
        continue;
      }
      // What the run found out before it was interrupted follows the reason.
      const wasInterrupted = replay.because?.startsWith(INTERRUPTED_REASON) === true;
      const isOurs = lease.before.isInterrupted === true && wasInterrupted;
      if (replay.state === 'paused' && !isOurs) {
        return { result: 'waiting', because: `replay ${id} is paused: resume or cancel it` };
      }
      const { routes } = await this.#find(place);
      const health = await this.#ask(place, routes);
      if (health !== 'well') return { result: 'waiting', because: health.why };
      this.#replays.push(id);
      return this.#run(place, replay);
    }
    return this.#begin(place);
  }

  async #begin(place: RulePlace): Promise<Part> {
    const { tools } = this.#parts;
    const { letters } = place;
    if (this.#left === 0 || (await letters.count()) === 0) return { result: 'quiet' };
    const caution = await letters.caution();
    if (caution.kind === 'refused') {
      const because = `${letters.name}: ${caution.text}; ${caution.remedy}`;
      return { result: 'failed', because };
    }
    const found = await this.#find(place);
    if (found.ids.length === 0) return { result: 'quiet' };
    const health = await this.#ask(place, found.routes);
    if (health !== 'well') return { result: 'waiting', because: health.why };
    const replay = await tools.hands.plan(place, this.#optionsOf(found.ids), this.#by);
    this.#replays.push(replay.id);
    this.#known.add(replay.id);
    this.#left -= found.ids.length;
    return this.#run(place, replay);
  }

  #ask({ source }: RulePlace, routes: readonly LetterRoute[]): Promise<RuleHealth> {
    const { rule, tools } = this.#parts;
    return tools.health({ rule, source, routes });
  }

  async #run(place: RulePlace, { id, counts: before }: Replay): Promise<Part> {
    const { tools, lease, signal } = this.#parts;
    // Before anything is sent: the next process after a crash, or after a round that could not say
    // how it ended, has to know of it, and that it was not paused on purpose.
    const replays = [...this.#known];
    await lease.change((state) => ({ ...state, replays, isInterrupted: true }));
    const replay = await tools.hands.run(place, id, { by: this.#by, signal });
    await this.#remember(replay);
    const { state, counts, because, canaries } = replay;
    this.#sent += counts.sent - before.sent;
    this.#again += counts.again - before.again;
    const isStuck = counts.sent === 0 && counts.failed > 0;
    const said = `replay ${id}: ${because ?? `${counts.failed} were not sent`}`;
    if (state !== 'stopped' && !isStuck) {
      return counts.again > before.again ? { result: 'done', because: said } : { result: 'done' };
    }
    // A canary without an ended attempt says nothing about whether it would work.
    const { waiting, removed = 0, failed } = canaries ?? { waiting: 0, failed: 0 };
    const isUndecided = waiting + removed > 0 && failed === 0;
    return { result: isUndecided ? 'waiting' : 'stopped', because: said };
  }

  async #remember({ id, counts }: Replay): Promise<void> {
    if (counts.unsure === 0) return;
    for (const one of await this.#parts.tools.hands.unsure(id)) this.#unsure.add(one);
  }

  async #find({ letters }: RulePlace): Promise<Found> {
    const { rule, tools, signal } = this.#parts;
    const query = queryOf(rule, tools.clock.now());
    const ids = new Set<string>();
    const routes = new Map<string, LetterRoute>();
    for await (const { letter } of letters.look({ query, signal })) {
      if (!this.#fits(letter) || letter.home === undefined) continue;
      ids.add(letter.id);
      routes.set(JSON.stringify(letter.home), letter.home);
      if (ids.size >= this.#left) break;
    }
    return { ids: [...ids], routes: [...routes.values()] };
  }

  #fits(letter: Letter): boolean {
    const { rule, tools } = this.#parts;
    const { category } = rule.when;
    if (this.#unsure.has(letter.id)) return false;
    return category === undefined || categoryOf(letter, tools.categories) === category;
  }

  #optionsOf(ids: readonly string[]): ReplayOptions {
    const { canary, rate, times } = this.#parts.rule;
    return { query: { ids }, max: ids.length, canary, rate, replaysMax: times };
  }
}

interface Found {
  readonly ids: readonly string[];
  readonly routes: readonly LetterRoute[];
}

function isAt({ source }: Replay, place: RulePlace): boolean {
  if (source.kind === 'spool') return place.source.kind === 'spool';
  return place.source.kind === 'queue' && place.source.queue === source.queue;
}

function queryOf({ when }: ReplayRule, now: number): LetterQuery {
  const { group, code, topic, olderThan } = when;
  return {
    // What is parked or held was put there for people; a pattern may still match it.
    kinds: ['dead'],
    ...(group === undefined ? {} : { group }),
    ...(code === undefined ? {} : { code }),
    ...(topic === undefined ? {} : { topic }),
    ...(olderThan === undefined ? {} : { before: now - durationMs(olderThan, 'olderThan') }),
  };
}

/**
 * A rule whose rounds are stopped or fail waits for twice as long each time, up to this, or to
 * `every` where that is longer.
 */
const RULE_PAUSE_MAX_MS: number = HOUR_MS;
/** A rule that another process runs is looked at again after this, at the latest. */
const LOOK_AGAIN_MS: number = MINUTE_MS;

/** Runs the rules until the signal. */
export async function runRules(rules: readonly ReplayRule[], tools: RuleTools): Promise<void> {
  await Promise.all(rules.map((rule) => runUntilAborted(rule, tools)));
}

/** One round of each rule, due or not; undefined: another process has it in hand. */
export async function runRulesOnce(
  rules: readonly ReplayRule[],
  tools: RuleTools,
): Promise<readonly (RuleNews | undefined)[]> {
  // A rule whose state cannot be written does not keep the others from running.
  const roundOrWhy = (rule: ReplayRule) =>
    roundOf(rule, tools).catch((error: unknown) => failedRound(rule, tools, error));
  return Promise.all(rules.map(roundOrWhy));
}

async function runUntilAborted(rule: ReplayRule, tools: RuleTools): Promise<void> {
  const { clock, signal } = tools;
  while (!signal.aborted) {
    try {
      const state = await stateOf(tools.operator(byOfRule(rule)).records, rule.name);
      const waitMs = waitOf(state, tools);
      if (waitMs > 0) await sleep(clock, waitMs, signal);
      else if ((await roundOf(rule, tools)) === undefined) {
        await sleep(clock, LOOK_AGAIN_MS, signal);
      }
    } catch (error) {
      if (signal.aborted) return;
      const { at, nextAt } = failedRound(rule, tools, error);
      await sleep(clock, nextAt - at, signal);
    }
  }
}

/** The news of a round whose state cannot be read or written; it is tried again. */
function failedRound({ name, every }: ReplayRule, tools: RuleTools, error: unknown): RuleNews {
  const at = tools.clock.now();
  const nextAt = at + durationMs(every, 'every');
  const because = textOf(error);
  const news = { rule: name, at, result: 'failed', because, replays: [], sent: 0, nextAt } as const;
  tools.tell(news);
  return news;
}

function waitOf(state: RuleState, { clock, runner }: RuleTools): number {
  const now = clock.now();
  const other = runnerOf(state, now);
  if (other !== undefined && other.name !== runner)
    return Math.min(LOOK_AGAIN_MS, other.until - now);
  return (state.nextAt ?? 0) - now;
}

async function roundOf(rule: ReplayRule, tools: RuleTools): Promise<RuleNews | undefined> {
  const { clock, runner } = tools;
  const { records } = tools.operator(byOfRule(rule));
  const lease = await takeRule({ records, rule: rule.name, runner, clock });
  if (lease === undefined) return undefined;
  const round = await runRound(rule, tools, lease);
  const at = clock.now();
  const { result, because, replays, known, sent, again, unsure } = round;
  const { isInterrupted, wasInterrupted } = round;
  const hasFailed = result === 'stopped' || result === 'failed';
  const before = lease.before.failures ?? 0;
  // A destination that is not well says nothing about whether it would work again.
  const failures = hasFailed ? before + 1 : result === 'waiting' ? before : 0;
  const nextAt = isInterrupted ? at : at + pauseOf(rule, hasFailed ? failures : 0);
  await lease.release((state) => ({
    ...state,
    lastAt: at,
    result,
    because,
    nextAt,
    failures,
    replays: known,
    sent,
    unsure,
    isInterrupted: isInterrupted || wasInterrupted,
  }));
  const failedAgain = again === 0 ? {} : { again };
  const news = { rule: rule.name, at, result, replays, sent, ...failedAgain, nextAt };
  const whole: RuleNews = because === undefined ? news : { ...news, because };
  tools.tell(whole);
  return whole;
}

/** The time until the next round, after this many failures in a row. */
export function pauseOf({ every }: Pick<ReplayRule, 'every'>, failures: number): number {
  const everyMs = durationMs(every, 'every');
  const maxMs = Math.max(everyMs, RULE_PAUSE_MAX_MS);
  return backoffMs({ firstMs: everyMs, maxMs }, failures);
}
