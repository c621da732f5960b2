/**
 * bulk — one action over every message of a filter, counted first and then done in steps.
 *
 * Promise: at most as many messages are touched as were counted, none that came after the
 * millisecond of the count, each at most once, and the audit record has filter and count before
 * anything is done.
 *
 * After the clock was set back, messages that came before are in the future: their times do not
 * tell them from messages that come after the count, and only the count bounds what is touched.
 */

import { durationMs, type Millis, MINUTE_MS } from '../../core/duration.ts';
import { RespoolError, show, unreachable } from '../../core/errors.ts';
import { checkIds, checkNames } from '../../core/limits.ts';
import type { OperatorAction } from '../../core/operator.ts';
import { type State, STATES } from '../../core/state.ts';
import { act, type ActionResult, checkPolicyName } from '../actions.ts';
import type { SpoolInternals } from '../internals.ts';
import type { ListFilter } from '../list.ts';
import { addProgress, NO_PROGRESS } from './bulk-actions.ts';
import type { Bulk, BulkAction, BulkProgress, BulkStep } from './operator.ts';

/**
 * Maximum number of messages in one step. As STEP_MAX of actions.ts; also in
 * docs/reference/limits.md.
 */
const STEP_MAX = 500;

/** Messages that came this much later than now came before the clock was set back. */
const AHEAD_MIN_MS = MINUTE_MS;

/** Counts what fits and gives the way to do it. */
export async function prepareBulk(
  spool: SpoolInternals,
  action: BulkAction,
  listFilter: ListFilter,
  by: string,
): Promise<Bulk> {
  checkBulkAction(spool, action);
  const { count, filter } = await countBulk(spool, action, listFilter);
  return {
    count,
    filter,
    async *run({ signal } = {}) {
      await auditBulk(spool, { action, filter, count, by });
      let progress = NO_PROGRESS;
      let after: string | undefined;
      do {
        signal?.throwIfAborted();
        const max = count - progress.seen;
        const step = await stepBulk(spool, { action, filter, by, max, after });
        progress = addProgress(progress, step.progress);
        after = step.next;
        yield progress;
      } while (after !== undefined && progress.seen < count);
    },
  };
}

/** How many messages fit a filter, and the filter as it stood at that moment. */
async function countBulk(
  spool: SpoolInternals,
  action: BulkAction,
  listFilter: ListFilter,
): Promise<{ count: number; filter: ListFilter }> {
  const filter =
    (await filterAhead(spool, action, listFilter)) ??
    fixedFilter(withStates(action, listFilter), spool.now());
  const rows = await spool.tally('state', filter);
  // Stores look at a bounded number of messages for what they have no index for. What is done to
  // messages must not end there, so these are gone through.
  const isBounded = needsReading(filter) || rows.some((row) => row.approximate === true);
  const counted = rows.reduce((sum, row) => sum + row.count, 0);
  return { count: isBounded ? await countOneByOne(spool, filter) : counted, filter };
}

/**
 * The filter where the clock was set back since messages came that it fits: without the bound that
 * leaves out what comes later, and for a retry with incoming messages, which are not due then.
 */
async function filterAhead(
  spool: SpoolInternals,
  action: BulkAction,
  listFilter: ListFilter,
): Promise<ListFilter | undefined> {
  if (listFilter.olderThan !== undefined || listFilter.enqueuedBefore !== undefined)
    return undefined;
  const now = spool.now();
  const chosen = withStates(action, listFilter);
  const isRetry = action.kind === 'retry' && chosen !== listFilter;
  const all = isRetry ? { ...chosen, state: RETRIED_AHEAD } : chosen;
  const { enqueuedBefore: _, ...filter } = fixedFilter(all, now);
  const enqueuedAfter = Math.max(now + AHEAD_MIN_MS, filter.enqueuedAfter ?? 0);
  const rows = await spool.tally('state', { ...filter, enqueuedAfter });
  return rows.some(({ count }) => count > 0) ? filter : undefined;
}

async function countOneByOne(spool: SpoolInternals, filter: ListFilter): Promise<number> {
  let count = 0;
  for await (const _ of spool.list(filter)) count += 1;
  return count;
}

/** Puts the whole action on record, before its first step. */
export async function auditBulk(
  spool: SpoolInternals,
  bulk: {
    readonly action: BulkAction;
    readonly filter: ListFilter;
    readonly count: number;
    readonly by: string;
  },
): Promise<void> {
  const { kind, ...details } = bulk.action;
  const { filter, count, by } = bulk;
  await spool.appendAudit({
    by,
    action: `bulk.${kind}`,
    ids: [],
    details: { ...details, filter, count },
  });
}

/** Does the action to the next messages of a fixed filter, in the order they came. */
export async function stepBulk(
  spool: SpoolInternals,
  step: {
    readonly action: BulkAction;
    readonly filter: ListFilter;
    readonly by: string;
    /** Changes at most this many messages. */
    readonly max: number;
    readonly after?: string | undefined;
  },
): Promise<BulkStep> {
  const { action, filter, by, max, after } = step;
  const limit = Math.min(STEP_MAX, max);
  if (limit < 1) return { progress: NO_PROGRESS };
  const page = await spool.page({
    ...filter,
    limit,
    ...(after === undefined ? {} : { after }),
  });
  const ids = page.entries.map(({ envelope }) => envelope.id);
  const results = ids.length === 0 ? [] : await actOn(spool, action, ids, by);
  const progress = addProgress(NO_PROGRESS, progressOf(results));
  return page.next === undefined ? { progress } : { progress, next: page.next };
}

/** Refuses an unknown action. */
function checkBulkAction(spool: SpoolInternals, action: BulkAction): void {
  checkActionNames(action);
  if (action.kind !== 'policy' || spool.policies.has(action.policy)) return;
  throw new RespoolError(
    'policy.unknown',
    `cannot set policy ${show(action.policy)}: known are ${[...spool.policies.keys()].join(', ')}`,
  );
}

function checkActionNames(action: BulkAction): void {
  const names = NAMES[action?.kind];
  if (names === undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(action?.kind)} as "action.kind": allowed is ` +
        Object.keys(NAMES).join(' | '),
    );
  }
  checkNames(`the action "${action.kind}"`, action, ['kind', ...names]);
}

const NAMES: Readonly<Record<BulkAction['kind'], readonly string[]>> = {
  hold: ['reason'],
  release: [],
  retry: [],
  bounce: ['reason'],
  remove: ['hard', 'reason'],
  policy: ['policy'],
};

/**
 * The states an action is for, where the filter names none: to hold or retry a topic means what
 * waits or failed there, not what was delivered and archived last week. Ids and states are taken as
 * they are.
 */
function withStates(action: BulkAction, filter: ListFilter): ListFilter {
  if (filter.state !== undefined || filter.ids !== undefined) return filter;
  const isHard = action.kind === 'remove' && action.hard === true;
  return { ...filter, state: isHard ? ALL_BUT_ACTIVE : STATES_OF[action.kind] };
}

const STATES_OF: Readonly<Record<BulkAction['kind'], readonly State[]>> = {
  hold: ['incoming', 'deferred'],
  release: ['hold'],
  retry: ['deferred', 'hold', 'bounce'],
  bounce: ['incoming', 'deferred', 'hold'],
  remove: ['incoming', 'deferred', 'hold', 'bounce'],
  policy: ['incoming', 'deferred', 'hold'],
};
/** What is incoming and not due came before the clock was set back. */
const RETRIED_AHEAD: readonly State[] = ['incoming', ...STATES_OF.retry];
const ALL_BUT_ACTIVE: readonly State[] = STATES.filter((state) => state !== 'active');

/** The same filter an hour later: ages become times, and what comes after now does not fit. */
function fixedFilter(filter: ListFilter, now: Millis): ListFilter {
  const { olderThan, since, ...rest } = filter;
  const before = olderThan === undefined ? now + 1 : now - durationMs(olderThan, 'olderThan');
  const after = since === undefined ? undefined : now - durationMs(since, 'since');
  const earliest = Math.max(after ?? 0, rest.enqueuedAfter ?? 0);
  return {
    ...rest,
    enqueuedBefore: Math.min(before, rest.enqueuedBefore ?? before),
    ...(earliest === 0 ? {} : { enqueuedAfter: earliest }),
  };
}

/** Does the action to messages by their ids. */
export async function actOn(
  spool: SpoolInternals,
  action: BulkAction,
  ids: readonly string[],
  by: string,
): Promise<ActionResult[]> {
  checkIds(ids);
  checkActionNames(action);
  if (action.kind === 'policy') checkPolicyName(action.policy, spool.policies, ids);
  await spool.open();
  return act(spool.runtime, ids, operatorAction(action), by);
}

function operatorAction(action: BulkAction): OperatorAction {
  switch (action.kind) {
    case 'hold':
      return { kind: 'hold', reason: action.reason ?? 'held by an operator' };
    case 'bounce':
      return { kind: 'bounce', reason: action.reason ?? 'bounced by an operator' };
    case 'remove': {
      const { hard = false, reason = 'removed by an operator' } = action;
      return { kind: 'remove', hard, reason };
    }
    case 'policy':
      return { kind: 'setPolicy', policy: action.policy };
    case 'release':
    case 'retry':
      return { kind: action.kind };
    default:
      return unreachable(action);
  }
}

function progressOf(results: readonly ActionResult[]): BulkProgress {
  const refusals = results.filter(({ result }) => result === 'refused');
  return {
    seen: results.length,
    done: results.filter(({ result }) => result === 'done').length,
    refused: refusals.length,
    unknown: results.filter(({ result }) => result === 'unknown').length,
    refusals,
  };
}

// Which filters a store can only answer by reading messages, and bounds therefore.

/** Whether counts of a filter may stop before the end. */
export function needsReading({ header, text, code, fingerprint }: ListFilter): boolean {
  return [header, text, code, fingerprint].some((condition) => condition !== undefined);
}
