/**
 * health — whether the process is alive, whether it accepts and delivers messages, and if not,
 * why.
 *
 *   facts ─judgeHealth()─▶ { live, ready, checks, reasons, notes }
 *
 * A reason makes it unready. A note is worth knowing and heals by itself: a broker that is away is
 * no reason to send traffic elsewhere, as every other process would find it away too.
 */

import type { Duration } from '../core/duration.ts';
import { checkOneOf } from '../core/limits.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import { systemClock } from '../system/clock.ts';
import { withTimeout } from '../system/wait.ts';

/** Why it is not ready, or what else is wrong; stable words. */
export type HealthCode =
  | 'starting'
  | 'stopping'
  | 'not-running'
  | 'store.unavailable'
  | 'store.full'
  | 'consumers.away'
  | 'relay.waiting'
  | 'relay.down'
  | 'relay.stopped';

/** One thing that is not as it should be. */
export interface HealthReason {
  readonly code: HealthCode;
  readonly text: string;
}

/** One thing that was looked at. */
export interface HealthCheck {
  readonly name: 'engine' | 'store' | 'disk' | 'consumers' | 'relay';
  readonly ok: boolean;
}

/** How it is. */
export interface Health {
  /** Anyone who answers is alive: nothing that heals by itself is a reason to end a process. */
  readonly live: true;
  readonly ready: boolean;
  /** Everything that was looked at. */
  readonly checks: readonly HealthCheck[];
  /** Why it is not ready; empty: it is. */
  readonly reasons: readonly HealthReason[];
  /** What else is wrong. */
  readonly notes: readonly HealthReason[];
}

/** How many consumers of a broker are connected, of how many. */
export interface ConsumerHealth {
  readonly connected: number;
  readonly all: number;
}

/** What the relay of an outbox is doing. */
export interface RelayHealth {
  /** `waiting` for its database, or `sending` whenever there is something to send. */
  readonly state: 'waiting' | 'sending' | 'stopped';
  /** Its breaker: `open` while the target does not answer, `half-open` while one message asks. */
  readonly target: 'closed' | 'open' | 'half-open';
  /** Since when the target does not answer, in milliseconds since the epoch. */
  readonly downSince?: number;
}

const NEEDS = ['consumers', 'relay'] as const;

/** What may be needed to be ready, beside the spool. */
export type HealthNeed = (typeof NEEDS)[number];

/** What is known. */
interface HealthFacts {
  readonly engine: 'running' | 'starting' | 'stopping' | 'not-running';
  /** undefined: not asked for. */
  readonly isStoreAnswering: boolean | undefined;
  /** undefined: unknown. */
  readonly isFull?: boolean;
  /** The store answers, and did not take a message a moment ago. */
  readonly isRefusing?: boolean;
  readonly consumers?: ConsumerHealth | undefined;
  readonly relay?: RelayHealth | undefined;
  readonly needs?: readonly HealthNeed[];
}

const ENGINE_TEXTS = {
  starting: 'the service is starting',
  stopping: 'the service is stopping: it takes nothing new, and ends what has begun',
  'not-running': 'the spool is not started, or it stops',
} as const;

/** Turns what is known into an answer. */
export function judgeHealth(facts: HealthFacts): Health {
  const { engine, isStoreAnswering, isFull, isRefusing, consumers, relay, needs = [] } = facts;
  const checks: HealthCheck[] = [{ name: 'engine', ok: engine === 'running' }];
  const reasons: HealthReason[] = [];
  const notes: HealthReason[] = [];
  const look = (name: HealthCheck['name'], wrong: HealthReason | undefined): void => {
    checks.push({ name, ok: wrong === undefined });
    if (wrong === undefined) return;
    const isNeeded = name === 'store' || name === 'disk' || needs.some((need) => need === name);
    (isNeeded ? reasons : notes).push(wrong);
  };
  if (engine !== 'running') reasons.push({ code: engine, text: ENGINE_TEXTS[engine] });
  if (isStoreAnswering !== undefined) look('store', storeTrouble(isStoreAnswering, isRefusing));
  if (isFull !== undefined) look('disk', isFull ? FULL : undefined);
  if (consumers !== undefined) look('consumers', awayOf(consumers));
  if (relay !== undefined) look('relay', troubleOf(relay));
  return { live: true, ready: reasons.length === 0, checks, reasons, notes };
}

const NO_STORE: HealthReason = {
  code: 'store.unavailable',
  text: 'the store does not answer in time',
};
const REFUSES: HealthReason = {
  code: 'store.unavailable',
  text: 'the store can be read, and did not take a message a moment ago',
};
/** web/routes/health.ts tells it by its code. */
const FULL: HealthReason = {
  code: 'store.full',
  text: 'the disk is full: no new messages can be stored',
};

function storeTrouble(isAnswering: boolean, isRefusing = false): HealthReason | undefined {
  if (!isAnswering) return NO_STORE;
  return isRefusing ? REFUSES : undefined;
}

function awayOf({ connected, all }: ConsumerHealth): HealthReason | undefined {
  if (connected >= all) return undefined;
  const text = `${all - connected} of ${all} consumers are not connected to their broker`;
  return { code: 'consumers.away', text };
}

function troubleOf({ state, target, downSince }: RelayHealth): HealthReason | undefined {
  if (state === 'stopped') return { code: 'relay.stopped', text: 'the relay has stopped' };
  if (state === 'waiting') {
    return { code: 'relay.waiting', text: 'the relay waits for the database of its outbox' };
  }
  if (target === 'closed') return undefined;
  const since = downSince === undefined ? '' : ` since ${new Date(downSince).toISOString()}`;
  return { code: 'relay.down', text: `the target of the relay does not answer${since}` };
}

const HEALTH = {
  spool: {
    kind: 'code',
    type: 'a spool',
    ts: 'HealthSpool',
    about: 'checks whether it is running and its store answers',
  },
  consumers: {
    kind: 'code',
    type: 'a list of consumers',
    ts: 'readonly { readonly isConnected: boolean }[]',
    about: 'checks whether they are connected',
  },
  relay: {
    kind: 'code',
    type: 'a relay',
    ts: "{ readonly load: Pick<RelayHealth, 'target' | 'downSince'> & Running }",
    about: 'checks whether its target answers',
  },
  needs: {
    kind: 'data',
    type: 'a list of `consumers` and `relay`',
    ts: 'readonly HealthNeed[]',
    about: 'which of these make it not ready rather than only a note',
  },
  delivers: {
    kind: 'boolean',
    default: true,
    about: '`false` for a process that only enqueues: its spool is never started',
  },
  within: {
    kind: 'duration',
    type: 'duration, up to 1m',
    min: '1ms',
    max: '1m',
    default: '2s',
    about: 'how long the store may take to answer',
  },
  clock: CLOCK_OPTION,
} as const;

/** Every option of `health()`. */
export const HEALTH_OPTIONS: Readonly<Record<keyof HealthOptions, Option>> = HEALTH;

/** What `health()` looks at; whatever is left out is not looked at. */
export interface HealthOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Checks whether it is running and its store answers. */
  readonly spool?: HealthSpool;
  /** Checks whether they are connected. */
  readonly consumers?: readonly { readonly isConnected: boolean }[];
  /** Checks whether its target answers. */
  readonly relay?: { readonly load: Pick<RelayHealth, 'target' | 'downSince'> & Running };
  /** Which of these make it not ready rather than only a note. */
  readonly needs?: readonly HealthNeed[];
  /** `false` for a process that only enqueues: its spool is never started. Default true. */
  readonly delivers?: boolean;
  /** How long the store may take to answer. Up to 1m; default 2s. */
  readonly within?: Duration;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
}

interface Running {
  readonly isRunning: boolean;
}

/** What is needed of a spool. */
export interface HealthSpool {
  readonly load: Running;
  page(options: { readonly limit: number }): Promise<unknown>;
}

/** Looks at a spool, consumers and a relay of this process, to be answered where you like. */
export async function health(options: HealthOptions): Promise<Health> {
  const { delivers, withinMs } = readOptions({ what: 'health' }, options, HEALTH);
  const { spool, consumers, relay, needs = [], clock = systemClock } = options;
  for (const need of needs) checkOneOf('needs', need, NEEDS);
  const isRunning = spool === undefined || !delivers || spool.load.isRunning;
  return judgeHealth({
    engine: isRunning ? 'running' : 'not-running',
    // A question to a spool that has stopped would open its store again.
    isStoreAnswering:
      spool !== undefined && isRunning
        ? await answersWithin(() => spool.page({ limit: 1 }), withinMs, clock)
        : undefined,
    consumers: consumers === undefined ? undefined : connectedOf(consumers),
    relay: relay === undefined ? undefined : relayOf(relay.load),
    needs,
  });
}

function connectedOf(consumers: readonly { readonly isConnected: boolean }[]): ConsumerHealth {
  const connected = consumers.filter(({ isConnected }) => isConnected).length;
  return { connected, all: consumers.length };
}

function relayOf(load: NonNullable<HealthOptions['relay']>['load']): RelayHealth {
  const { isRunning, target, downSince } = load;
  const since = downSince === undefined ? {} : { downSince };
  return { state: isRunning ? 'sending' : 'stopped', target, ...since };
}

/** Whether a question is answered in time; an error is no answer. */
export function answersWithin(
  ask: () => Promise<unknown>,
  withinMs: number,
  clock: Clock,
): Promise<boolean> {
  const yes = (): boolean => true;
  const no = (): boolean => false;
  // Async: what is thrown at once is no answer either.
  const asked = (async () => ask())();
  return withTimeout(clock, withinMs, asked.then(yes, no), no);
}
