/**
 * plan — the options of a replay, checked; what it would do: looks once, counts, and freezes which
 * letters it is about; and the transform, a user's file that repairs letters on their way:
 *
 *   export default (letter, { json }) => ({ json: { ...json(), country: 'CH' } });
 *   export const schema = z.object({ … });        what is sent has to fit it
 *
 * Promise: nothing is touched; what comes after the look is not part of the replay. A repair that
 * throws or does not fit is a result, never a lost letter; a file that was changed since the plan
 * is refused.
 */

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { RespoolError, show, textOf, unreachable } from '../../core/errors.ts';
import { checkNames, REPLAY_RANGES } from '../../core/limits.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { REPLAYS_KIND } from '../../core/reserved-headers.ts';
import type { Millis } from '../../core/duration.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type {
  DeadLetters,
  Letter,
  LetterChange,
  LetterRoute,
  OpenLetter,
} from '../../ports/dead-letters.ts';
import type { StandardSchema } from '../../ports/schema.ts';
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
import { importFile } from '../../system/peer.ts';
import { unlessAborted } from '../../system/wait.ts';
import { type ReplayPlanItem, writePlan, NO_COUNTS } from './progress.ts';

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

const ROWS_MAX = 100;
const IDS_MAX = 10;
const PROGRESS_EVERY = 500;
/** Maximum number of letters that are examined for one plan. */
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

  finish(
    amount: number,
    caution: string | undefined,
  ): { plan: ReplayPlan; items: ReplayPlanItem[] } {
    const groups = [...this.#groups].map(([group, rest]) => ({ group, ...rest }));
    const routes = [...this.#routes].map(([to, count]) => ({ to, count }));
    const plan: ReplayPlan = {
      plannedAt: this.#plannedAt,
      seen: amount,
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
      'of a queue: the time from the last letter to the look whether any came back ' +
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

/** What a repair sees of the body. */
export interface RepairBody {
  readonly body: Uint8Array;
  /** As UTF-8; throws where it is not. */
  readonly text: () => string;
  /** Parsed; throws where it is not JSON. */
  readonly json: () => unknown;
}

/** What a repair wants; `json` instead of `body` writes it as JSON. */
export interface RepairChange extends Omit<LetterChange, 'body'> {
  readonly body?: Uint8Array | string;
  readonly json?: unknown;
}

/** The default export: a change, undefined to send it as it is, or `'skip'` to leave it. */
export type Repair = (
  letter: Letter,
  body: RepairBody,
) => RepairChange | undefined | 'skip' | Promise<RepairChange | undefined | 'skip'>;

/** A user's file, loaded. */
export interface LetterTransform {
  /** Its whole path: anyone who resumes may be elsewhere. */
  readonly file: string;
  /** Of the file's text. */
  readonly digest: string;
  readonly repair: Repair;
  readonly schema: StandardSchema | undefined;
}

/** What came of a repair. */
type Repaired =
  | { readonly kind: 'same' }
  | { readonly kind: 'changed'; readonly change: LetterChange }
  | { readonly kind: 'skip' }
  | { readonly kind: 'failed'; readonly reason: string };

/** Loads a user's file; `config.invalid` when it cannot be one. */
export async function loadTransform(file: string): Promise<LetterTransform> {
  const what = `cannot load the transform "${file}"`;
  let digest: string;
  let exported: Readonly<Record<string, unknown>>;
  try {
    digest = createHash('sha256')
      .update(await readFile(file))
      .digest('hex');
    // n.b. Under its digest: a file that was changed meanwhile is loaded again.
    exported = await importFile(`${pathToFileURL(file).href}?${digest.slice(0, 12)}`);
  } catch (error) {
    throw new RespoolError('config.invalid', `${what}: ${textOf(error)}`, { cause: error });
  }
  const { default: repair, schema } = exported;
  if (typeof repair !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `${what}: its default export is ${show(repair)}; export a function (letter, body) => change`,
    );
  }
  if (schema !== undefined && !isSchema(schema)) {
    throw new RespoolError(
      'config.invalid',
      `${what}: its export "schema" is no Standard Schema (zod, valibot, arktype, …)`,
    );
  }
  return { file: path.resolve(file), digest, repair: repair as Repair, schema };
}

/** The transform of a replay, as it was when it was planned. */
export async function sameTransform(
  options: ReplayOptions,
  digest: string | undefined,
  letterTransform: LetterTransform | undefined,
): Promise<LetterTransform | undefined> {
  if (options.transform === undefined) return undefined;
  const transform = letterTransform ?? (await loadTransform(options.transform));
  if (transform.digest === digest) return transform;
  throw new RespoolError(
    'config.invalid',
    `cannot use the transform "${transform.file}": it was changed after the replay was planned; ` +
      'put it back as it was, or cancel this replay and plan a new one',
  );
}

/** What the transform makes of one letter. Never throws. */
export async function repairLetter(
  { repair, schema }: LetterTransform,
  open: OpenLetter,
): Promise<Repaired> {
  try {
    const body = await open.body();
    const answer: unknown = await repair(open.letter, viewOf(body));
    if (answer === 'skip') return { kind: 'skip' };
    const change = changeOf(answer);
    if (schema !== undefined) await checkFits(schema, change?.body ?? body);
    return change === undefined ? { kind: 'same' } : { kind: 'changed', change };
  } catch (error) {
    return { kind: 'failed', reason: textOf(error) };
  }
}

/** What a transform would do to one letter. */
export interface Rehearsal {
  readonly id: string;
  readonly result: Repaired['kind'];
  readonly reason?: string;
  readonly headers: readonly {
    readonly name: string;
    readonly before: string | undefined;
    readonly after: string | undefined;
  }[];
  /** The body line by line; JSON is laid out first. */
  readonly body: readonly string[];
}

/**
 * Tries the transform on the first letters of a query; nothing is changed by it.
 *
 * @example
 * import { loadTransform, rehearse } from 'respool/dead-letters';
 * const transform = await loadTransform('repair.ts');
 * for (const { id: letter, result, body } of await rehearse(letters, transform, { max: 10 })) {
 *   console.log(letter, result, body.join('\n'));
 * }
 */
export async function rehearse(
  letters: DeadLetters,
  transform: LetterTransform,
  { query, max = 5 }: Pick<ReplayOptions, 'query'> & { readonly max?: number } = {},
): Promise<Rehearsal[]> {
  const rehearsals: Rehearsal[] = [];
  for await (const open of letters.look(query === undefined ? {} : { query })) {
    const repaired = await repairLetter(transform, open);
    rehearsals.push(rehearsalOf(open.letter, await open.body(), repaired));
    if (rehearsals.length >= max) break;
  }
  return rehearsals;
}

function rehearsalOf(letter: Letter, body: Uint8Array, repaired: Repaired): Rehearsal {
  const { id } = letter;
  const { kind: result } = repaired;
  if (repaired.kind === 'failed') {
    return { id, result, reason: repaired.reason, headers: [], body: [] };
  }
  const change = repaired.kind === 'changed' ? repaired.change : {};
  const headers = Object.entries(change.headers ?? {})
    .map(([name, value]) => ({ name, before: letter.headers[name], after: value ?? undefined }))
    .concat(
      change.contentType === undefined
        ? []
        : [{ name: 'content-type', before: letter.contentType, after: change.contentType }],
    )
    .filter(({ before, after }) => before !== after);
  const lines = change.body === undefined ? [] : bodyDiff(body, change.body);
  return { id, result, headers, body: lines };
}

function bodyDiff(before: Uint8Array, after: Uint8Array): string[] {
  const [old, fresh] = [laidOut(before), laidOut(after)];
  if (old !== undefined && fresh !== undefined) return lineDiff(old, fresh);
  return Buffer.from(before).equals(after)
    ? []
    : [`- ${before.length} bytes`, `+ ${after.length} bytes`];
}

/** A body as people read it; undefined where it is no text. */
function laidOut(body: Uint8Array): string | undefined {
  const { text, json } = viewOf(body);
  try {
    return JSON.stringify(json(), null, 2);
  } catch {
    // Not JSON: shown as the text it is.
  }
  try {
    return text();
  } catch {
    return undefined;
  }
}

function viewOf(body: Uint8Array): RepairBody {
  const text = () => new TextDecoder('utf-8', { fatal: true }).decode(body);
  return { body, text, json: () => JSON.parse(text()) as unknown };
}

function changeOf(answer: unknown): LetterChange | undefined {
  if (answer === undefined) return undefined;
  if (typeof answer !== 'object' || answer === null) {
    throw new Error(`it answered ${show(answer)}: allowed is a change, undefined or 'skip'`);
  }
  checkNames('a change', answer, ['body', 'json', 'contentType', 'headers']);
  const { body, json, contentType, headers } = answer as RepairChange;
  const bytes = json === undefined ? bytesOf(body) : Buffer.from(JSON.stringify(json));
  for (const [name, value] of Object.entries(headers ?? {})) {
    if (value === null || typeof value === 'string') continue;
    throw new Error(`it set the header "${name}" to ${show(value)}: allowed is text or null`);
  }
  const change = {
    ...(bytes === undefined ? {} : { body: bytes }),
    ...(contentType === undefined ? {} : { contentType }),
    ...(headers === undefined ? {} : { headers }),
  };
  return Object.keys(change).length === 0 ? undefined : change;
}

function bytesOf(body: unknown): Uint8Array | undefined {
  if (body === undefined || body instanceof Uint8Array) return body;
  if (typeof body === 'string') return Buffer.from(body);
  throw new Error(`it gave ${show(body)} as body: allowed is text or bytes; use "json" for data`);
}

async function checkFits(schema: StandardSchema, body: Uint8Array): Promise<void> {
  const { issues } = await schema['~standard'].validate(viewOf(body).json());
  if (issues === undefined) return;
  const texts = issues.slice(0, 3).map(({ message, path = [] }) => {
    const where = path.map((part) => String(typeof part === 'object' ? part.key : part)).join('.');
    return where === '' ? message : `${where}: ${message}`;
  });
  throw new Error(`the body does not fit the schema: ${texts.join('; ')}`);
}

function isSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  const standard: unknown = Reflect.get(value, '~standard');
  return typeof standard === 'object' && standard !== null && 'validate' in standard;
}

// What differs between two texts, line by line, within bounds. Pure.

/** Maximum number of lines that are compared, without equal lines at both ends. */
const COMPARED_MAX = 400;
/** Maximum number of lines of the answer. */
const SHOWN_MAX = 80;
const CONTEXT = 2;

/** Lines that begin with `- `, `+ ` or two blanks; empty when nothing differs. */
export function lineDiff(before: string, after: string): string[] {
  if (before === after) return [];
  const old = before.split('\n');
  const fresh = after.split('\n');
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  const rest = Math.min(old.length, fresh.length) - head;
  while (tail < rest && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const lines = [
    ...old.slice(Math.max(0, head - CONTEXT), head).map(same),
    ...middle(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail)),
    ...old.slice(old.length - tail, old.length - tail + CONTEXT).map(same),
  ];
  if (lines.length <= SHOWN_MAX) return lines;
  return [...lines.slice(0, SHOWN_MAX), `… ${lines.length - SHOWN_MAX} lines more`];
}

const same = (line: string) => `  ${line}`;
const gone = (line: string) => `- ${line}`;
const come = (line: string) => `+ ${line}`;

/** By the longest common subsequence where that is affordable. */
function middle(old: readonly string[], fresh: readonly string[]): string[] {
  if (old.length > COMPARED_MAX || fresh.length > COMPARED_MAX) {
    return [...old.map(gone), ...fresh.map(come)];
  }
  const width = fresh.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = fresh.length - 1; column >= 0; column -= 1) {
      common[row * width + column] =
        old[row] === fresh[column]
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const lines: string[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < fresh.length) {
    if (row < old.length && column < fresh.length && old[row] === fresh[column]) {
      lines.push(same(old[row] ?? ''));
      row += 1;
      column += 1;
    } else if (
      column >= fresh.length ||
      (row < old.length && at(row + 1, column) >= at(row, column + 1))
    ) {
      lines.push(gone(old[row] ?? ''));
      row += 1;
    } else {
      lines.push(come(fresh[column] ?? ''));
      column += 1;
    }
  }
  return lines;
}
