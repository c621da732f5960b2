/**
 * source-suite — the contract of a source in full, one case per promise.
 *
 * Every source of this package passes it against the real thing; so should yours. Each case gets a
 * fresh source from the maker and disposes of it. Time passes by the maker's word: virtual where
 * it can be, real where a server has its own.
 */

import assert from 'node:assert/strict';
import type { Headers } from '../core/entry.ts';
import { type Failure, failure } from '../core/failure.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Claim, Demand, Settlement, Source } from '../ports/source.ts';
import { systemClock } from '../system/clock.ts';
import { readWhole } from '../system/memory.ts';
import { TimeLimit } from '../system/wait.ts';
import type { SuiteCase } from './suite.ts';

/** A message as the suite stores it. */
export interface SuiteMessage {
  readonly id: string;
  readonly topic: string;
  readonly headers: Headers;
  readonly body: Uint8Array;
}

/** Where a message is, in words that fit every place: `gone` is delivered and let go. */
export type MessagePlace = 'waiting' | 'gone' | 'dead' | 'held';

/** A fresh, empty source and what the suite may do with it. */
export interface SourceUnderTest {
  readonly source: Source;
  /** Puts messages down, in this order; resolves when they are safe. */
  readonly put: (messages: readonly SuiteMessage[]) => Promise<void>;
  /** Lets this much time pass, and what is due by then come due. */
  readonly pass: (ms: number) => Promise<void>;
  /** Waits until a message is at this place; rejects if it never is. */
  readonly reaches: (id: string, place: MessagePlace) => Promise<void>;
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
  /** Messages are claimed in the order in which they were stored. */
  readonly keepsOrder: boolean;
  /** The source has `extend`. */
  readonly canExtend: boolean;
  /** How long deferred messages wait in the cases, in milliseconds; default 1,000. */
  readonly delayMs?: number;
}

/** What a case gets. */
interface SourceWorld extends Required<Omit<SourceUnderTest, 'dispose'>> {
  readonly delayMs: number;
}

/** A case before its source is made. */
interface SourceCase {
  readonly name: string;
  readonly needs?: 'canLose' | 'picksTopics' | 'keepsOrder' | 'canExtend';
  readonly run: (world: SourceWorld) => Promise<void>;
}

const TOPIC = 'suite.message';

/** A small message with an id by its number. */
function messageOf(at: number, parts: Partial<SuiteMessage> = {}): SuiteMessage {
  return {
    id: `message-${String(at).padStart(5, '0')}`,
    topic: TOPIC,
    headers: {},
    body: Uint8Array.of(at % 256),
    ...parts,
  };
}

function messagesOf(count: number): SuiteMessage[] {
  return Array.from({ length: count }, (_, at) => messageOf(at));
}

/** Up to `max` deliveries of these topics, or of all. */
function demandOf(max: number, topics: readonly string[] = ['#']): Demand {
  const rules = topics.map((pattern) => ({ pattern, take: true }));
  return { max, wants: [{ lane: 'delivery', topics: rules, max }], exceptDestinations: [] };
}

/** Time limit for a message, in ms of the real clock; only reached if the message never comes. */
const CLAIM_TIMEOUT_MS = 120_000;

/** Claims exactly this many, waiting for those that are still on their way. */
async function claimAll({ source }: Pick<SourceWorld, 'source'>, count: number): Promise<Claim[]> {
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
async function claimOne(world: Pick<SourceWorld, 'source'>): Promise<Claim> {
  return (await claimAll(world, 1))[0] as Claim;
}

/** Puts one message down and claims it. */
async function putAndClaim(world: SourceWorld): Promise<Claim> {
  await world.put([messageOf(1)]);
  return claimOne(world);
}

/** Nothing can be claimed now. */
async function assertNothing(world: SourceWorld, why: string): Promise<void> {
  assert.deepEqual(idsOf(await world.source.next(demandOf(10))), [], why);
}

/** Carries a verdict out, which must work. */
async function settle(
  { source }: SourceWorld,
  claim: Claim,
  verdict: Verdict,
  parts: Partial<Settlement> = {},
): Promise<void> {
  assert.equal(await source.settle(claim, { verdict, ...parts }), 'done');
}

const FAILURE: Failure = failure('transient', 'suite.failed', 'the suite says so');

const BECAUSE = { code: FAILURE.code, text: FAILURE.reason, by: 'suite' };

const ACK: Verdict = { kind: 'ack' };
const RELEASE: Verdict = { kind: 'release' };
const HOLD: Verdict = { kind: 'hold', because: BECAUSE, costsAttempt: true };
const BOUNCE: Verdict = {
  kind: 'bounce',
  because: BECAUSE,
  failure: FAILURE,
  spent: true,
};

/** Tried again after the delay. */
function deferBy(delayMs: number, costsAttempt = true): Verdict {
  const why = costsAttempt ? { failure: FAILURE } : {};
  return { kind: 'defer', delayMs, because: BECAUSE, costsAttempt, ...why };
}

/** The whole body of a claim. */
async function bodyOf({ source }: SourceWorld, claim: Claim): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source.body(claim)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function idsOf(claims: readonly { readonly id: string }[]): string[] {
  return claims.map(({ id }) => id);
}

const LARGE_BYTES = 100_000;

const sourceCases: readonly SourceCase[] = [
  {
    name: 'an empty source gives nothing, at once',
    run: (world) => assertNothing(world, 'nothing was put down'),
  },
  {
    name: 'a claim tells id, topic and headers, and that it is the first attempt',
    async run(world) {
      const { source, put } = world;
      const message = messageOf(1, { headers: { 'x-one': 'a', two: 'ü' } });
      await put([message]);
      const claim = await claimOne(world);
      assert.equal(claim.id, message.id);
      assert.equal(claim.envelope.id, message.id);
      assert.equal(claim.envelope.topic, message.topic);
      for (const [name, value] of Object.entries(message.headers)) {
        assert.equal(claim.envelope.headers[name], value, `header "${name}"`);
      }
      const { lane, attempt, lost, lastFailure, notes } = claim;
      assert.deepEqual(
        { lane, attempt, lost, lastFailure, notes },
        { lane: 'delivery', attempt: 1, lost: 0, lastFailure: undefined, notes: {} },
      );
      assert.ok(claim.envelope.enqueuedAt <= source.now(), 'it comes from the future');
      await settle(world, claim, ACK);
    },
  },
  {
    name: 'next gives at most what is asked for, and the rest later',
    async run(world) {
      const { source, put } = world;
      await put(messagesOf(5));
      const first = await claimOne(world);
      const second = await source.next(demandOf(2));
      assert.ok(second.length <= 2, `asked for 2, got ${second.length}`);
      const rest = await claimAll(world, 4 - second.length);
      const all = [first, ...second, ...rest];
      assert.deepEqual(idsOf(all).sort(), idsOf(messagesOf(5)).sort());
      assert.equal(new Set(all.map(({ fence }) => fence)).size, 5, 'two claims share a fence');
      for (const claim of all) await settle(world, claim, ACK);
    },
  },
  {
    name: 'a claimed message is not given a second time',
    async run(world) {
      const claim = await putAndClaim(world);
      await assertNothing(world, 'it is in hand already');
      await settle(world, claim, ACK);
    },
  },
  {
    name: 'messages are claimed in the order they were put down',
    needs: 'keepsOrder',
    async run(world) {
      const messages = messagesOf(20);
      await world.put(messages);
      const claims = await claimAll(world, 20);
      assert.deepEqual(idsOf(claims), idsOf(messages));
      for (const claim of claims) await settle(world, claim, ACK);
    },
  },
  {
    name: 'only topics that are wanted are claimed',
    needs: 'picksTopics',
    async run(world) {
      const { source, put } = world;
      await put([messageOf(1, { topic: 'other.message' }), messageOf(2)]);
      const claims = await source.next(demandOf(10, ['suite.*']));
      assert.deepEqual(idsOf(claims), [messageOf(2).id]);
      const [other] = await source.next(demandOf(10, ['other.#']));
      assert.equal(other?.id, messageOf(1).id);
    },
  },
  {
    name: 'a wait ends when a message comes',
    async run(world) {
      const { source, put } = world;
      const demand = demandOf(1);
      await source.next(demand);
      const waiting = source.wait(demand, new AbortController().signal);
      await put([messageOf(1)]);
      await waiting;
      await settle(world, await claimOne(world), ACK);
    },
  },
  {
    name: 'a wait ends at once when there is something to claim already',
    async run(world) {
      const { source, put } = world;
      await put([messageOf(1)]);
      await source.wait(demandOf(1), new AbortController().signal);
      await settle(world, await claimOne(world), ACK);
    },
  },
  {
    name: 'a wait ends when its signal fires, also one that has fired already',
    async run({ source }) {
      const demand = demandOf(1);
      const controller = new AbortController();
      await source.next(demand);
      const waiting = source.wait(demand, controller.signal);
      controller.abort();
      await waiting;
      await source.wait(demand, controller.signal);
      assert.deepEqual(await source.next(demand), []);
    },
  },
  {
    name: 'bodies are given byte for byte, as a stream and whole',
    async run(world) {
      const { source, put } = world;
      const everyByte = Uint8Array.from({ length: 256 }, (_, at) => at);
      const large = new Uint8Array(LARGE_BYTES).map((_, at) => at % 251);
      const messages = [new Uint8Array(), everyByte, large].map((body, at) =>
        messageOf(at, { body }),
      );
      await put(messages);
      const bodies = new Map(messages.map(({ id, body }) => [id, Buffer.from(body)]));
      for (const claim of await claimAll(world, 3)) {
        const expected = bodies.get(claim.id) ?? Buffer.alloc(0);
        assert.ok((await bodyOf(world, claim)).equals(expected), `the stream of ${claim.id}`);
        const joined = await readWhole(world.source.body(claim), expected.length);
        assert.ok(joined.equals(expected), `the stream of ${claim.id}, joined part by part`);
        assert.equal(claim.envelope.body.size, expected.length);
        const whole = await source.bytes?.(claim);
        if (whole !== undefined) assert.ok(expected.equals(whole), `the bytes of ${claim.id}`);
        await settle(world, claim, ACK);
      }
    },
  },
];

const settleCases: readonly SourceCase[] = [
  {
    name: 'what is acked is gone',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, ACK);
      await world.reaches(claim.id, 'gone');
      await assertNothing(world, 'it was delivered');
    },
  },
  {
    name: 'what is deferred comes again after its delay and not before, as the next attempt',
    async run(world) {
      const { source, delayMs, pass } = world;
      const claim = await putAndClaim(world);
      const settledAt = source.now();
      await settle(world, claim, deferBy(delayMs));
      await world.reaches(claim.id, 'waiting');
      await assertNothing(world, 'its wait is not over');
      await pass(delayMs);
      const again = await claimOne(world);
      assert.ok(source.now() >= settledAt + delayMs, 'it came before its time');
      assert.equal(again.id, claim.id);
      assert.equal(again.attempt, 2);
      assert.equal(again.lost, 0);
      assert.notEqual(again.fence, claim.fence);
      assert.equal(again.lastFailure?.code, FAILURE.code);
      assert.equal(again.lastFailure?.reason, FAILURE.reason);
      await settle(world, again, ACK);
      await world.reaches(claim.id, 'gone');
    },
  },
  {
    name: 'a deferral that costs no attempt gives it back',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, deferBy(world.delayMs, false));
      await world.pass(world.delayMs);
      const again = await claimOne(world);
      assert.equal(again.attempt, 1);
      await settle(world, again, ACK);
    },
  },
  {
    name: 'attempts go on counting from deferral to deferral',
    async run(world) {
      let claim = await putAndClaim(world);
      for (const attempt of [2, 3]) {
        await settle(world, claim, deferBy(world.delayMs));
        await world.pass(world.delayMs);
        claim = await claimOne(world);
        assert.equal(claim.attempt, attempt);
      }
      await settle(world, claim, ACK);
    },
  },
  {
    name: 'notes of one attempt are there in the next',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, deferBy(world.delayMs), { notes: { stop: 'two', ü: 'ö' } });
      await world.pass(world.delayMs);
      const again = await claimOne(world);
      assert.deepEqual(again.notes, { stop: 'two', ü: 'ö' });
      await settle(world, again, ACK);
    },
  },
  {
    name: 'what is released comes again at once, as the same attempt',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, RELEASE);
      const again = await claimOne(world);
      assert.equal(again.id, claim.id);
      assert.equal(again.attempt, 1);
      assert.notEqual(again.fence, claim.fence);
      await settle(world, again, ACK);
    },
  },
  {
    name: 'what bounces is put with the dead and not delivered again',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, BOUNCE);
      await world.reaches(claim.id, 'dead');
      await assertNothing(world, 'it bounced');
    },
  },
  {
    name: 'what is held is put aside and not delivered again',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, HOLD);
      await world.reaches(claim.id, 'held');
      await assertNothing(world, 'it is held');
    },
  },
  {
    name: 'a claim that was lost is stale, and the message comes again, counted as lost',
    needs: 'canLose',
    async run(world) {
      const claim = await putAndClaim(world);
      await world.loseClaims();
      const again = await claimOne(world);
      assert.equal(again.id, claim.id);
      assert.equal(again.lost, 1);
      assert.equal(again.attempt, 1, 'an attempt was charged for the crash');
      assert.equal(await world.source.settle(claim, { verdict: ACK }), 'stale');
      await settle(world, again, ACK);
      await world.reaches(claim.id, 'gone');
    },
  },
  {
    name: 'extending keeps what is ours, and says which claims were lost',
    needs: 'canExtend',
    async run(world) {
      const { source } = world;
      const claim = await putAndClaim(world);
      assert.deepEqual(await source.extend?.([claim]), ['done']);
      await assertNothing(world, 'it is in hand still');
      await settle(world, claim, ACK);
      assert.deepEqual(await source.extend?.([]), []);
    },
  },
];

const CASES: readonly SourceCase[] = [...sourceCases, ...settleCases];

/**
 * The cases this source has to pass, by what it can be asked.
 *
 * @example
 * import { sourceSuite, type SourceUnderTest } from 'respool/testkit';
 * declare function make(): Promise<SourceUnderTest>;
 * const can = { canLose: false, picksTopics: true, keepsOrder: true, canExtend: false };
 * for (const { run } of sourceSuite(make, can)) await run();
 */
export function sourceSuite(make: SourceMaker, can: SourceAbilities): readonly SuiteCase[] {
  return CASES.filter(({ needs }) => needs === undefined || can[needs]).map(({ name, run }) => ({
    name,
    async run() {
      const { dispose, ...under } = await make();
      const missing = (): never =>
        assert.fail('the maker promised "loseClaims" and does not give it');
      try {
        await run({ loseClaims: missing, ...under, delayMs: can.delayMs ?? DELAY_MS });
      } finally {
        await dispose();
      }
    },
  }));
}

/** How long deferred messages wait, where the source has no wish of its own. */
const DELAY_MS = 1_000;
