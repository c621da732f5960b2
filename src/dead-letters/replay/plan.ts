/**
 * plan — the options of a replay, checked; and what it would do: looks once, counts, and freezes
 * which letters it is about.
 *
 * Promise: nothing is touched; what comes after the look is not part of the replay.
 */

import { REPLAYS_KIND } from '../../core/reserved-headers.ts';
import { type Millis, durationMs, SECOND_MS } from '../../core/duration.ts';
import { RespoolError, unreachable, show } from '../../core/errors.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { DeadLetters, Letter, LetterRoute, OpenLetter } from '../../ports/dead-letters.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker } from '../../system/ids.ts';
import { unlessAborted } from '../../system/wait.ts';
import { type ReplayPlanItem, writePlan, NO_COUNTS } from './progress.ts';
import {
  auditReplay,
  type CannotKind,
  type Replay,
  type ReplayOperator,
  type ReplayOptions,
  type ReplayPlan,
  type ReplaySource,
} from '../../spool/operator/replays.ts';
import { type LetterTransform, loadTransform, repairLetter } from './transform.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';

/** What a plan is made with. */
export interface PlanTools {
  readonly clock?: Clock;
  readonly dice?: Dice;
  readonly signal?: AbortSignal;
  /** Hears how many were looked at, now and then. */
  readonly onProgress?: (seen: number) => void;
  /** Loaded already; default: the file that the options name. */
  readonly transform?: LetterTransform;
}

const ROWS_MAX = 100;
const IDS_MAX = 10;
const PROGRESS_EVERY = 500;
/** Looked at for one plan, at the most. */
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
  // The record comes last: without it the log is unreachable, and no half plan can run.
  await writePlan(operator.records, replay.id, items);
  if ((await operator.records.put(REPLAYS_KIND, replay.id, replay, 0)) === 'done') return replay;
  throw new RespoolError(
    'store.unavailable',
    `there is a replay "${replay.id}" already; try again`,
  );
}

/** The plan alone: nothing is written. */
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
  // n.b. `seen` counts what fits; how many lie there is the place's own word.
  const lying = await letters.count();
  for await (const open of letters.look(query === undefined ? look : { ...look, query })) {
    const cannot = await unlessAborted(cannotOf(open, settings, transform), endless);
    if (signal?.aborted === true) break;
    draft.add(open.letter, cannot);
    if (draft.count % PROGRESS_EVERY === 0) onProgress?.(draft.count);
    if (draft.count >= settings.max) break;
  }
  signal?.throwIfAborted();
  return draft.finish(Math.max(lying, draft.count), caution);
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

interface Cannot {
  readonly why: CannotKind;
  readonly text: string;
}

const TEXTS: Readonly<Record<CannotKind, string>> = {
  homeless: 'their origin is unknown; give a destination',
  'replayed-too-often': 'they were replayed too often, and will be parked',
  'transform-failed': 'the transform fails on them',
  'transform-skips': 'the transform leaves them where they are',
};

async function transformOf({ transform }: ReplayOptions): Promise<LetterTransform | undefined> {
  return transform === undefined ? undefined : loadTransform(transform);
}

async function cannotOf(
  open: OpenLetter,
  { to, replaysMax }: ReplaySettings,
  transform: LetterTransform | undefined,
): Promise<Cannot | undefined> {
  const because = (why: CannotKind, text = TEXTS[why]): Cannot => ({ why, text });
  if (open.letter.replays >= replaysMax) return because('replayed-too-often');
  if ((to ?? open.letter.home) === undefined) return because('homeless');
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

  add(letter: Letter, cannot: Cannot | undefined): void {
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
    if (cannot !== undefined) return this.#refuse(id, cannot);
    const route = this.#settings.to ?? letter.home;
    const to = route === undefined ? '' : routeText(route);
    this.#routes.set(to, (this.#routes.get(to) ?? 0) + 1);
  }

  #refuse(id: string, { why, text }: Cannot): void {
    const alike = this.#cannot.get(why);
    if (alike === undefined) this.#cannot.set(why, { text, count: 1, ids: [id] });
    else {
      alike.count += 1;
      if (alike.ids.length < IDS_MAX) alike.ids.push(id);
    }
  }

  finish(seen: number, caution: string | undefined): { plan: ReplayPlan; items: ReplayPlanItem[] } {
    const groups = [...this.#groups].map(([group, rest]) => ({ group, ...rest }));
    const routes = [...this.#routes].map(([to, count]) => ({ to, count }));
    const plan: ReplayPlan = {
      plannedAt: this.#plannedAt,
      seen,
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

/** The options of a replay, complete. */
export interface ReplaySettings {
  readonly to: LetterRoute | undefined;
  readonly max: number;
  readonly canary: number;
  readonly canaryWaitMs: number;
  /** Letters per second; undefined: as fast as it goes. */
  readonly rate: number | undefined;
  readonly window: number;
  readonly stopAbove: number;
  readonly replaysMax: number;
  /** Why it is left by default: docs/decisions/0032-possibly-sent-letters-stay-unsure.md */
  readonly unsure: 'leave' | 'send';
}

/** What holds where nothing is said. */
export const REPLAY_DEFAULTS = {
  canary: 10,
  canaryWait: '10s',
  window: 100,
  stopAbove: 20,
  replaysMax: 3,
  unsure: 'leave',
} as const;

const COUNT_MAX = 1_000_000_000;
const RATE_MAX = 1_000_000;
const NAMES: readonly (keyof ReplayOptions)[] = [
  'query',
  'to',
  'max',
  'canary',
  'canaryWait',
  'rate',
  'window',
  'stopAbove',
  'replaysMax',
  'unsure',
  'transform',
];

/** Refuses what cannot be meant; `config.invalid` names the option. */
function checkReplayOptions(options: ReplayOptions, source: ReplaySource): void {
  checkNames('a replay', options, NAMES);
  const { canary } = replaySettings(options);
  const { to } = options;
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
  const {
    max = COUNT_MAX,
    canary = REPLAY_DEFAULTS.canary,
    canaryWait = REPLAY_DEFAULTS.canaryWait,
    window = REPLAY_DEFAULTS.window,
    stopAbove = REPLAY_DEFAULTS.stopAbove,
    replaysMax = REPLAY_DEFAULTS.replaysMax,
    unsure = REPLAY_DEFAULTS.unsure,
  } = options;
  return {
    to: options.to,
    max: checkNumber('max', max, { min: 1, max: COUNT_MAX }),
    canary: checkNumber('canary', canary, { min: 0, max: COUNT_MAX }),
    canaryWaitMs: durationMs(canaryWait, 'canaryWait', { maxMs: 24 * 3_600 * SECOND_MS }),
    rate: checkRate(options.rate),
    window: checkNumber('window', window, { min: 1, max: 1_000 }),
    stopAbove: checkNumber('stopAbove', stopAbove, { min: 0, max: 100 }),
    replaysMax: checkNumber('replaysMax', replaysMax, { min: 1, max: 1_000 }),
    unsure: checkOneOf('unsure', unsure, ['leave', 'send']),
  };
}

function checkRate(rate: unknown): number | undefined {
  if (rate === undefined) return undefined;
  if (typeof rate === 'number' && rate > 0 && rate <= RATE_MAX) return rate;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${show(rate)} as "rate": allowed are letters per second above 0, up to ${RATE_MAX}`,
  );
}
