/**
 * sim-ledger — what really happened, recorded outside of everything under test: every enqueue and
 * its result, every claim, every start of a handler, every outcome, every audited action.
 */

import type { Entry, Status } from '../../core/entry.ts';
import type { Lane } from '../../core/state.ts';
import type { SimProcess } from './process.ts';

/** The header that names the enqueue of a message. */
export const NUMBER_HEADER = 'x-sim';

/** How a message behaves when it is handled. */
export type HandlerBehaviour = 'calm' | 'flaky' | 'bad' | 'picky' | 'killer' | 'slow' | 'probe';

/** One enqueue as its producer meant it. */
export interface Invocation {
  readonly number: number;
  readonly topic: string;
  readonly behaviour: HandlerBehaviour;
  readonly digest: string;
  /** `unknown`: it failed, but may have had its effect. */
  answer: 'open' | 'ok' | 'duplicate' | 'unknown' | 'aborted';
  /** The id it returned. */
  id?: string;
}

/** What a handler said. */
export type SimAnswer =
  | { readonly kind: 'delivered' }
  | { readonly kind: 'retryable'; readonly afterMs?: number }
  | { readonly kind: 'permanent' }
  | { readonly kind: 'postponed'; readonly delayMs: number }
  | { readonly kind: 'held' }
  | { readonly kind: 'trouble' }
  | { readonly kind: 'outage' };

/** One claim of a message, as the data shows it. */
export interface ClaimFact {
  readonly id: string;
  readonly process: SimProcess;
  readonly holder: string;
  readonly fence: string;
  readonly lane: Lane;
  /** The attempt's number in its lane. */
  readonly attempt: number;
  /** What it was claimed from; undefined for a hand-off. */
  readonly before: Status | undefined;
  /** Claimed by its id, for a handler of the moment: outside of routes and slots. */
  readonly isSingle: boolean;
  /** When its lease ends, counted from when it was asked for and kept (virtual milliseconds). */
  leaseEndsAtMs: number;
  /** The same, as it was at first. */
  readonly firstLeaseEndsAtMs: number;
  startedAtMs?: number;
  said?: SimAnswer;
  /** Another claim of this process has the same fence: its handlers cannot be distinguished. */
  isTwin: boolean;
  isAborted: boolean;
  isSettled: boolean;
}

/** Everything known of one message. */
export interface MessageHistory {
  readonly id: string;
  readonly invocation: Invocation;
  readonly entry: Entry;
  /** Where its insert came among all. */
  readonly seq: number;
  /** A delivery handler of it was started. */
  hasStarted: boolean;
  /** An operator changed it, or a power cut brought it back: its place in its key is lost. */
  isMoved: boolean;
  /** An enqueue returned its id as ours. */
  isAccepted: boolean;
  /** Why there need not be an entry any more. */
  ended?: string;
  readonly claims: Map<string, ClaimFact>;
  /** Effects in the outside world. */
  effects: number;
  /** Losses and replays, each of which may have led to one more effect. */
  excuses: number;
  /** Starts of the present round of attempts that were not given back. */
  counted: number;
  /** What power cuts may have uncounted. */
  slack: number;
  /** Acts of operators that may lead to one attempt more. */
  grants: number;
  /** Audited actions that were not carried out yet. */
  readonly audits: Audit[];
}

/** One line of the audit record, for one message. */
export interface Audit {
  readonly action: string;
  readonly process: SimProcess;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The books of one world. */
export class SimLedger {
  readonly histories: Map<string, MessageHistory> = new Map();
  readonly invocations: Invocation[] = [];
  /** Paused topic patterns, and since when. */
  readonly pausedSinceMs: Map<string, number> = new Map();
  /** Patterns that were paused at any time: a process learns of it late. */
  readonly everPaused: Set<string> = new Set();
  starts = 0;
  notices = 0;
  readonly #audits = new Map<string, Audit[]>();

  invoke(facts: Omit<Invocation, 'number' | 'answer'>): Invocation {
    const invocation: Invocation = { ...facts, number: this.invocations.length, answer: 'open' };
    this.invocations.push(invocation);
    return invocation;
  }

  /** The enqueue that made an entry. */
  invocationOf(entry: Entry): Invocation | undefined {
    return this.invocations[Number(entry.envelope.headers[NUMBER_HEADER] ?? Number.NaN)];
  }

  /** Opens the book of a message that was stored. */
  open(entry: Entry, invocation: Invocation, seq: number): MessageHistory {
    const { id } = entry.envelope;
    const former = this.histories.get(id);
    const history: MessageHistory = {
      id,
      invocation,
      entry,
      seq,
      hasStarted: false,
      isMoved: false,
      isAccepted: false,
      // A late handler of a former message of this id still finds its claim.
      claims: former?.claims ?? new Map(),
      effects: 0,
      excuses: 0,
      counted: 0,
      slack: 0,
      grants: 0,
      audits: this.#audits.get(id) ?? [],
    };
    // An id that was removed for good may be used again; late handlers of the first are excused.
    if (former !== undefined) history.excuses = former.effects + former.claims.size;
    this.#audits.set(id, history.audits);
    this.histories.set(id, history);
    return history;
  }

  audited(id: string, audit: Audit): void {
    const audits = this.#audits.get(id) ?? [];
    audits.push(audit);
    this.#audits.set(id, audits);
  }

  claim(id: string, holder: string): ClaimFact | undefined {
    return this.histories.get(id)?.claims.get(holder);
  }

  claimed(
    history: MessageHistory,
    process: SimProcess,
    status: Status,
    {
      before,
      leaseEndsAtMs,
      isSingle = false,
    }: Pick<ClaimFact, 'before' | 'leaseEndsAtMs'> & Partial<Pick<ClaimFact, 'isSingle'>>,
  ): void {
    const { holder = '', lane, attempts, notices, revision } = status;
    const fence = `${history.id}:${revision}`;
    let isTwin = false;
    for (const other of history.claims.values()) {
      if (other.process !== process || other.fence !== fence) continue;
      other.isTwin = true;
      isTwin = true;
    }
    history.claims.set(holder, {
      id: history.id,
      process,
      holder,
      fence,
      lane,
      attempt: lane === 'delivery' ? attempts : notices,
      before,
      leaseEndsAtMs,
      firstLeaseEndsAtMs: leaseEndsAtMs,
      isSingle,
      isTwin,
      isAborted: false,
      isSettled: false,
    });
  }

  /**
   * The claim behind a handler that starts: of this process, with this fence, not started yet. One
   * that is in force goes before one that was forgotten.
   */
  startable(
    process: SimProcess,
    { id, fence }: { readonly id: string; readonly fence: string },
    holder: string | undefined,
  ): ClaimFact | undefined {
    let found: ClaimFact | undefined;
    for (const claim of this.histories.get(id)?.claims.values() ?? []) {
      const isIts = claim.process === process && claim.fence === fence;
      if (!isIts || claim.startedAtMs !== undefined) continue;
      if (claim.holder === holder) return claim;
      found = claim;
    }
    return found;
  }
}
