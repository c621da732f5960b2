/**
 * control — what an operator may ask and do, in one operator's name.
 *
 * The same functions as the spool's own, with the name in every audit record.
 */

import type { Entry } from '../core/entry.ts';
import type { State } from '../core/state.ts';
import type { ListPage, TallyBy, TallyRow } from '../ports/entry-store.ts';
import type { ActionResult, AuditRecord } from '../spool/actions.ts';
import type { CheckReport } from '../spool/check.ts';
import type { ListFilter, PageOptions } from '../spool/list.ts';
import type { Spool } from '../spool/spool.ts';

/** An operator's desk. */
export interface Control {
  /** Whose name is written into the audit record. */
  readonly by: string;
  get(id: string): Promise<Pick<Entry, 'envelope' | 'status'> | undefined>;
  page(options?: PageOptions): Promise<ListPage>;
  count(): Promise<Record<State, number>>;
  tally(by: TallyBy, filter?: ListFilter): Promise<readonly TallyRow[]>;
  hold(ids: readonly string[], reason?: string): Promise<ActionResult[]>;
  release(ids: readonly string[]): Promise<ActionResult[]>;
  retryNow(ids: readonly string[]): Promise<ActionResult[]>;
  bounce(ids: readonly string[], reason?: string): Promise<ActionResult[]>;
  remove(
    ids: readonly string[],
    options?: { readonly hard?: boolean; readonly reason?: string },
  ): Promise<ActionResult[]>;
  setPolicy(id: string, policy: string): Promise<void>;
  pause(topic?: string): Promise<void>;
  resume(topic?: string): Promise<void>;
  audit(after?: number, max?: number): Promise<readonly (AuditRecord & { sequence: number })[]>;
  check(options?: { readonly repair?: boolean }): Promise<CheckReport>;
}

/** A desk over a spool, for the operator of this name. */
export function createControl(spool: Spool, { by }: { readonly by: string }): Control {
  return {
    by,
    get: (id) => spool.get(id),
    page: (options) => spool.page(options),
    count: () => spool.count(),
    tally: (what, filter) => spool.tally(what, filter),
    hold: (ids, reason) => spool.hold(ids, reason, by),
    release: (ids) => spool.release(ids, by),
    retryNow: (ids) => spool.retryNow(ids, by),
    bounce: (ids, reason) => spool.bounce(ids, reason, by),
    remove: (ids, options) => spool.remove(ids, { ...options, by }),
    setPolicy: (id, policy) => spool.setPolicy(id, policy, by),
    pause: (topic) => spool.pause({ by, ...(topic === undefined ? {} : { topic }) }),
    resume: (topic) => spool.resume({ by, ...(topic === undefined ? {} : { topic }) }),
    audit: (after, max) => spool.audit(after, max),
    check: (options) => spool.check(options),
  };
}
