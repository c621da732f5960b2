/**
 * act — what hold, release, retry, bounce, remove and `policy set` share: choosing messages,
 * counting, confirming, a dry run, and reporting the result.
 *
 * By ids (arguments or stdin), by filters, or by the literal word ALL; never two of them.
 */

import { DAY_MS } from '../../../core/duration.ts';
import { isRespoolError, RespoolError, show, textOf, unreachable } from '../../../core/errors.ts';
import type { Retention } from '../../../core/next-status.ts';
import { type OperatorAction, operatorMove } from '../../../core/operator.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import { NO_PROGRESS } from '../../../spool/operator/bulk-actions.ts';
import type { Bulk, BulkAction, BulkProgress, Operator } from '../../../spool/operator/operator.ts';
import type { ActionResult } from '../../../spool/actions.ts';
import type { ListFilter } from '../../../spool/list.ts';
import { CommandError, endedBy, EXIT, type ExitCode } from '../../exit-codes.ts';
import {
  type BadLine,
  FILTER_OPTIONS,
  messageFilterOf,
  idBatches,
  lookUp,
} from '../../select-messages.ts';
import { wholeIds } from '../../id-prefix.ts';
import { stopOnSignal } from '../../lifetime.ts';
import type { ArgumentSpec, CommandContext, OptionSpec } from '../../spec.ts';
import { ask } from '../../ui/confirm.ts';
import type { Out } from '../../ui/output.ts';
import { COUNTING, createProgress, during } from '../../ui/progress.ts';

/** An action, in data and in words. */
interface Action {
  readonly bulk: BulkAction;
  /** `retry`: will we …? */
  readonly verb: string;
  /** `retried`: we have … */
  readonly done: string;
  /** Does it to messages of these ids. */
  readonly byIds: (operator: Operator, ids: readonly string[]) => Promise<ActionResult[]>;
  /** Asked besides, by ids and by filters: for what cannot be undone. */
  readonly warning?: string;
}

/** What every action takes. */
export const ACTION_ARGUMENTS: readonly ArgumentSpec[] = [
  {
    name: '[id...]',
    description: 'ids or their beginnings; - reads ids from stdin; ALL: all messages',
  },
];

/** The options of every action. */
export const ACTION_OPTIONS: readonly OptionSpec[] = [
  ...FILTER_OPTIONS,
  { flags: '--yes', description: 'do not ask' },
  { flags: '--dry-run', description: 'only count, change nothing' },
];

const EXAMPLES_MAX = 3;

/** Does an action to the messages that were asked for. */
export async function runAction(context: CommandContext, action: Action): Promise<ExitCode> {
  const { args, options } = context;
  const filter = messageFilterOf(options);
  const isAll = args.includes('ALL');
  if (isAll && (args.length > 1 || filter !== undefined)) {
    throw usage(`ALL means every message: take it away, or the ids and filters beside it`);
  }
  if (isAll) return actOnMany(context, action, {});
  if (args.length > 0 && filter !== undefined) {
    throw usage('ids and filters do not go together: give one of them');
  }
  if (args.length > 0) return actOnIds(context, action);
  if (filter !== undefined) return actOnMany(context, action, filter);
  throw usage(
    `say which messages to ${action.verb}: ids, - for ids from stdin, a filter such as ` +
      '--state deferred, or the word ALL for every message',
  );
}

/** Counts of what became of messages, by result. */
type Counts = Record<ActionResult['result'], number>;

async function actOnIds(context: CommandContext, action: Action): Promise<ExitCode> {
  const { args, io, out, options } = context;
  const counts: Counts = { done: 0, refused: 0, unknown: 0 };
  const total = args.includes('-') ? undefined : args.length;
  const isDry = options.flag('dryRun');
  if (action.warning !== undefined && !isDry) await ask(context, action.warning);
  const { operator } = await context.session();
  if (isDry) await checkPolicyKnown(operator, action.bulk);
  const bar = createProgress(io, out);
  try {
    const use = { operator, out, isActing: true };
    for await (const { ids, bad } of idBatches(args, io, (typed) => wholeIds(typed, use))) {
      bar.clear();
      for (const line of bad) await tellBadLine(out, line);
      counts.refused += bad.length;
      if (ids.length === 0) continue;
      bar.show(sum(counts), total);
      const results = isDry
        ? await rehearse(operator, ids, action.bulk, context)
        : await action.byIds(operator, ids);
      bar.clear();
      for (const result of results) {
        counts[result.result] += 1;
        await tellResult(out, result, isDry);
      }
      bar.show(sum(counts), total);
    }
  } catch (error) {
    if (sum(counts) === 0) throw error;
    throw brokenOff(error, countsText(action, counts, isDry));
  } finally {
    bar.clear();
  }
  // With --json every message has a line of its own: one more without id would be in the way.
  if (!out.json) await out.line(countsText(action, counts, isDry));
  return counts.refused + counts.unknown > 0 ? EXIT.refused : EXIT.done;
}

function sum({ done, refused, unknown }: Counts): number {
  return done + refused + unknown;
}

/** The same error, and how far it came until then. */
function brokenOff(error: unknown, soFar: string): Error {
  const text = `${soFar}, then: ${textOf(error)}`;
  if (isRespoolError(error)) return new RespoolError(error.code, text, { cause: error });
  return new Error(text, { cause: error });
}

async function tellBadLine(out: Out, { line, why }: BadLine): Promise<void> {
  if (out.json) await out.object({ id: null, line, result: 'refused', why });
  else out.note(safe(why));
}

async function tellResult(out: Out, result: ActionResult, isDry: boolean): Promise<void> {
  if (out.json) {
    const shown = result.result === 'done' ? 'possible' : result.result;
    await out.object(isDry ? { ...result, result: shown, dryRun: true } : result);
    return;
  }
  if (result.result === 'unknown') out.note(`there is no message "${safe(result.id)}"`);
  if (result.result === 'refused') out.note(safe(result.why ?? `refused: ${result.id}`));
}

function countsText({ verb, done }: Action, counts: Counts, isDry: boolean): string {
  const parts = [isDry ? `would ${verb} ${counts.done}` : `${done} ${counts.done}`];
  if (counts.refused > 0) parts.push(`refused ${counts.refused}`);
  if (counts.unknown > 0) parts.push(`unknown ${counts.unknown}`);
  return parts.join(', ');
}

async function actOnMany(
  context: CommandContext,
  action: Action,
  filter: ListFilter,
): Promise<ExitCode> {
  const { out, options } = context;
  const { operator } = await context.session();
  const bulk = await during(context, COUNTING, () => operator.prepare(action.bulk, filter));
  const count = messages(bulk.count);
  if (options.flag('dryRun')) {
    if (out.json) await out.object({ action: action.verb, count: bulk.count, dryRun: true });
    else await out.line(`would ${action.verb} ${count}`);
    return EXIT.done;
  }
  if (bulk.count === 0) {
    if (out.json) await out.object({ action: action.verb, count: 0, ...NO_PROGRESS });
    else await out.line('no messages match; nothing to do');
    return EXIT.done;
  }
  if (!options.flag('yes')) await tellExamples(out, operator, bulk);
  await ask(context, `${action.verb} ${count}?`);
  if (action.warning !== undefined) await ask(context, action.warning);
  const progress = await runBulk(context, action, bulk);
  await tellBulk(out, action, bulk.count, progress);
  return progress.refused > 0 ? EXIT.refused : EXIT.done;
}

async function tellExamples(out: Out, operator: Operator, { filter, count }: Bulk): Promise<void> {
  const { entries } = await operator.page({ ...filter, limit: EXAMPLES_MAX });
  for (const { envelope, status } of entries) {
    out.note(`  ${safe(envelope.id)} ${safe(status.state)} ${safe(envelope.topic)}`);
  }
  if (count > entries.length) out.note(`  and ${numberText(count - entries.length)} more`);
}

async function runBulk(
  { io, out }: CommandContext,
  action: Action,
  bulk: Pick<Bulk, 'count' | 'run'>,
): Promise<BulkProgress> {
  const { count } = bulk;
  const stop = stopOnSignal(io);
  const bar = createProgress(io, out);
  let last = NO_PROGRESS;
  try {
    for await (const progress of bulk.run({ signal: stop.signal })) {
      last = progress;
      bar.show(progress.seen, count);
    }
  } catch (error) {
    if (stop.by() === undefined) throw brokenOff(error, `${bulkText(action, last)} of ${count}`);
  } finally {
    stop.off();
    bar.clear();
  }
  const stoppedBy = stop.by();
  if (stoppedBy === undefined || last.seen >= count) return last;
  throw endedBy(
    stoppedBy,
    ` after ${last.seen} of ${messages(count)}: ${last.done} done, the rest untouched`,
  );
}

async function tellBulk(
  out: Out,
  action: Action,
  count: number,
  progress: BulkProgress,
): Promise<void> {
  if (out.json) {
    await out.object({ action: action.verb, count, ...progress });
    return;
  }
  for (const { id, why } of progress.refusals) out.note(safe(why ?? `refused: ${id}`));
  const untold = progress.refused - progress.refusals.length;
  if (untold > 0) out.note(`and ${untold} more refusals`);
  await out.line(bulkText(action, progress));
}

function bulkText({ done }: Action, progress: BulkProgress): string {
  const parts = [`${done} ${numberText(progress.done)}`];
  if (progress.refused > 0) parts.push(`refused ${numberText(progress.refused)}`);
  if (progress.unknown > 0) parts.push(`no longer there ${numberText(progress.unknown)}`);
  return parts.join(', ');
}

function messages(count: number): string {
  return count === 1 ? '1 message' : `${numberText(count)} messages`;
}

function usage(text: string): CommandError {
  return new CommandError('usage.invalid', text);
}

// What an action would come to, by what is known of the messages. Does nothing.

/** How long something is kept decides no refusal. */
const ANY_RETENTION: Retention = {
  deliveredMs: null,
  bouncedMs: null,
  removedMs: DAY_MS,
  dedupeWindowMs: DAY_MS,
};

/** What would become of these messages now. `done` means: would be. */
async function rehearse(
  operator: Operator,
  ids: readonly string[],
  bulk: BulkAction,
  { io, out }: Pick<CommandContext, 'io' | 'out'>,
): Promise<ActionResult[]> {
  const found = await lookUp(operator, ids, out);
  const action = operatorAction(bulk);
  const context = { now: io.clock.now(), by: operator.by, retention: ANY_RETENTION };
  return ids.map((id) => {
    const entry = found.get(id);
    if (entry === undefined) return { id, result: 'unknown' };
    const answer = operatorMove(entry, action, context);
    return answer.kind === 'refused'
      ? { id, result: 'refused', why: answer.text }
      : { id, result: 'done' };
  });
}

/** Refuses a policy that is not known where the messages are. */
async function checkPolicyKnown(operator: Operator, bulk: BulkAction): Promise<void> {
  if (bulk.kind !== 'policy') return;
  const names = (await operator.policies()).map(({ name }) => name);
  if (names.includes(bulk.policy)) return;
  throw new RespoolError(
    'policy.unknown',
    `cannot set policy ${show(bulk.policy)}: known are ${names.join(', ')}`,
  );
}

function operatorAction(bulk: BulkAction): OperatorAction {
  switch (bulk.kind) {
    case 'hold':
    case 'bounce':
      return { kind: bulk.kind, reason: bulk.reason ?? '' };
    case 'release':
      return { kind: 'release' };
    case 'retry':
      return { kind: 'retry' };
    case 'remove':
      return { kind: 'remove', hard: bulk.hard === true, reason: bulk.reason ?? '' };
    case 'policy':
      return { kind: 'setPolicy', policy: bulk.policy };
    default:
      return unreachable(bulk);
  }
}
