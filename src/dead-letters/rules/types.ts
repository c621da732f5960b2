/**
 * types — a rule that replays dead letters by itself, when their destination is well again; its
 * state on record, and the lease of the process that runs it. The rounds: run.ts.
 *
 *   due ─look─▶ nothing fits ─▶ quiet                       until the next round
 *          └─▶ fits ─health─▶ not well ─▶ waiting           until the next round
 *                        └─▶ plan, canary, rest ─▶ done     until the next round
 *                                              └─▶ stopped  for twice as long each time, up to 1h
 *
 * A round that fails waits like one that was stopped.
 */

import type { Category, CategoryRule } from '../../core/category.ts';
import { type Duration, type Millis, SECOND_MS } from '../../core/duration.ts';
import type { DeadLetters, LetterRoute } from '../../ports/dead-letters.ts';
import type { Clock } from '../../ports/clock.ts';
import type {
  Replay,
  ReplayOperator,
  ReplayOptions,
  ReplaySource,
} from '../../spool/operator/replays.ts';
import { RespoolError } from '../../core/errors.ts';
import type { RecordStore } from '../../ports/record-store.ts';
import { RecordLease } from '../../spool/record-lease.ts';

/** How a configuration writes a rule. */
export interface ReplayRuleConfig {
  // Written by `npm run options`: edit the table of options instead.
  /** Unique; the audit record has `rule:` and the name. */
  readonly name: string;
  /**
   * Which letters: all given conditions must match. `queue` names dead queues, `*` and `?` allowed;
   * without it, the bounced messages of the spool.
   */
  readonly when: {
    /** A group, as `respool dlq groups` shows it. */
    readonly group?: string;
    /** A category, such as `network`. */
    readonly category?: Category;
    /** The code of the last failure. */
    readonly code?: string;
    /** A topic or pattern. */
    readonly topic?: string;
    /** Dead queues by name, with `*` and `?`; default: the spool. */
    readonly queue?: string;
    /** Died longer ago than this. */
    readonly olderThan?: Duration;
  };
  /**
   * When the destination is healthy: its queue exists and is consumed, or a GET of the URL answers
   * 2xx. Default for queues `consumers`; for the spool: the topic is not paused.
   */
  readonly healthy?: 'consumers' | { readonly http: string };
  /**
   * The time between two rounds; after a stopped round twice as long each time, up to 1h. 1s to 1d;
   * default 5m.
   */
  readonly every?: Duration;
  /** Messages per second. 1 to 1,000,000; default 10. */
  readonly rate?: number;
  /**
   * A message that was replayed this many times is parked. 1 to 1,000; default
   * `deadLetters.replaysMax`.
   */
  readonly times?: number;
  /** Messages per round. 1 to 5,000; default 1,000. */
  readonly max?: number;
  /**
   * Letters to send first; the rest follows only when they are delivered (canaries). 0 to 1,000;
   * default 1.
   */
  readonly canary?: number;
}

/** A rule that is checked, with its defaults. */
export interface ReplayRule
  extends Omit<ReplayRuleConfig, 'every' | 'rate' | 'times' | 'max' | 'canary'> {
  readonly every: Duration;
  readonly rate: number;
  readonly times: number;
  readonly max: number;
  readonly canary: number;
}

/** What came of a round. */
export type RoundResult =
  /** Nothing fits. */
  | 'quiet'
  /** The destination is not well, or no attempt of the canaries has ended. */
  | 'waiting'
  | 'done'
  /** The guard of its replay stopped it, or the canaries failed. */
  | 'stopped'
  /** It could not be done at all. */
  | 'failed';

/** The state of a rule, on record as `dlq.rules`. */
export interface RuleState {
  readonly lastAt?: Millis;
  readonly result?: RoundResult;
  readonly because?: string | undefined;
  /** The next round is not before this. */
  readonly nextAt?: Millis;
  /** Rounds in a row that were stopped or failed. */
  readonly failures?: number;
  /** The replays of the last round, and older ones that are not over. */
  readonly replays?: readonly string[];
  /** The last round was interrupted, or its process never recorded how it ended. */
  readonly isInterrupted?: boolean;
  readonly sent?: number;
  /** Letters that may have been sent already: left to people. */
  readonly unsure?: readonly string[];
  /** The process that runs the round, and the end of its lease. */
  readonly runner?: { readonly name: string; readonly until: Millis };
}

/** A place that a rule looks at. */
export interface RulePlace {
  readonly source: ReplaySource;
  readonly letters: DeadLetters;
}

/** What a rule asks before it sends anything. */
export interface HealthQuestion {
  readonly rule: ReplayRule;
  readonly source: ReplaySource;
  /** Where the letters that fit would go, each once. */
  readonly routes: readonly LetterRoute[];
}

/** `well`, or why not. */
export type RuleHealth = 'well' | { readonly why: string };

/** Places that are open for one round. */
export interface OpenPlaces {
  readonly places: readonly RulePlace[];
  close(): Promise<void>;
}

/** How a rule replays; each in the name of the rule. */
export interface RuleHands {
  plan(place: RulePlace, options: ReplayOptions, by: string): Promise<Replay>;
  /** Runs it to its end, or goes on with it; ends early when the signal says so. */
  run(place: RulePlace, id: string, to: RunOrder): Promise<Replay>;
  read(id: string): Promise<Replay | undefined>;
  /** Ids of letters that may have been sent. */
  unsure(id: string): Promise<readonly string[]>;
}

interface RunOrder {
  readonly by: string;
  readonly signal: AbortSignal;
}

/** What a rule reports about a round. */
export interface RuleNews {
  readonly rule: string;
  readonly at: Millis;
  readonly result: RoundResult;
  readonly because?: string;
  readonly replays: readonly string[];
  readonly sent: number;
  /** How many failed again, as far as was heard by the end of the round; absent: none. */
  readonly again?: number;
  readonly nextAt: Millis;
}

/** What rules need. */
export interface RuleTools {
  /** Where the state of rules is kept, and what they do is written down first. */
  readonly operator: (by: string) => Pick<ReplayOperator, 'records' | 'recordAction'>;
  readonly openPlaces: (rule: ReplayRule) => Promise<OpenPlaces>;
  readonly health: (question: HealthQuestion) => Promise<RuleHealth>;
  readonly hands: RuleHands;
  /** The rules for categories of the configuration. */
  readonly categories: readonly CategoryRule[];
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly tell: (news: RuleNews) => void;
  /** What this process is called; no two have the same. */
  readonly runner: string;
}

/** The kind of record that the state of rules is. */
export const RULES_KIND = 'dlq.rules';

/** Length of a runner's lease, without a heartbeat. */
export const RULE_LEASE_MS: number = 60 * SECOND_MS;
const BEAT_MS: number = 10 * SECOND_MS;

/** The state of a rule; nothing is known of one that never ran. */
export async function stateOf(records: RecordStore, rule: string): Promise<RuleState> {
  const found = await records.get(RULES_KIND, rule);
  return found?.value ?? {};
}

/** Who runs it now; undefined if it is not running. */
export function runnerOf({ runner }: RuleState, now: number): RuleState['runner'] {
  return runner !== undefined && runner.until > now ? runner : undefined;
}

interface RuleLeaseOptions {
  readonly records: RecordStore;
  readonly rule: string;
  readonly runner: string;
  readonly clock: Clock;
}

/** Takes the right to run a rule; undefined: another process runs it, or was quicker. */
export function takeRule(parts: RuleLeaseOptions): Promise<RecordLease<RuleState> | undefined> {
  const { records, rule, runner: name, clock } = parts;
  return RecordLease.take<RuleState>({
    records,
    kind: RULES_KIND,
    key: rule,
    what: `the rule "${rule}"`,
    name,
    clock,
    leaseMs: RULE_LEASE_MS,
    beatMs: BEAT_MS,
    marginMs: BEAT_MS,
    now: () => clock.now(),
    read: (record) => record?.value ?? {},
    holderOf: ({ runner }) => runner?.name,
    isHeld: (state, now) => runnerOf(state, now) !== undefined,
    hold: (state, until) => ({ ...state, runner: { name, until } }),
    free: (state) => {
      const { runner: _, ...rest } = state;
      return rest;
    },
    lostError: () => goneError(rule),
  });
}

function goneError(rule: string): RespoolError {
  return new RespoolError(
    'move.refused',
    `cannot continue with the rule "${rule}": there was no sign of life for too long, and ` +
      `another ` +
      'process has taken it over; nothing is to be done',
  );
}
