/**
 * actions — what an operator may do, as one set of functions: used by the spool's own methods
 * and by operator/. Each is written to the audit record before it acts.
 */

import type { Millis } from '../core/duration.ts';
import type { Entry, Envelope, Headers } from '../core/entry.ts';
import { isRespoolError, RespoolError } from '../core/errors.ts';
import type { Retention } from '../core/next-status.ts';
import {
  actionToReach,
  changedHeaders,
  type OperatorAction,
  type OperatorContext,
  operatorMove,
} from '../core/operator.ts';
import { printable } from '../core/failure.ts';
import type { State } from '../core/state.ts';
import { emitArchived, type Events } from '../engine/events.ts';
import type { Change, EntryStore } from '../ports/entry-store.ts';
import { removedBodyRef, type BodyRemover } from './body.ts';
import type { SpoolSource } from './source.ts';

/** What became of one message. */
export interface ActionResult {
  readonly id: string;
  /** `unknown`: there is no such message. `refused`: see why. */
  readonly result: 'done' | 'refused' | 'unknown';
  readonly why?: string;
}

/** What the actions need. */
export interface ActionParts {
  readonly entries: EntryStore;
  readonly source: Pick<SpoolSource, 'noteDue' | 'alarm'>;
  readonly bodyRemover: BodyRemover;
  readonly events: Events;
  /** The time of the store. */
  readonly now: () => Millis;
  readonly retention: Retention;
  /** Whether a bounce handler fits the topic, or may in another process. */
  announces(topic: string): boolean;
}

/** One line of the audit record. */
export interface AuditRecord {
  readonly at: number;
  readonly by: string;
  readonly action: string;
  readonly ids: readonly string[];
  readonly details?: Readonly<Record<string, unknown>>;
}

export const AUDIT_KIND = 'audit';
/**
 * Maximum ids in one audit record, and messages in one step. As STEP_MAX of operator/bulk.ts; also
 * in docs/reference/limits.md.
 */
const STEP_MAX = 500;
/** How often an action that was overtaken looks again. */
const TRIES_MAX = 5;

/** What an action makes of one entry: a change, or why there is none. */
export type PlannedMove =
  | { readonly kind: 'do'; readonly change: Change; readonly onStale?: () => Promise<void> }
  | { readonly kind: 'refused'; readonly text: string };

/** An action as it is audited, and what it makes of each entry. */
export interface PlannedAction {
  readonly action: string;
  readonly details: Readonly<Record<string, unknown>>;
  plan(entry: Entry, context: OperatorContext): PlannedMove | Promise<PlannedMove>;
}

/** Does something to messages, by their ids. */
export function act(
  parts: ActionParts,
  ids: readonly string[],
  action: OperatorAction,
  by: string,
): Promise<ActionResult[]> {
  const { kind, ...details } = action;
  const plan: PlannedAction['plan'] = (entry, context) => {
    const answer = operatorMove(entry, action, context);
    return answer.kind === 'do' ? { kind: 'do', change: changeTo(entry, answer) } : answer;
  };
  return actAs(parts, ids, { action: kind, details, plan }, by);
}

/** The same for an action that is more than a move. */
export async function actAs(
  parts: ActionParts,
  ids: readonly string[],
  planned: PlannedAction,
  by: string,
): Promise<ActionResult[]> {
  const results: ActionResult[] = [];
  for (let from = 0; from < ids.length; from += STEP_MAX) {
    const step = ids.slice(from, from + STEP_MAX);
    const { action, details } = planned;
    await audit(parts, { by, action, ids: step, details });
    results.push(...(await actOn(parts, step, planned, by)));
  }
  return results;
}

/** Writes a line to the audit record; resolves when it is durable. */
export async function audit(
  { entries, now, events }: Pick<ActionParts, 'entries' | 'now' | 'events'>,
  record: Omit<AuditRecord, 'at'>,
): Promise<void> {
  const at = now();
  const { details } = record;
  const [by, action] = [printable(record.by), printable(record.action)];
  const ids = record.ids.map((id) => printable(id));
  const shown = details === undefined ? {} : { details: printableDetails(details) };
  await entries.records.append(AUDIT_KIND, { at, by, action, ids, ...shown });
  events.emit({ at, kind: 'operator', action, by, ids });
}

function printableDetails(details: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = Object.entries(details).map(([name, value]) => [printable(name), clean(value)]);
  return Object.fromEntries(entries) as Record<string, unknown>;
}

function clean(value: unknown): unknown {
  if (typeof value === 'string') return printable(value);
  if (Array.isArray(value)) return value.map((one) => clean(one));
  if (typeof value !== 'object' || value === null) return value;
  return printableDetails(value as Record<string, unknown>);
}

/** Moves one message from a state to another, or throws `move.refused`. */
export async function move(
  parts: ActionParts,
  id: string,
  { from, to, reason }: { readonly from: State; readonly to: State; readonly reason: string },
  by: string,
): Promise<void> {
  const entry = await needEntry(parts, id);
  const action = actionToReach(from, to, reason);
  if (action === undefined) {
    throw new RespoolError(
      'move.refused',
      `cannot move message "${id}" from ${from} to ${to}: no operator's action leads there`,
    );
  }
  if (entry.status.state !== from) {
    throw new RespoolError(
      'move.refused',
      `cannot move message "${id}" from ${from} to ${to}: it is in ${entry.status.state}`,
    );
  }
  const [result] = await act(parts, [id], action, by);
  throwUnlessDone(result);
}

/** Changes headers; null takes one away. With a revision: only if the message is still at it. */
export async function changeHeaders(
  parts: ActionParts,
  id: string,
  change: {
    readonly headers: Readonly<Record<string, string | null>>;
    readonly check: (headers: Headers) => Headers;
    readonly revision: number | undefined;
  },
  by: string,
): Promise<'done' | 'stale'> {
  const entry = await needEntry(parts, id);
  if (change.revision !== undefined && change.revision !== entry.status.revision) return 'stale';
  const merged = changedHeaders(entry.envelope.headers, { headers: change.headers });
  const envelope: Envelope = { ...entry.envelope, headers: change.check(merged) };
  const { retention } = parts;
  const answer = operatorMove(entry, { kind: 'touch' }, { now: parts.now(), by, retention });
  if (answer.kind === 'refused') throw new RespoolError('move.refused', answer.text);
  await audit(parts, {
    by,
    action: 'setHeaders',
    ids: [id],
    details: { headers: change.headers },
  });
  const [done] = await parts.entries.commit([{ ...changeTo(entry, answer), envelope }]);
  return done ?? 'stale';
}

/** Refuses the name of a policy that is not among these. */
export function checkPolicyName(
  policy: string,
  policies: ReadonlyMap<string, unknown>,
  ids: readonly string[],
): void {
  if (policies.has(policy)) return;
  const whose = ids.length === 1 ? `message "${ids[0]}"` : `${ids.length} messages`;
  throw new RespoolError(
    'policy.unknown',
    `cannot set policy "${policy}" of ${whose}: known are ${[...policies.keys()].join(', ')}`,
  );
}

/** Throws what a single-message action came to, unless it was done. */
export function throwUnlessDone(result: ActionResult | undefined): void {
  if (result === undefined || result.result === 'done') return;
  if (result.result === 'unknown') throw unknown(result.id);
  throw new RespoolError('move.refused', result.why ?? `cannot change message "${result.id}"`);
}

/** The entry, or `message.unknown`. */
export async function needEntry(
  { entries }: Pick<ActionParts, 'entries'>,
  id: string,
): Promise<Entry> {
  const entry = await entries.get(id);
  if (entry === undefined) throw unknown(id);
  return entry;
}

function unknown(id: string): RespoolError {
  return new RespoolError(
    'message.unknown',
    `there is no message "${id}"; a list shows what there is`,
  );
}

async function actOn(
  parts: ActionParts,
  ids: readonly string[],
  planned: PlannedAction,
  by: string,
): Promise<ActionResult[]> {
  const results = new Map<string, ActionResult>();
  let open = [...new Set(ids)];
  for (let round = 0; open.length > 0 && round < TRIES_MAX; round += 1) {
    open = await tryOnce(parts, open, planned, by, results);
  }
  const overtaken = 'it kept changing while we tried; try again';
  return ids.map((id) => results.get(id) ?? { id, result: 'refused', why: overtaken });
}

/** One try for each; the ids that were overtaken are returned, to be looked at again. */
async function tryOnce(
  parts: ActionParts,
  ids: readonly string[],
  planned: PlannedAction,
  by: string,
  results: Map<string, ActionResult>,
): Promise<string[]> {
  const { entries, retention } = parts;
  const found = await Promise.all(ids.map((id) => readable(entries, id)));
  // Asked after the look, not before: a clock set back in between would end leases that still run.
  const now = parts.now();
  const doing: (Extract<PlannedMove, { kind: 'do' }> & { readonly entry: Entry })[] = [];
  for (const [at, entry] of found.entries()) {
    const id = ids[at] ?? '';
    if (entry === undefined) {
      results.set(id, { id, result: 'unknown' });
      continue;
    }
    if ('why' in entry) {
      results.set(id, { id, result: 'refused', why: entry.why });
      continue;
    }
    const announces = parts.announces(entry.envelope.topic);
    const answer = await planned.plan(entry, { now, by, retention, announces });
    if (answer.kind === 'do') doing.push({ ...answer, entry });
    else results.set(id, { id, result: 'refused', why: answer.text });
  }
  const answers = await entries.commit(doing.map((one) => one.change));
  const stale: string[] = [];
  for (const [at, { entry, change, onStale }] of doing.entries()) {
    const { id } = change;
    if (answers[at] !== 'done') {
      await onStale?.();
      stale.push(id);
      continue;
    }
    results.set(id, { id, result: 'done' });
    afterwards(parts, entry, change);
    tell(parts, entry, change, by);
  }
  return stale;
}

/** The entry, or why it cannot be read: one damaged entry must not stop what is done to others. */
async function readable(
  entries: EntryStore,
  id: string,
): Promise<Entry | { readonly why: string } | undefined> {
  try {
    return await entries.get(id);
  } catch (error) {
    if (isRespoolError(error, 'store.corrupt')) return { why: error.message };
    throw error;
  }
}

/** As `#afterwards` of source.ts, which follows a verdict. */
function afterwards({ bodyRemover, source }: ActionParts, entry: Entry, change: Change): void {
  const { to, bodyRef } = change;
  if (bodyRef !== undefined) bodyRemover.add(bodyRef, to === 'remove' ? 'removed' : 'replaced');
  if (to !== 'remove' && to.dueAt !== null && to.state !== 'archived') source.noteDue(to.dueAt);
  // It may be the turn of another now; which one, only the store knows.
  if (entry.envelope.orderKey !== undefined) source.alarm();
}

/** One that was archived before has not come to it now. */
function tell({ events, now }: ActionParts, entry: Entry, { to }: Change, by: string): void {
  const { id, topic } = entry.envelope;
  if (entry.status.state !== 'archived') emitArchived(events, entry.envelope, to);
  if (to !== 'remove' || !events.hears('removed')) return;
  events.emit({ at: now(), kind: 'removed', id, topic, by });
}

/** The guarded write of a move. */
export function changeTo(
  { envelope: present, status }: Entry,
  { to, envelope }: Pick<Change, 'to' | 'envelope'>,
): Change {
  return {
    id: present.id,
    revision: status.revision,
    to,
    ...(envelope === undefined ? {} : { envelope }),
    ...(status.holder === undefined ? {} : { holder: status.holder }),
    ...(to === 'remove' ? removedBodyRef(present) : {}),
  };
}
