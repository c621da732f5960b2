/**
 * view — runs a replay to its end, with a bar, and shows replays and plans: in rows, in full, and
 * in a sentence.
 *
 * Promise: however a run ends, the record says how far it got, and where something is left, a line
 * says how to go on.
 */

import type {
  ReplayOperator,
  Replay,
  ReplayCanaries,
  ReplayCounts,
  ReplayLine,
  ReplayPlan,
  ReplaySource,
} from '../../../../spool/operator/replays.ts';
import { resumeReplay, runReplay, type RunTools } from '../../../../dead-letters/replay/run.ts';
import { isRespoolError, show } from '../../../../core/errors.ts';
import type { DeadLetters } from '../../../../ports/dead-letters.ts';
import { CommandError, endedBy, EXIT, type ExitCode, exitCodeOf } from '../../../exit-codes.ts';
import { createProgress } from '../../../ui/progress.ts';
import { safe, numberText } from '../../../../observe/logs/safe-text.ts';
import type { CommandContext } from '../../../spec.ts';
import { stopOnSignal } from '../../../lifetime.ts';
import type { Rehearsal } from '../../../../dead-letters/replay/transform.ts';
import type { Millis } from '../../../../core/duration.ts';
import { pairsOf } from '../../../ui/message-view.ts';
import type { Out } from '../../../ui/output.ts';
import { type Column, tableOf } from '../../../ui/table.ts';
import { both, exact, relative } from '../../../ui/times.ts';

/** A replay to run, and where. */
export interface ReplayResult {
  readonly operator: ReplayOperator;
  readonly letters: DeadLetters;
  readonly replay: Replay;
  /** Other than planned. */
  readonly how?: Pick<RunTools, 'unsure' | 'canary'>;
}

/** Runs it, and tells what came of it; a signal throws, with how to resume. */
export async function carryOut(context: CommandContext, carried: ReplayResult): Promise<ExitCode> {
  const { io, out } = context;
  const { operator, letters, replay, how } = carried;
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  const { count } = replay.plan;
  const tools: RunTools = {
    clock: io.clock,
    signal: stop.signal,
    onProgress: ({ counts }) => bar.show(countDecided(counts), count),
    ...how,
  };
  const run = replay.state === 'planned' ? runReplay : resumeReplay;
  try {
    const ended = await run(operator, letters, replay.id, tools);
    bar.clear();
    await tell(context, ended);
    const stoppedBy = stop.by();
    if (stoppedBy === undefined) return codeOf(ended);
    // Also when it was over before it heard of it: what comes after it is not wanted any more.
    const isPaused = ended.state === 'paused';
    throw endedBy(stoppedBy, isPaused ? `; continue with: ${resumeLine(ended.id)}` : '');
  } catch (error) {
    bar.clear();
    if (isMishap(error)) out.note(`when the cause is fixed: ${resumeLine(replay.id)}`);
    throw error;
  } finally {
    stop.off();
    bar.clear();
  }
}

/** It began, or could have: no refusal, which says itself what to do. */
function isMishap(error: unknown): boolean {
  if (isRespoolError(error)) return exitCodeOf(error) === EXIT.unavailable;
  return !(error instanceof CommandError);
}

async function tell({ out }: CommandContext, replay: Replay): Promise<void> {
  if (out.json) return out.object(replay);
  const { id, state, counts, plan, because, canaries } = replay;
  const why = because === undefined ? '' : `: ${safe(because)}`;
  await out.line(`replay ${safe(id)} is ${state}${why}`);
  await out.line(countsText(replay));
  if (state === 'stopped') out.note(`when the cause is fixed: ${resumeLine(id)}`);
  const { waiting = 0, removed = 0 } = canaries ?? {};
  if (state === 'stopped' && waiting + removed > 0 && counts.sent < plan.count) {
    out.note(`to send the rest without canaries: ${resumeLine(id)} --canary 0`);
  }
  if (state === 'done' && counts.failed > 0) out.note(`to try the failed ones: ${resumeLine(id)}`);
  if (state === 'done' && counts.unsure > 0) {
    out.note(`to send what may have been sent already: ${resumeLine(id)} --unsure send`);
  }
  const isOdd = counts.failed + counts.unsure + counts.again > 0;
  if (isOdd) out.note(`which, and why: respool dlq replays report ${safe(id)}`);
}

/** Done, and nothing of it needs care. */
function codeOf({ state, counts }: Replay): ExitCode {
  const isWell = state === 'done' && counts.failed + counts.unsure + counts.again === 0;
  return isWell ? EXIT.done : EXIT.refused;
}

const RIGHT = { align: 'right' as const };
/** Maximum number of rows of a part of a plan. */
const SHOWN_MAX = 10;

/** The columns of a list of replays. */
export const REPLAY_COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  { head: 'state' },
  { head: 'from', isFlexible: true },
  { head: 'sent', ...RIGHT },
  { head: 'of', ...RIGHT },
  { head: 'made', isOptional: true },
  { head: 'by', isFlexible: true, isOptional: true },
  { head: 'why', isFlexible: true, isReason: true },
];

/** The columns of a report. */
export const LINE_COLUMNS: readonly Column[] = [
  { head: 'id', isId: true },
  { head: 'result' },
  { head: 'to', isFlexible: true },
  { head: 'code' },
  { head: 'reason', isFlexible: true, isReason: true },
];

/** Where the letters of a replay are, as people call it. */
function sourceText(source: ReplaySource): string {
  return source.kind === 'spool' ? `spool (${source.kinds.join(', ')})` : `queue ${source.queue}`;
}

export function replayRow(replay: Replay, now: Millis): string[] {
  const { id, state, source, counts, plan, createdAt, by, because = '' } = replay;
  return [
    safe(id),
    state,
    safe(sourceText(source)),
    numberText(counts.sent),
    numberText(plan.count),
    relative(createdAt, now),
    safe(by),
    safe(because),
  ];
}

export function lineRow({ id, result, to = '', code = '', reason = '' }: ReplayLine): string[] {
  return [safe(id), result, safe(to), safe(code), safe(reason)];
}

/** A plan in full, without what looking cost: letter-places.ts has shown that. */
export async function planView(out: Out, name: string, plan: ReplayPlan): Promise<string> {
  const { count, seen, groups, routes, cannot, oldestAt, newestAt } = plan;
  const parts = [`${safe(name)}: ${numberText(count)} of ${messagesText(seen)}`];
  if (oldestAt !== null && newestAt !== null) {
    parts.push(`died ${exact(oldestAt)} to ${exact(newestAt)}`);
  }
  const addTable = async (heads: readonly Column[], rows: string[][]): Promise<void> => {
    if (rows.length === 0) return;
    const shown = tableOf(out, heads, rows.slice(0, SHOWN_MAX));
    const more = rows.length - SHOWN_MAX;
    parts.push('', more > 0 ? `${shown}\nand ${numberText(more)} more` : shown);
  };
  await addTable(
    [
      { head: 'goes to', isFlexible: true, isReason: true },
      { head: 'messages', ...RIGHT },
    ],
    routes.map((route) => [safe(route.to), numberText(route.count)]),
  );
  await addTable(
    [
      { head: 'group' },
      { head: 'messages', ...RIGHT },
      { head: 'code' },
      { head: 'reason', isFlexible: true, isReason: true },
    ],
    groups.map((one) => [safe(one.group), numberText(one.count), safe(one.code), safe(one.reason)]),
  );
  await addTable(
    [
      { head: 'cannot go' },
      { head: 'messages', ...RIGHT },
      { head: 'why', isFlexible: true, isReason: true },
      { head: 'such as', isId: true, isOptional: true },
    ],
    cannot.map((one) => [one.why, numberText(one.count), safe(one.text), safe(one.ids[0] ?? '')]),
  );
  return parts.join('\n');
}

/** What a repair would do to some letters. */
export function rehearsalsView(out: Out, rehearsals: readonly Rehearsal[]): string {
  return rehearsals.map((one) => rehearsalView(out, one)).join('\n');
}

function rehearsalView(out: Out, { id, result, reason, headers, body }: Rehearsal): string {
  const said = reason === undefined ? result : `${result}: ${reason}`;
  const lines = [`${out.style('bold', safe(id))} ${safe(said)}`];
  for (const { name, before, after } of headers) {
    if (before !== undefined) lines.push(out.style('red', `- ${safe(`${name}: ${before}`)}`));
    if (after !== undefined) lines.push(out.style('green', `+ ${safe(`${name}: ${after}`)}`));
  }
  for (const line of body) {
    const style = line.startsWith('-') ? 'red' : 'green';
    lines.push(/^[+-]/.test(line) ? out.style(style, safe(line)) : safe(line));
  }
  return lines.join('\n');
}

/** A replay in full. */
export async function replayView(out: Out, replay: Replay, now: Millis): Promise<string> {
  const { id, state, because, source, by, options, plan, runner, wanted } = replay;
  const { canaries } = replay;
  const { query, to, ...how } = options;
  const facts: [string, string | undefined][] = [
    ['id', id],
    ['state', state],
    ['because', because],
    ['wanted', wanted],
    ['from', sourceText(source)],
    ['by', by],
    ['made', both(replay.createdAt, now)],
    ['changed', both(replay.updatedAt, now)],
    ['run by', runner === undefined ? undefined : `${runner.name}, ${relative(runner.until, now)}`],
    ['filter', query === undefined ? 'everything' : JSON.stringify(query)],
    ['to', to === undefined ? 'where each came from' : JSON.stringify(to)],
    ...Object.entries(how).map(([name, value]): [string, string] => [name, String(value)]),
    ['canaries', canaries && canariesText(canaries)],
    ['so far', countsText(replay)],
  ];
  const told = facts.filter((fact): fact is [string, string] => fact[1] !== undefined);
  const pairs = await pairsOf(out, told);
  return `${pairs}\n\n${await planView(out, 'plan', plan)}`;
}

/** `sent 3 of 10, failed 2`. */
export function countsText({
  counts,
  plan: { count },
  source,
}: Pick<Replay, 'counts' | 'plan' | 'source'>): string {
  const { sent, again, waiting = 0, ...rest } = counts;
  const parts = [`sent ${numberText(sent)} of ${numberText(count)}`];
  if (again > 0) parts.push(`failed again ${numberText(again)}`);
  for (const [name, value] of Object.entries(rest)) {
    if (value > 0) parts.push(`${name} ${numberText(value)}`);
  }
  // What the management API says of a queue is up to some seconds old.
  const most = source.kind === 'queue' ? 'at most ' : '';
  if (waiting > 0) parts.push(`not attempted yet ${most}${numberText(waiting)}`);
  return parts.join(', ');
}

/** `passed 2, failed 0, not attempted yet 1`. */
function canariesText({ passed, failed, waiting, removed = 0 }: ReplayCanaries): string {
  const text = `passed ${passed}, failed ${failed}, not attempted yet ${waiting}`;
  return removed === 0 ? text : `${text}, removed ${removed}`;
}

/** How many letters are decided. */
function countDecided({ sent, failed, parked, unsure, gone, left }: ReplayCounts): number {
  return sent + failed + parked + unsure + gone + left;
}

export function messagesText(count: number): string {
  return count === 1 ? '1 message' : `${numberText(count)} messages`;
}

/** The command that continues it. */
export function resumeLine(id: string): string {
  return `respool dlq replays resume ${show(id).replaceAll('"', '')}`;
}
