/**
 * round — one round of one rule: which letters fit, is their destination well, and then a replay of
 * them, the canaries first.
 *
 * Promise: nothing is sent before the destination is well. What may have been sent already is left
 * to people. A round that was interrupted is gone on with, and not begun again.
 */

import { categoryOf } from '../../core/category.ts';
import { durationMs } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Letter, LetterQuery, LetterRoute } from '../../ports/dead-letters.ts';
import type { RecordLease } from '../../spool/record-lease.ts';
import { INTERRUPTED_REASON } from '../replay/record-lease.ts';
import type { Replay, ReplayOptions } from '../../spool/operator/replays.ts';
import type {
  RuleHealth,
  ReplayRule,
  RoundResult,
  RulePlace,
  RuleState,
  RuleTools,
} from './types.ts';

/** What came of a round. */
export interface RuleRound {
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
  /** It ended before it was over, because it was told to. */
  readonly isInterrupted: boolean;
  /** An earlier one did, and what it left is not gone on with yet. */
  readonly wasInterrupted: boolean;
}

/** Letters that are left to people, at the most. */
const UNSURE_MAX = 1_000;
/** Replays of a rule that are not over, at the most. */
const KNOWN_MAX = 100;

/** The worst first: it is what is said of a round over several places. */
const RANKS: readonly RoundResult[] = ['failed', 'stopped', 'done', 'waiting', 'quiet'];

/** What a round at one place came to. */
interface Part {
  readonly result: RoundResult;
  readonly because?: string;
}

interface RoundParts {
  readonly rule: ReplayRule;
  readonly tools: RuleTools;
  readonly lease: RecordLease<RuleState>;
  readonly signal: AbortSignal;
}

/** One round over all places of a rule. */
export async function runRound(
  rule: ReplayRule,
  tools: RuleTools,
  lease: RecordLease<RuleState>,
): Promise<RuleRound> {
  const signal = AbortSignal.any([tools.signal, lease.lost]);
  const round = new RoundOfRule({ rule, tools, lease, signal });
  await round.over();
  return round.end();
}

/** The name that stands in the audit record. */
export function byOfRule({ name }: Pick<ReplayRule, 'name'>): string {
  return `rule:${name}`;
}

class RoundOfRule {
  readonly #parts: RoundParts;
  readonly #by: string;
  readonly #outcomes: Part[] = [];
  readonly #replays: string[] = [];
  readonly #unsure: Set<string>;
  readonly #known: Set<string>;
  #sent = 0;
  #again = 0;
  #left: number;

  constructor(parts: RoundParts) {
    this.#parts = parts;
    this.#by = byOfRule(parts.rule);
    this.#unsure = new Set(parts.lease.before.unsure);
    this.#known = new Set(parts.lease.before.replays);
    this.#left = parts.rule.max;
  }

  /** All places, in turn. */
  async over(): Promise<void> {
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
      const isOurs = lease.before.isInterrupted === true && replay.because === INTERRUPTED_REASON;
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
    // Before anything is sent: anyone who comes after a crash, or after a round that could not say
    // how it ended, has to know of it, and that nobody paused it on purpose.
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
    // What is parked or held was put there for people; a pattern may lead to it all the same.
    kinds: ['dead'],
    ...(group === undefined ? {} : { group }),
    ...(code === undefined ? {} : { code }),
    ...(topic === undefined ? {} : { topic }),
    ...(olderThan === undefined ? {} : { before: now - durationMs(olderThan, 'olderThan') }),
  };
}
