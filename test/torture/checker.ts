/**
 * checker — compares what the ledger saw with what is in the stores afterwards.
 *
 *   lost        accepted, without its effect, and nowhere to be found
 *   unexpected  an effect, or an entry, that nobody enqueued
 *   corrupt     other bytes than were accepted
 *   duplicated  final effects beyond the first, measured against the bound
 *   resurrected settled as delivered, or removed, as its process was told; and there again later
 *
 * Pure. Every suite with a ledger ends here.
 */
import type { State } from 'respool';
import type { Effect, EffectKind, Facts, Written } from './ledger.ts';

/** An entry that was found in the store afterwards. */
export interface Found {
  readonly key: string;
  readonly state: State;
  /** The code of why it is where it is. */
  readonly code?: string;
  /** Of the body, unless it was let go. */
  readonly sha256?: string;
}

/** Everything a verdict depends on. */
export interface Evidence {
  readonly facts: Facts;
  readonly found: readonly Found[];
  readonly kills: number;
  /** Handlers that ran at once. */
  readonly concurrency: number;
  readonly attemptsMax: number;
  /** Whether nothing is left to do; otherwise messages may still wait. Default true. */
  readonly isAtRest?: boolean;
  /** How long a claim lasts, where several processes told of their claims. */
  readonly leaseMs?: number;
  /** Processes whose end the store can see: what they held may be taken at once. */
  readonly seenGone?: ReadonlySet<number>;
  /** Claims and lazy settles that a crashed server may have forgotten; default 0. */
  readonly forgotten?: number;
}

/** What came out. */
export interface Judged {
  readonly messages: number;
  readonly accepted: number;
  readonly lost: number;
  readonly unexpected: number;
  readonly corrupt: number;
  readonly duplicated: number;
  readonly resurrected: number;
  /** As many may be: kills × concurrency + unknown acks + lease expiries + what was forgotten. */
  readonly bound: number;
  /** Enqueues of unknown outcome that turned out to have worked. */
  readonly recovered: number;
  /** One sentence per kind of violation, with some keys; empty: all is well. */
  readonly complaints: readonly string[];
}

/** Kinds of effect of which a message should have one. */
const FINAL: ReadonlySet<EffectKind> = new Set(['delivered', 'permanent', 'held', 'notice']);
/** States in which a message waits for something. */
const WAITING: ReadonlySet<State> = new Set(['incoming', 'active', 'deferred']);
const KEYS_SHOWN = 5;

/** Judges a run that has come to rest. */
export function judgeRun(evidence: Evidence): Judged {
  const { facts, found, kills, concurrency, forgotten = 0 } = evidence;
  const complaints: string[] = [];
  const complain = (keys: readonly string[], what: string, allowed = 0): number => {
    const shown = keys.slice(0, KEYS_SHOWN).join(' ');
    if (keys.length > allowed) complaints.push(`${keys.length} ${what}: ${shown}`);
    return keys.length;
  };
  const written = [...facts.messages.values()];
  const effects = Map.groupBy(facts.effects, ({ key }) => key);
  const present = new Map(found.map((entry) => [entry.key, entry]));
  const accepted = written.filter(({ outcome }) => outcome === 'ok');
  const lost = keysOf(accepted.filter((one) => isLost(one, effects.get(one.key), present)));
  const duplicated = duplicates(facts.effects);
  const unknown = written.filter(({ wasUnknown }) => wasUnknown);
  const expiries = Math.max(facts.expiries, facts.lostClaims?.size ?? 0);
  const bound = kills * concurrency + unknown.length + expiries + forgotten;
  const judged = {
    messages: written.length,
    accepted: accepted.length,
    lost: complain(lost, 'accepted and lost'),
    unexpected: complain(strangers(evidence), 'that nobody enqueued'),
    corrupt: complain(corrupted(evidence), 'with other bytes than were accepted'),
    duplicated,
    resurrected: resurrected(evidence, present).length,
    bound,
    recovered: unknown.filter(({ key }) => effects.has(key) || present.has(key)).length,
  };
  if (duplicated > bound) complaints.push(`${duplicated} duplicates, the bound is ${bound}`);
  complain(keysOf(accepted.filter((one) => cameBack(one, present))), 'removed and still there');
  if (evidence.isAtRest !== false)
    complain(resting(found), 'that wait although nothing is left to do');
  complain(doubleEntries(found), 'with two entries');
  complain(sharedFences(facts.effects), 'handled twice under one fence', forgotten);
  complain(completedTwice(facts.completions), 'settled as delivered more than once', forgotten);
  complain(completedTwice(facts.settledClaims), 'settled twice under one claim', forgotten);
  complain(activeTwice(evidence), 'given to two handlers under a valid lease', forgotten);
  complain(overtried(evidence), `tried more than ${evidence.attemptsMax} times`);
  return { ...judged, complaints };
}

function keysOf(messages: readonly Written[]): string[] {
  return messages.map(({ key }) => key);
}

function isLost(
  { key, plan, removal }: Written,
  effects: readonly Effect[] = [],
  present: ReadonlyMap<string, Found>,
): boolean {
  const entry = present.get(key);
  // Held or waiting is a legal place for every plan: a message may be held for its lost holders.
  if (entry !== undefined && (WAITING.has(entry.state) || entry.state === 'hold')) return false;
  const kinds = new Set(effects.map(({ kind }) => kind));
  switch (plan) {
    case 'remove':
      return removal === 'none' && entry === undefined;
    case 'hold':
      return true;
    case 'permanent':
      return entry?.state === 'bounce' ? false : !kinds.has('notice');
    default:
      // An entry that says "delivered" is no proof: only the effect is.
      return !kinds.has('delivered');
  }
}

function cameBack({ key, removal }: Written, present: ReadonlyMap<string, Found>): boolean {
  return removal === 'done' && present.has(key);
}

/** Delivered or removed for good, as its process was told, and delivered or found again later. */
function resurrected({ facts }: Evidence, present: ReadonlyMap<string, Found>): string[] {
  const isBack = (key: string): boolean => (present.get(key)?.state ?? 'archived') !== 'archived';
  const delivered = [...facts.completions].filter(([key, times]) => times > 1 || isBack(key));
  const removed = [...facts.messages.values()].filter((one) => cameBack(one, present));
  return [...new Set([...delivered.map(([key]) => key), ...keysOf(removed)])];
}

function strangers({ facts, found }: Evidence): string[] {
  const keys = new Set([...facts.effects.map(({ key }) => key), ...found.map(({ key }) => key)]);
  // A refused enqueue left nothing behind; if it did, that is a stranger too.
  const isKnown = (key: string): boolean =>
    facts.messages.has(key) && facts.messages.get(key)?.outcome !== 'refused';
  return [...keys].filter((key) => !isKnown(key));
}

function corrupted({ facts, found }: Evidence): string[] {
  const keys = new Set<string>();
  for (const { key, sha256 } of [...facts.effects, ...found]) {
    const wanted = facts.messages.get(key)?.sha256;
    if (sha256 !== undefined && wanted !== undefined && wanted !== sha256) keys.add(key);
  }
  return [...keys];
}

function duplicates(effects: readonly Effect[]): number {
  const final = effects.filter(({ kind }) => FINAL.has(kind));
  return final.length - new Set(final.map(({ key, kind }) => `${key} ${kind}`)).size;
}

function resting(found: readonly Found[]): string[] {
  return found.filter(isUnfinished).map(({ key, state }) => `${key}(${state})`);
}

function isUnfinished({ state, code }: Found): boolean {
  // What an operator was about to remove is not due for an hour.
  return WAITING.has(state) && code !== NOT_DUE;
}

/** The code a caller gives to entries that are meant to wait beyond the end of the test. */
export const NOT_DUE = 'not-due';

function doubleEntries(found: readonly Found[]): string[] {
  return twice(found.map(({ key }) => key));
}

function sharedFences(effects: readonly Effect[]): string[] {
  return twice(effects.map(({ key, kind, fence }) => `${key} ${kind} ${fence}`));
}

function completedTwice(completions: ReadonlyMap<string, number> = new Map()): string[] {
  return [...completions].filter(([, times]) => times > 1).map(([key]) => key);
}

/**
 * A handling that begins while another one of the same message is open, although the lease of the
 * first was valid for certain when the second was claimed: counted from when the first was asked for
 * to when the second was answered, as the store decides somewhere in between.
 */
function activeTwice({ facts, leaseMs, seenGone = new Set() }: Evidence): string[] {
  if (leaseMs === undefined) return [];
  const open = new Map<string, Effect>();
  const found: string[] = [];
  for (const effect of facts.effects) {
    const { key, kind, pid, fence, askedAt = 0 } = effect;
    const other = open.get(key);
    if (kind === 'begun') {
      const isLater = other !== undefined && askedAt >= (other.askedAt ?? 0);
      const [first, second] = isLater ? [other, effect] : [effect, other];
      const isValid = (second?.answeredAt ?? Infinity) < (first.askedAt ?? 0) + leaseMs;
      if (isValid && !seenGone.has(first.pid)) found.push(`${key}(${first.fence}, ${fence})`);
      open.set(key, effect);
    } else if (other?.pid === pid && other.fence === fence) open.delete(key);
  }
  return found;
}

function overtried({ facts, attemptsMax }: Evidence): string[] {
  return facts.effects.filter(({ attempt }) => attempt > attemptsMax).map(({ key }) => key);
}

function twice(words: readonly string[]): string[] {
  const once = new Set<string>();
  return words.filter((word) => once.size === once.add(word).size);
}
