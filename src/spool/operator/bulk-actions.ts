/**
 * bulk-actions — the actions that take ids or a filter, the same over a spool and over HTTP.
 *
 * Imports little: the client of the HTTP API has to start quickly.
 */

import { RespoolError } from '../../core/errors.ts';
import type { ActionResult } from '../actions.ts';
import type { ListFilter } from '../list.ts';
import type {
  Bulk,
  BulkAction,
  BulkProgress,
  Operator,
  ReasonOptions,
  RemoveOptions,
} from './operator.ts';

/** Refusals that are shown, at most: promised by `BulkProgress`, and so by the HTTP API. */
const REFUSALS_MAX = 10;

/** Nothing done yet. */
export const NO_PROGRESS: BulkProgress = { seen: 0, done: 0, refused: 0, unknown: 0, refusals: [] };

/** The two progresses together. */
export function addProgress(one: BulkProgress, other: BulkProgress): BulkProgress {
  return {
    seen: one.seen + other.seen,
    done: one.done + other.done,
    refused: one.refused + other.refused,
    unknown: one.unknown + other.unknown,
    refusals: [...one.refusals, ...other.refusals].slice(0, REFUSALS_MAX),
  };
}

/** What the actions of an operator stand on: one for ids, one for filters. */
interface ActionBasis {
  readonly onIds: (ids: readonly string[], action: BulkAction) => Promise<ActionResult[]>;
  readonly prepare: (action: BulkAction, filter: ListFilter) => Promise<Bulk>;
}

type BulkActions = Pick<
  Operator,
  'bounce' | 'hold' | 'prepare' | 'release' | 'remove' | 'retry' | 'setPolicy'
>;

/** The actions of an operator that take ids or a filter; the same over a spool and over HTTP. */
export function bulkActions({ onIds, prepare }: ActionBasis): BulkActions {
  /** Typed once: ids lead to a result for each, a filter to totals. */
  function on<Option>(actionFor: (option?: Option) => BulkAction): {
    (ids: readonly string[], option?: Option): Promise<ActionResult[]>;
    (filter: ListFilter, option?: Option): Promise<BulkProgress>;
  } {
    function doIt(ids: readonly string[], option?: Option): Promise<ActionResult[]>;
    function doIt(filter: ListFilter, option?: Option): Promise<BulkProgress>;
    async function doIt(which: readonly string[] | ListFilter, option?: Option): Promise<unknown> {
      const action = actionFor(option);
      if (typeof which !== 'object' || which === null || isList(which)) {
        return onIds(which, action);
      }
      checkNotEmpty(which);
      let progress = NO_PROGRESS;
      for await (const now of (await prepare(action, which)).run()) progress = now;
      return progress;
    }
    return doIt;
  }
  return {
    prepare,
    hold: on((options?: ReasonOptions) => ({ kind: 'hold', ...options })),
    release: on(() => ({ kind: 'release' })),
    retry: on(() => ({ kind: 'retry' })),
    bounce: on((options?: ReasonOptions) => ({ kind: 'bounce', ...options })),
    remove: on((options?: RemoveOptions) => ({ kind: 'remove', ...options })),
    setPolicy: on((policy?: string) => ({ kind: 'policy', policy: policy as string })),
  };
}

/** Whether a filter leaves nothing out: an empty text or prefix is in every message. */
export function isEmptyFilter(filter: ListFilter): boolean {
  return Object.values(filter).every((value) => value === undefined || value === '');
}

/** An empty filter would act on every message: that has to be asked for, not left out. */
function checkNotEmpty(filter: ListFilter): void {
  if (!isEmptyFilter(filter)) return;
  throw new RespoolError(
    'config.invalid',
    "cannot act without a filter: give one, or { topic: '#' } for all messages",
  );
}

/** Whether these are ids; what is neither list nor filter is refused as a list. */
function isList(which: readonly string[] | ListFilter): which is readonly string[] {
  return Array.isArray(which);
}
