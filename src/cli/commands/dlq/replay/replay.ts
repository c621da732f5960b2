/**
 * replay — plans a replay over every place that was asked for, shows what would happen, asks, and
 * runs one after the other. The run itself: view.ts here, by run.ts of dead-letters/replay/. The
 * commands over replays on record: replays.ts.
 */

import path from 'node:path';
import { checkTopic, REPLAY_RANGES } from '../../../../core/limits.ts';
import { removeReplay } from '../../../../dead-letters/replay/operations.ts';
import { drawPlan, planReplay } from '../../../../dead-letters/replay/plan.ts';
import {
  type LetterTransform,
  loadTransform,
  rehearse,
} from '../../../../dead-letters/replay/transform.ts';
import { safe } from '../../../../observe/logs/safe-text.ts';
import type { Replay, ReplayOperator, ReplayOptions } from '../../../../spool/operator/replays.ts';
import type {
  DeadLetters,
  Letter,
  LetterQuery,
  LetterRoute,
} from '../../../../ports/dead-letters.ts';
import { checkName } from '../../../../rabbit/topology/model.ts';
import { CommandError, EXIT, type ExitCode, exitCodeOf } from '../../../exit-codes.ts';
import { interruptible } from '../../../lifetime.ts';
import { type Options, usageOf } from '../../../options.ts';
import type { CommandContext } from '../../../spec.ts';
import { ask } from '../../../ui/confirm.ts';
import { createProgress } from '../../../ui/progress.ts';
import {
  kindsOf,
  type LetterLook,
  openLook,
  atLetters,
  type LettersContext,
  type OpenPlace,
} from '../letter-places.ts';
import { carryOut, messagesText, planView, rehearsalsView, resumeLine } from './view.ts';

/** One place, and what of it is replayed how. */
interface Aim {
  readonly place: OpenPlace;
  /** Only what fits is seen. */
  readonly letters: DeadLetters;
  readonly options: ReplayOptions;
  readonly transform: LetterTransform | undefined;
}

const NOTHING_DONE = '; nothing was sent';

/** Plans, asks and runs. */
export async function replayLetters(commandContext: CommandContext): Promise<ExitCode> {
  const context = atLetters(commandContext);
  const { options, out } = context;
  if (options.flag('dryRun') && options.flag('planOnly')) {
    throw new CommandError('usage.invalid', '--dry-run and --plan-only: give one of them');
  }
  const aims = await aimsOf(context);
  if (options.flag('dryRun')) return showPlans(context, aims);
  const { operator } = await context.session();
  const planned = await planAll(context, aims, operator);
  if (planned.length === 0) {
    if (!out.json) await out.line('no messages match; nothing to do');
    return EXIT.done;
  }
  if (options.flag('planOnly')) {
    for (const { replay } of planned) {
      if (out.json) await out.object(replay);
      else await out.line(`replay ${safe(replay.id)} is planned; run it: ${resumeLine(replay.id)}`);
    }
    return EXIT.done;
  }
  await confirmed(context, planned, operator);
  return runAll(context, planned, operator);
}

async function aimsOf(context: LettersContext): Promise<readonly Aim[]> {
  const { options, io } = context;
  // A held message was held by an operator, or parked after too many replays.
  const isSpool = options.texts('queue').length === 0;
  const kinds = kindsOf(context) ?? (isSpool ? ['dead'] : undefined);
  const look = await openLook(context, { isStrict: true, ...(kinds && { kinds }) });
  const { config } = await context.config();
  const { replaysMax } = config.deadLetters;
  const aims = look.places.map((place) => ({
    place,
    letters: fittingOf(look, place),
    options: replayOptionsOf(options, {
      query: look.filter.query,
      kind: place.source.kind,
      replaysMax,
      resolve: (file) => path.resolve(io.cwd, file),
    }),
  }));
  const file = aims[0]?.options.transform;
  const transform = file === undefined ? undefined : await loadTransform(file);
  return aims.map((aim) => ({ ...aim, transform }));
}

/** A category is no matter of the place. */
function fittingOf({ filter, tell }: LetterLook, { letters }: OpenPlace): DeadLetters {
  const { category } = filter;
  return category === undefined
    ? letters
    : onlyChosen(letters, (letter) => tell(letter) === category);
}

/** What would happen; nothing is written. */
async function showPlans(context: LettersContext, aims: readonly Aim[]): Promise<ExitCode> {
  const { io, out } = context;
  for (const { place, letters, options, transform } of aims) {
    const tools = { clock: io.clock, ...(transform === undefined ? {} : { transform }) };
    const { query } = options;
    const { plan, rehearsals } = await interruptible(io, NOTHING_DONE, async (signal) => {
      const drawn = await drawPlan(letters, place.source, options, { ...tools, signal });
      if (transform === undefined || drawn.plan.count === 0) return { plan: drawn.plan };
      const some = await rehearse(letters, transform, query === undefined ? {} : { query });
      return { plan: drawn.plan, rehearsals: some };
    });
    if (out.json) {
      await out.object({ dryRun: true, source: place.source, options, plan, rehearsals });
      continue;
    }
    await out.line(await planView(out, place.name, plan));
    if (rehearsals !== undefined) await out.line(rehearsalsView(out, rehearsals));
  }
  return EXIT.done;
}

interface Planned extends Aim {
  readonly replay: Replay;
}

/** Freezes what fits, place by place; one without any letters is left out. */
async function planAll(
  context: LettersContext,
  aims: readonly Aim[],
  operator: ReplayOperator,
): Promise<readonly Planned[]> {
  const planned: Planned[] = [];
  try {
    for (const aim of aims) await planOne(context, { aim, operator, planned });
  } catch (error) {
    await forgetAll(context, planned, operator);
    throw error;
  }
  return planned;
}

interface Planning {
  readonly aim: Aim;
  readonly operator: ReplayOperator;
  /** Those that are on record; this one comes after them. */
  readonly planned: Planned[];
}

async function planOne(
  context: LettersContext,
  { aim, operator, planned }: Planning,
): Promise<void> {
  const { io, out } = context;
  const { place, letters, options, transform } = aim;
  if ((await place.letters.count()) === 0) return;
  const bar = createProgress(io, out);
  const tools = {
    clock: io.clock,
    onProgress: (amount: number) => bar.show(amount),
    ...(transform === undefined ? {} : { transform }),
  };
  const { id, plan } = await interruptible(io, NOTHING_DONE, async (signal) => {
    const replay = await planReplay(operator, letters, place.source, options, { ...tools, signal });
    planned.push({ ...aim, replay });
    return replay;
  }).finally(() => bar.clear());
  if (plan.count === 0) {
    planned.pop();
    await removeReplay(operator, id, { clock: io.clock });
  } else if (!out.json) out.note(await planView(out, place.name, plan));
}

/** Nothing is left of the plans. */
async function forgetAll(
  { io: { clock } }: LettersContext,
  planned: readonly Planned[],
  operator: ReplayOperator,
): Promise<void> {
  for (const { replay } of planned) await removeReplay(operator, replay.id, { clock });
}

/** Returns when the answer is yes; otherwise nothing is left of the plans. */
async function confirmed(
  context: LettersContext,
  planned: readonly Planned[],
  operator: ReplayOperator,
): Promise<void> {
  const count = planned.reduce((sum, { replay }) => sum + replay.plan.count, 0);
  try {
    await ask(context, `replay ${messagesText(count)}?`);
  } catch (error) {
    await forgetAll(context, planned, operator);
    throw error;
  }
}

/** One after the other; one that fails does not keep the others waiting. */
async function runAll(
  context: LettersContext,
  planned: readonly Planned[],
  operator: ReplayOperator,
): Promise<ExitCode> {
  let code: ExitCode = EXIT.done;
  for (const [at, { replay, place }] of planned.entries()) {
    try {
      const ended = await carryOut(context, { operator, letters: place.letters, replay });
      if (ended !== EXIT.done) code = ended;
    } catch (error) {
      const later = planned.slice(at + 1);
      if (error instanceof CommandError) {
        for (const { replay: one } of later) context.out.note(`not begun: ${resumeLine(one.id)}`);
      }
      if (error instanceof CommandError || later.length === 0) throw error;
      context.out.error(error);
      code = exitCodeOf(error);
    }
  }
  return code;
}

// A place of which only some letters are seen, by what it cannot be asked itself.

/** The same place; looks give only what fits. What is taken by its key is taken as before. */
export function onlyChosen(letters: DeadLetters, fits: (letter: Letter) => boolean): DeadLetters {
  return {
    name: letters.name,
    caution: () => letters.caution(),
    count: () => letters.count(),
    async *look(options) {
      for await (const open of letters.look(options)) if (fits(open.letter)) yield open;
    },
    take: (options) => letters.take(options),
    settle: (item, verdict) => letters.settle(item, verdict),
    isAlone: () => letters.isAlone(),
    since: (replay, ids) => letters.since(replay, ids),
    close: () => letters.close(),
    ...(letters.waitingAt === undefined
      ? {}
      : {
          waitingAt: (routes, how) =>
            letters.waitingAt?.(routes, how) ?? Promise.resolve(undefined),
        }),
  };
}

// How a replay is to go, as the command line says it.

/** What a replay goes by where the command line says nothing. */
interface ReplayDefaults {
  readonly replaysMax: number;
}

/** The options of a replay; `transform` as an absolute path. */
function replayOptionsOf(
  options: Options,
  {
    query,
    kind,
    replaysMax,
    resolve,
  }: ReplayDefaults & {
    readonly query: LetterQuery;
    readonly kind: 'queue' | 'spool';
    /** Makes a path of a file absolute. */
    readonly resolve: (file: string) => string;
  },
): ReplayOptions {
  const to = options.filled('to');
  const transform = options.filled('transform');
  const given = {
    query: Object.keys(query).length === 0 ? undefined : query,
    to: to === undefined ? undefined : routeOf(to, kind),
    max: options.number('limit', REPLAY_RANGES.max),
    canary: options.number('canary', REPLAY_RANGES.canary),
    canaryWait: options.span('canaryWait'),
    endWait: options.span('endWait'),
    rate: options.number('rate', REPLAY_RANGES.rate),
    window: options.number('window', REPLAY_RANGES.window),
    stopAbove: options.number('stopAbove', REPLAY_RANGES.stopAbove),
    replaysMax: options.number('replaysMax', REPLAY_RANGES.replaysMax) ?? replaysMax,
    unsure: options.text('unsure'),
    transform: transform === undefined ? undefined : resolve(transform),
  };
  const said = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.fromEntries(said);
}

/** `orders`, `shop:order.new`, `:a:queue` for a queue with a colon in its name; or a topic. */
function routeOf(text: string, kind: 'queue' | 'spool'): LetterRoute {
  if (kind === 'spool') {
    const topic = usageOf(() => checkTopic(text, '--to'), ['message.invalid']);
    return { kind: 'topic', topic };
  }
  const at = text.indexOf(':');
  const [exchange, key] = at === -1 ? ['', text] : [text.slice(0, at), text.slice(at + 1)];
  if (exchange === '') usageOf(() => checkName('--to', key));
  if (Buffer.byteLength(exchange) > 255 || Buffer.byteLength(key) > 255) {
    throw new CommandError(
      'usage.invalid',
      'cannot use this as --to: an exchange and a key have at most 255 bytes each',
    );
  }
  return { kind: 'queue', exchange, key };
}
