/**
 * run — carries a replay out: canaries first, then the rest, until it is done or stopped.
 *
 *   lease ─▶ what is left of the plan ─▶ canaries ─▶ watch ─▶ the rest ─▶ done
 *                                           └──────────┴────────┴─▶ paused · stopped · cancelled
 *
 * Promise: a letter is sent at most once, unless what is unsure is asked to be sent; whatever
 * happens, each is where it was or where it should be, and the record tells how far it is.
 */

import { formatDuration } from '../../core/duration.ts';
import { asError, RespoolError, textOf } from '../../core/errors.ts';
import {
  auditReplay,
  needReplay,
  type Replay,
  type ReplayOperator,
  type ReplayOptions,
} from '../../spool/operator/replays.ts';
import type { Clock, Dice } from '../../ports/clock.ts';
import type { DeadLetters } from '../../ports/dead-letters.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { randomName } from '../../system/ids.ts';
import { sleep } from '../../system/wait.ts';
import { withBrokerHeader } from '../export.ts';
import { notTheSameLetter, Pace, type PassParts, runPass } from './send-letters.ts';
import { BUSY_EVERY_MS, BUSY_MAX_MS, FailureGuard, OutcomeListener, whenFree } from './outcomes.ts';
import {
  checkRunnable,
  INTERRUPTED_REASON,
  LetterProgress,
  lostError,
  NO_COUNTS,
  ReplayJournal,
  ReplayLease,
  unackedText,
} from './run-state.ts';
import { checkCaution, replaySettings } from './plan.ts';
import { type LetterTransform, sameTransform } from './transform.ts';

/** Missing letters that are recorded at once. */
const MISSING_STEP = 1_000;

/** What a run is made with. */
export interface RunTools {
  readonly clock?: Clock;
  readonly dice?: Dice;
  /** Ends the run as paused, after what is on its way. */
  readonly signal?: AbortSignal;
  /** Hears how far it is, about every second and at the end. */
  readonly onProgress?: (replay: Replay) => void;
  /** Loaded already; default: the file that the plan names. */
  readonly transform?: LetterTransform;
  /** What may have been sent by an earlier run; default: as planned. */
  readonly unsure?: ReplayOptions['unsure'];
  /** Other than planned; 0: the rest is sent whatever becomes of canaries. */
  readonly canary?: ReplayOptions['canary'];
}

/** Runs a planned replay to its end, or until it is stopped. */
export function runReplay(
  operator: ReplayOperator,
  letters: DeadLetters,
  id: string,
  tools: RunTools = {},
): Promise<Replay> {
  return carryOut('run', { operator, letters, id, tools });
}

/** Goes on where a replay was paused, stopped or left by its process. */
export function resumeReplay(
  operator: ReplayOperator,
  letters: DeadLetters,
  id: string,
  tools: RunTools = {},
): Promise<Replay> {
  return carryOut('resume', { operator, letters, id, tools });
}

interface Order {
  readonly operator: ReplayOperator;
  readonly letters: DeadLetters;
  readonly id: string;
  readonly tools: RunTools;
}

async function carryOut(action: 'run' | 'resume', order: Order): Promise<Replay> {
  const { operator, letters, id, tools } = order;
  const { clock = systemClock, dice = systemDice, signal, onProgress } = tools;
  const { records } = operator;
  const before = await needReplay(records, id);
  checkRunnable(before, clock);
  const { options, transformDigest } = before;
  const transform =
    options.transform === undefined
      ? undefined
      : await sameTransform(options.transform, transformDigest, tools.transform);
  await checkCaution(letters);
  await auditReplay(operator, action, before);
  let progress: LetterProgress | undefined;
  const lease = await ReplayLease.begin({
    records,
    clock,
    id,
    name: `${operator.by}/${randomName(dice)}`,
    report: () => reportOf(progress, before),
    onProgress,
  });
  const interrupted = { kind: 'end', state: 'paused', because: INTERRUPTED_REASON } as const;
  const onAbort = () => lease.halt.stop(interrupted);
  signal?.addEventListener('abort', onAbort);
  if (signal?.aborted === true) onAbort();
  try {
    progress = await LetterProgress.load(records, id);
    const news = await sendAll(order, { before, progress, lease, transform, clock });
    const { leftovers } = news;
    const ending = lease.halt.isSet ? undefined : endText(progress, news);
    const texts = [ending, removedText(letters, leftovers)];
    return await finish(lease, id, { texts, why: leftovers.why });
  } catch (error) {
    // Recorded where that is possible; where it is not, the lease runs out.
    const because = `it broke off: ${textOf(error)}`;
    const isLost = lease.halt.reason?.kind === 'lost';
    if (isLost) await lease.drop();
    else await lease.end('stopped', because).catch(() => undefined);
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
}

function reportOf(
  progress: LetterProgress | undefined,
  before: Replay,
): Pick<Replay, 'counts' | 'canaries'> {
  const counts = progress?.counts ?? before.counts ?? NO_COUNTS;
  const canaries = progress?.canaryTally ?? before.canaries;
  return canaries === undefined ? { counts } : { counts, canaries };
}

/** What the last look of a run found. */
interface EndNews {
  /** After this time; undefined: the place does not need any. */
  readonly withinMs?: number;
  readonly texts: readonly string[];
}

/** What has to be said of a replay that is done; undefined: nothing. */
function endText({ counts }: LetterProgress, { withinMs, texts }: EndNews): string | undefined {
  const { again, sent } = counts;
  const within = withinMs === undefined ? '' : ` within ${formatDuration(withinMs)}`;
  const failed = `${again} of ${sent} letters that were sent failed again${within}`;
  const all = again === 0 ? texts : [failed, ...texts];
  return all.length === 0 ? undefined : all.join('; ');
}

function removedText({ name }: DeadLetters, { removed }: Leftovers): string | undefined {
  if (removed === 0) return undefined;
  const what = `${removed} letters that were sent were in ${name} again`;
  return `${what}, since their acks were lost: they were removed, and copies are archived`;
}

interface Scene {
  readonly before: Replay;
  readonly progress: LetterProgress;
  readonly lease: ReplayLease;
  readonly transform: LetterTransform | undefined;
  readonly clock: Clock;
}

/** Canaries, watch, rest, the last look. */
async function sendAll(
  order: Order,
  scene: Scene,
): Promise<EndNews & { readonly leftovers: Leftovers }> {
  const { operator, letters, id, tools } = order;
  const { before, progress, lease, transform, clock } = scene;
  const { unsure, canary } = tools;
  const settings = replaySettings({
    ...before.options,
    ...(unsure === undefined ? {} : { unsure }),
    ...(canary === undefined ? {} : { canary }),
  });
  const journal = new ReplayJournal(operator.records, id, clock);
  const guard = new FailureGuard(settings.stopAbove);
  const news = new OutcomeListener({ id, letters, progress, journal, guard, clock });
  const pace = new Pace(clock, settings.rate);
  const { by } = operator;
  const now = () => clock.now();
  const keep: PassParts['keep'] = (copies) =>
    operator.keep(copies.map((copy) => withBrokerHeader(copy, before.source)));
  const deciding = { id, by, settings, transform };
  const aids = { guard, pace, news, lease, clock, now, keep };
  const parts = { ...deciding, letters, progress, journal, ...aids };
  progress.begin(settings.unsure);
  // What an earlier run has sent; in a spool that is one write, and leaves nothing behind.
  const mayLinger = before.source.kind === 'queue' && progress.unacked > 0;
  // Before anything is sent, and looked at: what consumers gave up since was not delivered yet.
  const first = mayLinger ? await removeLeftovers(parts) : NO_LEFTOVERS;
  await prove(parts, before);
  news.watch(lease);
  await passes(parts, Number.POSITIVE_INFINITY);
  await news.quiet();
  const end = lease.halt.isSet ? { texts: [] } : await lookAtEnd(parts);
  if (lease.halt.reason?.kind === 'broken') throw lease.halt.reason.error;
  // Once more, if the broker had not noticed by then that the connection was lost.
  const last = mayLinger && lease.isLeased ? await removeLeftovers(parts) : NO_LEFTOVERS;
  const { reason } = lease.halt;
  if (reason?.kind === 'end' && reason.state === 'cancelled')
    notTheSameLetter(progress, journal, now());
  await journal.step([]);
  return { ...end, leftovers: { ...last, removed: first.removed + last.removed } };
}

/** What failed again by the end, and what was not attempted. */
async function lookAtEnd({ news, lease, settings }: PassParts): Promise<EndNews> {
  if (news.hearsDeliveries) return { texts: await news.last(lease) };
  const { endWaitMs } = settings;
  if (endWaitMs === 0) return { texts: [] };
  return { withinMs: endWaitMs, texts: await news.watchEnd(lease, endWaitMs) };
}

/** Sends the canaries, and watches them; what halts the lease keeps the rest where it is. */
async function prove(parts: PassParts, { state, options, canaries }: Replay): Promise<void> {
  const { progress, journal, guard, news, lease, settings } = parts;
  const { canary, canaryWaitMs } = settings;
  // Canaries that did well need not do so again, unless the guard had a reason to stop since.
  const isUnfit = progress.isProven || progress.hasBadCanary || (canaries?.removed ?? 0) > 0;
  const isAnew = state === 'stopped' && isUnfit;
  if (progress.isProven && !isAnew) return;
  if (canary === 0) {
    // An operator said so, against the plan: a later resume does not begin with canaries either.
    if (replaySettings(options).canary > 0) await journal.proven();
    return;
  }
  if (isAnew) await journal.canariesAnew();
  // Those of an earlier run are watched on, where that can be.
  else if (news.hearsDeliveries) {
    for (const item of progress.canaries) {
      guard.countSent();
      news.expect(item);
    }
  }
  // What is parked on the way, or gone, is no canary.
  while (lease.isHeld && progress.wanted > 0 && guard.tried < canary) {
    await passes(parts, canary - guard.tried);
  }
  if (lease.halt.isSet) return;
  if (progress.wanted === 0) {
    if (news.hearsDeliveries) await news.watchLast(lease, canaryWaitMs);
    return;
  }
  await news.watchCanaries(lease, canaryWaitMs);
  await journal.step([]);
  if (!lease.halt.isSet) await journal.proven();
}

/** Passes until the limit is reached, the plan is through, or nothing more is found. */
async function passes(parts: PassParts, limit: number): Promise<void> {
  const { letters, lease, progress, journal, news, now, clock } = parts;
  let rest = limit;
  let pauseAt = 0;
  let freeMs = clock.monotonic();
  while (lease.isHeld && progress.wanted > 0 && rest > 0) {
    // n.b. A question is a look, and a look at a queue has its letters in hand meanwhile: a pass
    // that begins beside it would find nothing, and take them for gone.
    await news.quiet();
    const { found, acted, returned, busy } = await runPass(parts, { limit: rest, pauseAt });
    if (lease.halt.reason?.kind === 'broken') throw lease.halt.reason.error;
    if (busy !== undefined) {
      // Anyone who looks at a queue has it for a moment: that is no reason to stop.
      await sleep(clock, BUSY_EVERY_MS, lease.halt.signal);
      if (clock.monotonic() - freeMs < BUSY_MAX_MS) continue;
      return lease.halt.stop({ kind: 'end', state: 'stopped', because: busy });
    }
    rest -= acted;
    // What came back is there for sure: the next pass settles as many before it asks for more.
    pauseAt = returned;
    freeMs = clock.monotonic();
    if (!lease.isHeld || found + returned > 0) continue;
    if (!(await letters.isAlone())) {
      // What others hold is not seen: it is neither gone nor sent.
      const because =
        `${progress.wanted} letters of the plan were not seen, and others hold letters of ` +
        `${letters.name}: they may be among them; resume it when no other process works there`;
      lease.halt.stop({ kind: 'end', state: 'stopped', because });
      return;
    }
    let noted = 0;
    for (const { item, result } of progress.missing()) {
      progress.settle(item, { result }, now());
      journal.note(item, { result });
      noted += 1;
      // A record has its limits, however many are missing.
      if (noted % MISSING_STEP === 0) await journal.step([]);
    }
  }
}

/** What has to be said at the end, and why it is not done though it is through. */
interface EndTexts {
  readonly texts: readonly (string | undefined)[];
  readonly why: string | undefined;
}

async function finish(lease: ReplayLease, id: string, { texts, why }: EndTexts): Promise<Replay> {
  const { reason } = lease.halt;
  if (reason === undefined || reason.kind === 'end') {
    const { state, because } = reason ?? {
      state: why === undefined ? 'done' : 'stopped',
      because: undefined,
    };
    const said = [because, ...texts, why].filter((text) => text !== undefined);
    return lease.end(state, said.length === 0 ? undefined : said.join('; '));
  }
  if (reason.kind === 'lost') throw lostError(id);
  throw reason.error instanceof Error
    ? reason.error
    : new RespoolError('store.unavailable', textOf(reason.error));
}

// What was sent and lies here again, since its ack was lost with the connection.
//
// n.b. A letter that a consumer gave up again, without our mark, looks the same. Promise: removed
// is only what was sent without a confirmed ack, was delivered before, and as many of a key as were
// sent so, while no other of that key is open, unsure or failed; a copy is archived first.
//
// Why: docs/decisions/0051-a-letter-sent-before-is-removed-with-a-copy.md

/** What came of the removal. */
interface Leftovers {
  readonly removed: number;
  /** Why more may be here; undefined: there is none. */
  readonly why?: string;
}

const NO_LEFTOVERS: Leftovers = { removed: 0 };

/** Removes what was sent. */
async function removeLeftovers(parts: PassParts): Promise<Leftovers> {
  const { letters, progress, journal, lease, clock } = parts;
  const count = progress.unacked;
  if (count === 0) return NO_LEFTOVERS;
  const some = `${unackedText(count)}: some may be`;
  const byKey = progress.unackedByKey();
  // Some look like others that failed or are unsure: a later run may tell them apart.
  const isWhole = [...byKey.values()].flat().length === count;
  let acked: readonly number[] = [];
  let why: string | undefined;
  try {
    // Before the look: what a lost connection holds is back when the broker has noticed its loss.
    const isAlone = await letters.isAlone();
    // One pass: after it every letter here was delivered before.
    const end = await whenFree(() => removeSent(parts, byKey), clock, lease.halt.signal);
    acked = end.acked;
    if (end.error !== undefined) throw end.error;
    if (!isAlone) {
      why =
        `${some} among those that others hold of ${letters.name}; resume it when no other ` +
        'process works there';
    }
  } catch (error) {
    why = `${some} in ${letters.name} still: ${textOf(error)}`;
  }
  const removed = acked.length;
  if (!lease.isLeased) return { removed };
  const known = why === undefined && isWhole ? { ackedCount: count } : { acked };
  progress.acknowledge(known);
  await journal.step([], known);
  return why === undefined ? { removed } : { removed, why };
}

/** What a pass has removed for sure, and why it ended early. */
interface Removal {
  readonly acked: readonly number[];
  readonly error?: Error;
}

/** Goes once through the place; throws when its own acks may be lost too. */
async function removeSent(
  { id, by, letters, lease, keep }: PassParts,
  byKey: ReadonlyMap<string, number[]>,
): Promise<Removal> {
  const acked: number[] = [];
  const reason = `sent by replay ${id}, and its ack was lost`;
  const taking = letters.take({
    isWanted: ({ key, replayedBy, isRedelivered = false }) =>
      isRedelivered && replayedBy !== id && (byKey.get(key)?.length ?? 0) > 0,
  });
  for await (const taken of taking) {
    if (!lease.isLeased) break;
    const items = byKey.get(taken.letter.key) ?? [];
    const [item] = items;
    // Further ones are of others: no more than were sent.
    if (item === undefined) await letters.settle(taken, { kind: 'leave' });
    else {
      try {
        await keep([await taken.copy(reason)]);
      } catch (error) {
        // n.b. Not thrown out of the loop: that would hide whether the acks so far are lost.
        return { acked, error: asError(error) };
      }
      const { kind } = await letters.settle(taken, { kind: 'remove', hard: true, reason, by });
      if (kind !== 'done') continue;
      items.shift();
      acked.push(item);
    }
  }
  return { acked };
}
