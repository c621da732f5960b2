/**
 * operator — the control plane: what an operator may ask and do, in one operator's name.
 *
 * Two implement it: spool-operator.ts over a spool in this process, and the client of the HTTP API.
 * Commands and screens are written against it, so each works on a store directly and through a
 * service.
 */

import type { Millis } from '../../core/duration.ts';
import type { Entry } from '../../core/entry.ts';
import type { EventKind, EventOf, MissedEvents, SpoolEvent } from '../../core/event.ts';
import type { Forecast } from '../../core/forecast.ts';
import type { RetryPolicy } from '../../core/policy.ts';
import type { State } from '../../core/state.ts';
import type { EngineLoad } from '../../engine/parts.ts';
import type { KeyHead, ListPage, TallyBy, TallyRow } from '../../ports/entry-store.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import type { EnqueueResult } from '../enqueue.ts';
import type { ActionResult, AuditRecord } from '../actions.ts';
import type { CleanupResult } from '../caretaker.ts';
import type { CheckOptions, CheckReport } from '../check.ts';
import type { ListFilter, ListOptions, PageOptions } from '../list.ts';
import type { Message } from '../message.ts';
import type { Pause } from '../pauses.ts';
import type { RekeyOptions, RekeyProgress } from '../rekey.ts';
import type { ReplayOrder } from '../replay.ts';
import type { KeptCopy } from '../../ports/dead-letters.ts';

/**
 * The control plane: what an operator can see and do, in one name that the audit record keeps.
 *
 * Actions take the ids of messages and resolve to a result for each, or a filter and resolve to
 * totals; `prepare` counts what a filter matches before anything is done. An empty filter is
 * refused: `{ topic: '#' }` is every message.
 *
 * @example
 * const operator = spool.operator({ by: 'ops' });
 * await operator.hold([id], { reason: 'wrong address' });
 * await operator.retry({ topic: 'orders.#', state: 'bounce' });
 */
export interface Operator {
  /** The name that is written into the audit record. */
  readonly by: string;
  /** Stores a message, as `spool.enqueue`. */
  enqueue(message: Message): Promise<EnqueueResult>;
  /** Stores many in one write. */
  enqueueMany(messages: readonly Message[]): Promise<EnqueueResult[]>;
  /** The message's envelope and status, or undefined. */
  get(id: string): Promise<MessageView | undefined>;
  /** The body as a stream; `message.unknown`, `body.missing` or `body.corrupt` otherwise. */
  body(id: string): Promise<AsyncIterable<Uint8Array>>;
  /** Goes through messages, page by page, stable while things move. */
  list(options?: ListOptions): AsyncGenerator<MessageView>;
  /** One page of a list. */
  page(options?: PageOptions): Promise<MessagePage>;
  /** How many messages are in each state. */
  count(): Promise<Record<State, number>>;
  /** Counts by state, topic, destination or failure fingerprint. */
  tally(by: TallyBy, filter?: ListFilter): Promise<readonly TallyRow[]>;
  /**
   * The first ones of order keys behind which others wait, held and deferred ones first; at most
   * 500, default 100. `config.invalid` where the store keeps no order.
   */
  keyHeads(max?: number): Promise<readonly KeyHead[]>;
  /** Messages on hold are not attempted until they are released. */
  hold(ids: readonly string[], options?: ReasonOptions): Promise<ActionResult[]>;
  hold(filter: ListFilter, options?: ReasonOptions): Promise<BulkProgress>;
  /** Ends a hold: they go on as incoming, or as a notice. */
  release(ids: readonly string[]): Promise<ActionResult[]>;
  release(filter: ListFilter): Promise<BulkProgress>;
  /** Due at once; bounced and archived ones start a new round, without an expiry that is over. */
  retry(ids: readonly string[]): Promise<ActionResult[]>;
  retry(filter: ListFilter): Promise<BulkProgress>;
  /** Gives them up: they bounce, and their bounce is announced. */
  bounce(ids: readonly string[], options?: ReasonOptions): Promise<ActionResult[]>;
  bounce(filter: ListFilter, options?: ReasonOptions): Promise<BulkProgress>;
  /** To the archive, where they can be retried for a while, or with `hard` for good. */
  remove(ids: readonly string[], options?: RemoveOptions): Promise<ActionResult[]>;
  remove(filter: ListFilter, options?: RemoveOptions): Promise<BulkProgress>;
  /** Another policy, by a registered name; `policy.unknown` otherwise. */
  setPolicy(ids: readonly string[], policy: string): Promise<ActionResult[]>;
  setPolicy(filter: ListFilter, policy: string): Promise<BulkProgress>;
  /** Moves one message from a state to another; `move.refused` says why not. */
  move(id: string, move: MoveOptions): Promise<void>;
  /** Changes headers (null removes one). With a revision, `stale` if the message moved on. */
  setHeaders(
    id: string,
    headers: Readonly<Record<string, string | null>>,
    options?: SetHeadersOptions,
  ): Promise<'done' | 'stale'>;
  /**
   * Sends what bounced, is archived or held once more as part of an operation, in a new round of
   * attempts, and raises the counter of replays; headers, topic and body may be changed on the way.
   */
  replay(ids: readonly string[], order: ReplayOrder): Promise<ActionResult[]>;
  /** The policies messages can name. */
  policies(): Promise<readonly NamedPolicy[]>;
  /**
   * Counts what an action would touch; nothing is done before `run`. A filter without states or ids
   * means those the action is for: archived messages only when it names them.
   */
  prepare(action: BulkAction, filter: ListFilter): Promise<Bulk>;
  /** Stops delivery of a topic or pattern in every process; `#` is everything. */
  pause(topic: string): Promise<void>;
  /** Ends the pause of this very pattern. */
  resume(topic: string): Promise<void>;
  /** What is paused, by which operator and since when. */
  pauses(): Promise<readonly Pause[]>;
  /** What operators did, oldest first, above this sequence; at most 1,000, default 100. */
  audit(after?: number, max?: number): Promise<readonly (AuditRecord & { sequence: number })[]>;
  /** Writes what is about to be done into the audit record; durable when it resolves. */
  recordAction(action: string, details: Readonly<Record<string, unknown>>): Promise<void>;
  /** Stores copies as archived, of what is removed or changed elsewhere; durable then. */
  keep(copies: readonly KeptCopy[]): Promise<void>;
  /** Small durable facts beside the messages; only kinds that begin with `dlq.` or `alert.`. */
  readonly records: RecordStore;
  /** The spool in numbers. */
  stats(): Promise<Stats>;
  /** Messages by topic or destination and age. */
  shape(options?: ShapeOptions): Promise<Shape>;
  /** Checks every entry and body; repairs on request. A service reports progress each second. */
  check(options?: CheckOptions): Promise<CheckReport>;
  /**
   * Brings every body, and every sealed entry, to the current encryption while messages are
   * delivered; audited with its count before it begins. It can be stopped and run again.
   */
  rekey(options?: RekeyOptions): Promise<RekeyProgress>;
  /** One round of the caretaker now: retention, bodies without an entry, unhandled messages. */
  cleanUp(): Promise<CleanupResult>;
  /** Reports a queue that was swept to listeners there; nothing else comes of it. */
  tellSweep(swept: SweptQueue): Promise<void>;
  /** What happens in the process that delivers, until the signal fires. */
  events(options: EventOptions): AsyncIterable<SerializedEvent>;
}

/** A message without its body, and what the process that was asked knows of it. */
export interface MessageView extends Pick<Entry, 'envelope' | 'status'> {
  /** It waits, and this process has handlers or routes, none of them for its topic. */
  readonly unhandled?: true;
}

/** One page of messages. */
export interface MessagePage extends Omit<ListPage, 'entries'> {
  readonly entries: readonly MessageView[];
}

/** A queue that was swept, or could not be. */
export type SweptQueue = Omit<EventOf<'sweep'>, 'at' | 'kind'>;

/** A policy under its name. */
export interface NamedPolicy {
  readonly name: string;
  readonly policy: RetryPolicy;
}

/** What can be done to every message of a filter. */
export type BulkAction =
  | ({ readonly kind: 'hold' | 'bounce' } & ReasonOptions)
  | { readonly kind: 'release' | 'retry' }
  | ({ readonly kind: 'remove' } & RemoveOptions)
  | { readonly kind: 'policy'; readonly policy: string };

/** An action over a filter, counted and not yet done. */
export interface Bulk {
  /** How many messages fit the filter now; at most as many are touched. */
  readonly count: number;
  /** The filter as it stood at the count: ages are times, and what came later does not fit. */
  readonly filter: ListFilter;
  /** Does it, with the progress after each step. What came after `prepare` is not touched. */
  run(options?: { readonly signal?: AbortSignal }): AsyncIterable<BulkProgress>;
}

/** An operator in the process of the spool: `spool.operator({ by })`. */
export interface SpoolOperator extends Operator {
  /** Reports to listeners of the spool what was done beside it: a sweep, a replay, an alert. */
  emit(event: SpoolEvent): void;
}

/** An operator for the HTTP service, which does a bulk action in steps, one for each request. */
export interface ServiceOperator extends SpoolOperator {
  /** Writes action, filter and count into the audit record; before the first step. */
  beginBulk(action: BulkAction, bulk: Pick<Bulk, 'count' | 'filter'>): Promise<void>;
  /** The next messages of a prepared filter, at most 500; goes on at `next` of the step before. */
  stepBulk(
    action: BulkAction,
    step: { readonly filter: ListFilter; readonly max: number; readonly after?: string },
  ): Promise<BulkStep>;
}

/** What one step of a bulk action came to. */
export interface BulkStep {
  readonly progress: BulkProgress;
  /** Where the next step goes on; absent when this was the last. */
  readonly next?: string;
}

/** How far a bulk action is, in messages. */
export interface BulkProgress {
  readonly seen: number;
  readonly done: number;
  readonly refused: number;
  /** Gone between the look and the action. */
  readonly unknown: number;
  /** The first refusals, at most ten. */
  readonly refusals: readonly ActionResult[];
}

/** The spool in numbers. */
export interface Stats {
  readonly at: Millis;
  readonly states: Readonly<Record<State, StateStats>>;
  /** When the next waiting message is due, past or future; null when none waits. */
  readonly nextDueAt: Millis | null;
  readonly paused: readonly Pause[];
  /** Only where the asked process delivers. */
  readonly load?: EngineLoad;
  /** Only where the asked process delivers: what went through it lately. */
  readonly flow?: Throughput;
  /** Only where the asked process delivers: where the backlog goes at the rates of that flow. */
  readonly forecast?: Forecast;
}

/** The messages of one state. */
export interface StateStats {
  readonly count: number;
  /** When the oldest of them was enqueued; null when there is none or it is costly to find. */
  readonly oldestAt: Millis | null;
  readonly approximate?: true;
}

/** What went through an engine within a window that ends now. */
export interface Throughput {
  /** How long the window is; shorter than a minute only after a start. */
  readonly windowMs: number;
  readonly accepted: number;
  readonly delivered: number;
  readonly deferred: number;
  readonly bounced: number;
  readonly held: number;
  /** Time in the handler of what was delivered; null when nothing was. */
  readonly tookMs: Spread | null;
  /** From the enqueue to the delivery. */
  readonly ageMs: Spread | null;
}

/** Where most values are. */
export interface Spread {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
}

/** What a shape is made of. */
export interface ShapeOptions {
  /** Default `topic`. */
  readonly by?: 'topic' | 'destination';
  /** Which messages; default what waits: incoming, active and deferred. */
  readonly filter?: ListFilter;
}

/** Messages by topic or destination and age: where it is that a spool fills up. */
export interface Shape {
  readonly at: Millis;
  readonly by: 'topic' | 'destination';
  /** The upper end of each age but the last, which is open. */
  readonly boundsMs: readonly number[];
  /** Largest first, at most 500. */
  readonly rows: readonly ShapeRow[];
  readonly total: ShapeRow;
}

/** One line of a shape: as many counts as bounds, and one more. */
export interface ShapeRow {
  readonly key: string;
  readonly total: number;
  readonly counts: readonly number[];
}

/** What to hear of, and until when. */
export interface EventOptions {
  readonly signal: AbortSignal;
  /** Default all. */
  readonly kinds?: readonly EventKind[];
}

/** An event as it is sent to another process: an error is its text and its code. */
export type SerializedEvent =
  | Exclude<SpoolEvent, { readonly kind: 'trouble' }>
  | {
      readonly at: Millis;
      readonly kind: 'trouble';
      readonly doing: string;
      readonly error: string;
      /** That of the error, if it has one. */
      readonly code?: string;
    }
  /** Sent instead of what a slow listener missed. */
  | MissedEvents;

// How to act on messages and how to check a store.

/** Why something is done to messages. */
export interface ReasonOptions {
  /** Shown with the message and in the audit record. */
  readonly reason?: string | undefined;
}

/** How to remove. */
export interface RemoveOptions extends ReasonOptions {
  /** Removes it for good, body and all; default false. */
  readonly hard?: boolean | undefined;
}

/** From where to where. */
export interface MoveOptions extends ReasonOptions {
  /** The state it must be in. */
  readonly from: State;
  readonly to: State;
}

/** How to change headers. */
export interface SetHeadersOptions {
  /** Only if the message is still at this revision. */
  readonly revision?: number | undefined;
}
