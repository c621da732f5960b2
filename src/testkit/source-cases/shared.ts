/**
 * shared — what the cases of the source suite have in common: the words of a source under test, and
 * short ways to put, claim and settle.
 */

import assert from 'node:assert/strict';
import type { Headers } from '../../core/entry.ts';
import { type Failure, failure } from '../../core/failure.ts';
import type { Verdict } from '../../core/verdict.ts';
import type { Claim, Demand, Settlement, Source } from '../../ports/source.ts';
import { systemClock } from '../../system/clock.ts';
import { TimeLimit } from '../../system/wait.ts';

/** A message as the suite puts it down. */
export interface SuiteMessage {
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** Where a message is, in words that fit every place: `gone` is delivered and let go. */
export type Fate = 'waiting' | 'gone' | 'dead' | 'held';

/** A fresh, empty source and what the suite may do with it. */
export interface SourceUnderTest {
  readonly source: Source;
  /** Puts messages down, in this order; resolves when they are safe. */
  readonly put: (messages: readonly SuiteMessage[]) => Promise<void>;
  /** Lets this much time pass, and what is due by then come due. */
  readonly pass: (ms: number) => Promise<void>;
  /** What became of a message; waits until it is so, and rejects if it never is. */
  readonly fated: (id: string, fate: Fate) => Promise<void>;
  /** Ends every claim that is open, as a crash or a cut connection does; for `canLose`. */
  readonly loseClaims?: () => Promise<void>;
  /** Closes everything that was opened and removes the data. */
  readonly dispose: () => Promise<void>;
}

/** Makes a source for one case. */
export type SourceMaker = () => Promise<SourceUnderTest>;

/** Which of the optional parts of the suite fit this source. */
export interface SourceAbilities {
  /** Claims can be lost while they are open. */
  readonly canLose: boolean;
  /** Messages are picked by topic; otherwise everything that comes is for this engine. */
  readonly picksTopics: boolean;
  /** Messages are claimed in the order in which they were put down. */
  readonly keepsOrder: boolean;
  /** The source has `extend`. */
  readonly canExtend: boolean;
  /** How long deferred messages wait in the cases, in milliseconds; default 1,000. */
  readonly delayMs?: number;
}

/** What a case gets. */
export interface SourceWorld extends Required<Omit<SourceUnderTest, 'dispose'>> {
  readonly delayMs: number;
}

/** A case before its source is made. */
export interface SourceCase {
  readonly name: string;
  readonly needs?: 'canLose' | 'picksTopics' | 'keepsOrder' | 'canExtend';
  readonly run: (world: SourceWorld) => Promise<void>;
}

const TOPIC = 'suite.message';

/** A small message with an id by its number. */
export function messageOf(at: number, parts: Partial<SuiteMessage> = {}): SuiteMessage {
  return {
    id: `message-${String(at).padStart(5, '0')}`,
    topic: TOPIC,
    headers: {},
    body: Uint8Array.of(at % 256),
    ...parts,
  };
}

export function messagesOf(count: number): SuiteMessage[] {
  return Array.from({ length: count }, (_, at) => messageOf(at));
}

/** Up to `max` deliveries of these topics, or of all. */
export function demandOf(max: number, topics: readonly string[] = ['#']): Demand {
  const rules = topics.map((pattern) => ({ pattern, take: true }));
  return { max, wants: [{ lane: 'delivery', topics: rules, max }], exceptDestinations: [] };
}

/** Time limit for a message, in ms of the real clock; only reached if the message never comes. */
const CLAIM_TIMEOUT_MS = 120_000;

/** Claims exactly this many, waiting for those that are still on their way. */
export async function claimAll(
  { source }: Pick<SourceWorld, 'source'>,
  count: number,
): Promise<Claim[]> {
  const claims: Claim[] = [];
  const limit = new TimeLimit(systemClock, CLAIM_TIMEOUT_MS);
  while (claims.length < count && !limit.isOver) {
    const demand = demandOf(count - claims.length);
    const found = await source.next(demand);
    claims.push(...found);
    if (found.length === 0) await source.wait(demand, limit.signal);
  }
  limit.stop();
  assert.equal(claims.length, count, 'not everything that was put down could be claimed');
  return claims;
}

/** Claims the one message that is there. */
export async function claimOne(world: Pick<SourceWorld, 'source'>): Promise<Claim> {
  return (await claimAll(world, 1))[0] as Claim;
}

/** Puts one message down and claims it. */
export async function putAndClaim(world: SourceWorld): Promise<Claim> {
  await world.put([messageOf(1)]);
  return claimOne(world);
}

/** Nothing can be claimed now. */
export async function assertNothing(world: SourceWorld, why: string): Promise<void> {
  assert.deepEqual(idsOf(await world.source.next(demandOf(10))), [], why);
}

/** Carries a verdict out, which must work. */
export async function settle(
  { source }: SourceWorld,
  claim: Claim,
  verdict: Verdict,
  parts: Partial<Settlement> = {},
): Promise<void> {
  assert.equal(await source.settle(claim, { verdict, ...parts }), 'done');
}

export const FAILURE: Failure = failure('transient', 'suite.failed', 'the suite says so');

const BECAUSE = { code: FAILURE.code, text: FAILURE.reason, by: 'suite' };

export const ACK: Verdict = { kind: 'ack' };
export const RELEASE: Verdict = { kind: 'release' };
export const HOLD: Verdict = { kind: 'hold', because: BECAUSE, costsAttempt: true };
export const BOUNCE: Verdict = {
  kind: 'bounce',
  because: BECAUSE,
  failure: FAILURE,
  spent: true,
};

/** Tried again after the delay. */
export function deferBy(delayMs: number, costsAttempt = true): Verdict {
  const why = costsAttempt ? { failure: FAILURE } : {};
  return { kind: 'defer', delayMs, because: BECAUSE, costsAttempt, ...why };
}

/** The whole body of a claim. */
export async function bodyOf({ source }: SourceWorld, claim: Claim): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source.body(claim)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export function idsOf(claims: readonly { readonly id: string }[]): string[] {
  return claims.map(({ id }) => id);
}
