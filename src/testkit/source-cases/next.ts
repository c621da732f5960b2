/** next — what a source gives, how it waits, and what a claim tells. */

import assert from 'node:assert/strict';
import { readBehind } from '../body-cases/shared.ts';
import {
  ACK,
  assertNothing,
  bodyOf,
  claimAll,
  claimOne,
  demandOf,
  idsOf,
  messageOf,
  messagesOf,
  putAndClaim,
  settle,
  type SourceCase,
} from './shared.ts';

const LARGE_BYTES = 100_000;

export const sourceCases: readonly SourceCase[] = [
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
        const behind = await readBehind(world.source.body(claim, 0), 0);
        assert.ok(behind.equals(expected), `the stream of ${claim.id}, held by nobody`);
        assert.equal(claim.envelope.body.size, expected.length);
        const whole = await source.bytes?.(claim);
        if (whole !== undefined) assert.ok(expected.equals(whole), `the bytes of ${claim.id}`);
        await settle(world, claim, ACK);
      }
    },
  },
];
