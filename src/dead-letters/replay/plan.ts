/**
 * plan — the options of a replay, checked; and what it would do: looks once, counts, and freezes
 * which letters it is about.
 *
 * Promise: no letter is touched, and what comes after the look is not part of the replay.
 * `planReplay` writes the plan: an audit line, the keys of the letters and the record of the
 * replay. `drawPlan` writes nothing.
 */

import { RespoolError, show, unreachable } from '../../core/errors.ts';
import { REPLAY_RANGES } from '../../core/limits.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { REPLAYS_RECORD_KIND } from '../../core/reserved-headers.ts';
import type { Millis } from '../../core/duration.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { DeadLetters, Letter, LetterRoute, OpenLetter } from '../../ports/dead-letters.ts';
import {
  auditReplay,
  type CannotKind,
  type Replay,
  type ReplayOperator,
  type ReplayOptions,
  type ReplayPlan,
  type ReplaySource,
} from '../../spool/operator/replays.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker } from '../../system/ids.ts';
import { unlessAborted } from '../../system/wait.ts';
import { type ReplayPlanItem, writePlan, NO_COUNTS } from './run-state.ts';
import { type LetterTransform, loadTransform, repairLetter } from './transform.ts';

/** What a plan is made with. */
export interface PlanTools {
  readonly clock?: Clock;
  readonly dice?: Dice;
  readonly signal?: AbortSignal;
  /** Hears how many were looked at, now and then. */
  readonly onProgress?: (amount: number) => void;
  /** Loaded already; default: the file that the options name. */
  readonly transform?: LetterTransform;
}

/** Both also in docs/reference/dead-letters.md (limits). */
const ROWS_MAX = 100;
const IDS_MAX = 10;
const PROGRESS_EVERY = 500;
/**
 * Maximum number of letters that are examined for one plan. Also in docs/reference/dead-letters.md.
 */
const LOOK_MAX = 1_000_000;

/** Looks once, freezes what fits under a new id, and puts the plan on record. */
export async function planReplay(
  operator: ReplayOperator,
  letters: DeadLetters,
  source: ReplaySource,
  options: ReplayOptions,
  tools: PlanTools = {},
): Promise<Replay> {
  const { clock = systemClock, dice = systemDice } = tools;
  const transform = tools.transform ?? (await transformOf(options));
  const { plan, items } = await drawPlan(letters, source, options, {
    ...tools,
    ...(transform === undefined ? {} : { transform }),
  });
  const now = clock.now();
  const replay: Replay = {
    id: createIdMaker(dice)(now),
    by: operator.by,
    createdAt: now,
    updatedAt: now,
    source,
    options: transform === undefined ? options : { ...options, transform: transform.file },
    plan,
    state: 'planned',
    counts: NO_COUNTS,
    ...(transform === undefined ? {} : { transformDigest: transform.digest }),
  };
  await auditReplay(operator, 'plan', replay);
  // The record comes last: without it the journal is unreachable, so an incomplete plan cannot run.
  await writePlan(operator.records, replay.id, items);
  if ((await operator.records.put(REPLAYS_RECORD_KIND, replay.id, replay, 0)) === 'done')
    return replay;
  throw new RespoolError(
    'store.unavailable',
    `there is a replay "${replay.id}" already; try again`,
  );
}

/**
 * The plan alone: nothing is written.
 *
 * @example
 * import { drawPlan } from 'respool/dead-letters';
 * // Only computed: nothing is recorded, and nothing is sent.
 * const { plan } = await drawPlan(letters, { kind: 'spool', kinds: ['dead'] }, { rate: 10 });
 */
export async function drawPlan(
  letters: DeadLetters,
  source: ReplaySource,
  options: ReplayOptions,
  tools: PlanTools = {},
): Promise<{ readonly plan: ReplayPlan; readonly items: readonly ReplayPlanItem[] }> {
  checkReplayOptions(options, source);
  const { clock = systemClock, onProgress, signal } = tools;
  const transform = tools.transform ?? (await transformOf(options));
  const settings = replaySettings(options);
  const caution = await checkCaution(letters);
  const draft = new Draft(settings, clock.now());
  const look = { max: LOOK_MAX, ...(signal === undefined ? {} : { signal }) };
  const { query } = options;
  // A program of the user may never answer; for all else there is nothing to listen for.
  const endless = transform === undefined ? undefined : signal;
  // The place's own count: also of what does not fit, and of what comes after `max`.
  const total = await letters.count();
  for await (const open of letters.look(query === undefined ? look : { ...look, query })) {
    const obstacle = await unlessAborted(obstacleOf(open, settings, transform), endless);
    if (signal?.aborted === true) break;
    draft.add(open.letter, obstacle);
    if (draft.count % PROGRESS_EVERY === 0) onProgress?.(draft.count);
    if (draft.count >= settings.max) break;
  }
  signal?.throwIfAborted();
  return draft.finish(Math.max(total, draft.count), caution);
}

/** What looking costs; a place that refuses is not looked at. */
export async function checkCaution(letters: DeadLetters): Promise<string | undefined> {
  const caution = await letters.caution();
  if (caution.kind === 'free') return undefined;
  if (caution.kind === 'counted') return caution.text;
  throw new RespoolError(
    'move.refused',
    `cannot look at ${letters.name}: ${caution.text}; ${caution.remedy}`,
  );
}

/** Where a letter goes, as people read it. */
export function routeText(route: LetterRoute): string {
  switch (route.kind) {
    case 'queue':
      return route.exchange === '' ? route.key : `${route.exchange}/${route.key}`;
    case 'topic':
      return route.topic;
    default:
      return unreachable(route);
  }
}

interface Obstacle {
  readonly why: CannotKind;
  readonly text: string;
}

const TEXTS: Readonly<Record<CannotKind, string>> = {
  unroutable: 'their origin is unknown; give a destination',
  'replayed-too-often': 'they were replayed too often, and will be parked',
  'transform-failed': 'the transform fails on them',
  'transform-skips': 'the transform leaves them where they are',
};

async function transformOf({ transform }: ReplayOptions): Promise<LetterTransform | undefined> {
  return transform === undefined ? undefined : loadTransform(transform);
}

async function obstacleOf(
  open: OpenLetter,
  { to, replaysMax }: ReplaySettings,
  transform: LetterTransform | undefined,
): Promise<Obstacle | undefined> {
  const because = (why: CannotKind, text = TEXTS[why]): Obstacle => ({ why, text });
  if (open.letter.replays >= replaysMax) return because('replayed-too-often');
  if ((to ?? open.letter.home) === undefined) return because('unroutable');
  if (transform === undefined) return undefined;
  const repaired = await repairLetter(transform, open);
  if (repaired.kind === 'skip') return because('transform-skips');
  if (repaired.kind !== 'failed') return undefined;
  return because('transform-failed', `${TEXTS['transform-failed']}: ${repaired.reason}`);
}

/** A plan that grows letter by letter. */
class Draft {
  readonly #settings: ReplaySettings;
  readonly #plannedAt: Millis;
  readonly #items: ReplayPlanItem[] = [];
  readonly #groups = new Map<string, { code: string; reason: string; count: number }>();
  readonly #routes = new Map<string, number>();
  readonly #cannot = new Map<CannotKind, { text: string; count: number; ids: string[] }>();
  #bytes = 0;
  #oldestAt: Millis | null = null;
  #newestAt: Millis | null = null;

  constructor(settings: ReplaySettings, plannedAt: Millis) {
    this.#settings = settings;
    this.#plannedAt = plannedAt;
  }

  get count(): number {
    return this.#items.length;
  }

  add(letter: Letter, obstacle: Obstacle | undefined): void {
    const { id, key, group, code, reason, size } = letter;
    this.#items.push(id === key ? [key] : [key, id]);
    this.#bytes += size;
    const at = letter.diedAt ?? letter.enqueuedAt;
    if (at !== undefined) {
      this.#oldestAt = Math.min(this.#oldestAt ?? at, at);
      this.#newestAt = Math.max(this.#newestAt ?? at, at);
    }
    const alike = this.#groups.get(group);
    if (alike === undefined) this.#groups.set(group, { code, reason, count: 1 });
    else alike.count += 1;
    if (obstacle !== undefined) return this.#refuse(id, obstacle);
    const route = this.#settings.to ?? letter.home;
    const to = route === undefined ? '' : routeText(route);
    this.#routes.set(to, (this.#routes.get(to) ?? 0) + 1);
  }

  #refuse(id: string, { why, text }: Obstacle): void {
    const alike = this.#cannot.get(why);
    if (alike === undefined) this.#cannot.set(why, { text, count: 1, ids: [id] });
    else {
      alike.count += 1;
      if (alike.ids.length < IDS_MAX) alike.ids.push(id);
    }
  }

  finish(
    total: number,
    caution: string | undefined,
  ): { plan: ReplayPlan; items: ReplayPlanItem[] } {
    const groups = [...this.#groups].map(([group, rest]) => ({ group, ...rest }));
    const routes = [...this.#routes].map(([to, count]) => ({ to, count }));
    const plan: ReplayPlan = {
      plannedAt: this.#plannedAt,
      seen: total,
      count: this.#items.length,
      bytes: this.#bytes,
      oldestAt: this.#oldestAt,
      newestAt: this.#newestAt,
      groups: largestFirst(groups),
      routes: largestFirst(routes),
      cannot: largestFirst([...this.#cannot].map(([why, rest]) => ({ why, ...rest }))),
      ...(caution === undefined ? {} : { caution }),
    };
    return { plan, items: this.#items };
  }
}

function largestFirst<T extends { readonly count: number }>(rows: T[]): T[] {
  return rows.sort((one, other) => other.count - one.count).slice(0, ROWS_MAX);
}

/** The options of a replay, in the order of its error texts. */
const REPLAY = {
  query: {
    kind: 'data',
    type: 'ids, topic, origin, code, group, text, header, before, after, deathsAbove, kinds',
    ts: 'LetterQuery',
    defaultText: 'all',
    about: 'which letters; fixed when it is planned: what dies later is not part of it',
  },
  to: {
    kind: 'data',
    type: 'a queue, an exchange with a key; for a spool a topic',
    ts: 'LetterRoute',
    defaultText: 'the home of each',
    about: 'where the letters go',
  },
  max: {
    kind: 'number',
    ...REPLAY_RANGES.max,
    type: '1 or more',
    defaultText: 'all',
    about: 'at most this many letters',
  },
  canary: {
    kind: 'number',
    ...REPLAY_RANGES.canary,
    type: '0 or more',
    default: 10,
    about:
      'letters to send first; the rest follows when an attempt of each has ended, in a queue ' +
      'when a consumer has taken each, and not too many failed again ([canaries](#canaries))',
  },
  canaryWait: {
    kind: 'duration',
    min: '0s',
    max: '1d',
    default: '10s',
    about: 'the time limit for an attempt of each canary',
  },
  endWait: {
    kind: 'duration',
    min: '0s',
    max: '1d',
    default: '10s',
    about:
      'of a queue only: the time from the last letter to the look whether any came back ' +
      '([the end](#the-end)); 0s: no look',
  },
  rate: {
    kind: 'data',
    type: 'above 0, up to 1,000,000',
    ts: 'number',
    defaultText: 'unlimited',
    about: 'letters per second',
  },
  window: { kind: 'number', ...REPLAY_RANGES.window, default: 100, about: 'in flight at once' },
  stopAbove: {
    kind: 'number',
    ...REPLAY_RANGES.stopAbove,
    default: 20,
    about: 'stops when more than this percentage fails, or fails again; 100: never',
  },
  replaysMax: {
    kind: 'number',
    ...REPLAY_RANGES.replaysMax,
    default: 3,
    about: 'a letter that was replayed this many times is parked with `replay.limit`',
  },
  unsure: {
    kind: 'choice',
    choices: ['leave', 'send'],
    default: 'leave',
    about: 'what a crash may have sent: left where it is, or sent again',
  },
  transform: {
    kind: 'file',
    about: 'a program that [repairs](#repairs) letters on their way',
  },
} as const;

/** Every option of a replay. */
export const REPLAY_OPTIONS: Readonly<Record<keyof ReplayOptions, Option>> = REPLAY;

/** The options of a replay, complete. */
export interface ReplaySettings {
  readonly to: LetterRoute | undefined;
  readonly max: number;
  readonly canary: number;
  readonly canaryWaitMs: number;
  /** Of a queue: from the last letter to the look at what came back; 0: no look. */
  readonly endWaitMs: number;
  /** Letters per second; undefined: as fast as it goes. */
  readonly rate: number | undefined;
  readonly window: number;
  readonly stopAbove: number;
  readonly replaysMax: number;
  /** Why it is left by default: docs/decisions/0032-possibly-sent-letters-stay-unsure.md */
  readonly unsure: 'leave' | 'send';
}

/** Refuses what cannot be meant; `config.invalid` names the option. */
function checkReplayOptions(options: ReplayOptions, source: ReplaySource): void {
  const { canary } = replaySettings(options);
  const { to, endWait } = options;
  if (endWait !== undefined && source.kind === 'spool') {
    throw new RespoolError(
      'config.invalid',
      'cannot use "endWait" for letters of a spool: it knows at once what failed again; ' +
        'leave it out',
    );
  }
  const kind = source.kind === 'queue' ? 'queue' : 'topic';
  if (to?.kind === 'queue' && to.exchange !== '' && canary > 0) {
    throw new RespoolError(
      'config.invalid',
      `cannot determine whether canaries are delivered through exchange ${show(to.exchange)}: ` +
        'give a queue, or "canary" 0 to send all without canaries',
    );
  }
  if (to === undefined || to.kind === kind) return;
  throw new RespoolError(
    'config.invalid',
    `cannot send letters of a ${source.kind} to a ${to.kind}: give a ${kind}`,
  );
}

/** The options with their defaults. */
export function replaySettings(options: ReplayOptions): ReplaySettings {
  const { max = REPLAY_RANGES.max.max, ...values } = readOptions(
    { what: 'a replay' },
    options,
    REPLAY,
  );
  return { ...values, max, to: options.to, rate: checkRate(options.rate) };
}

function checkRate(rate: unknown): number | undefined {
  if (rate === undefined) return undefined;
  if (typeof rate === 'number' && rate > 0 && rate <= REPLAY_RANGES.rate.max) return rate;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(rate)} as "rate": allowed are letters per second above 0, up to ` +
      REPLAY_RANGES.rate.max,
  );
}
