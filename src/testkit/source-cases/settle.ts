/** settle — what each verdict makes of a message, and what a lost claim can still do: nothing. */

import assert from 'node:assert/strict';
import {
  ACK,
  assertNothing,
  BOUNCE,
  claimOne,
  deferBy,
  FAILURE,
  HOLD,
  putAndClaim,
  RELEASE,
  settle,
  type SourceCase,
} from './shared.ts';

export const settleCases: readonly SourceCase[] = [
  {
    name: 'what is acked is gone',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, ACK);
      await world.fated(claim.id, 'gone');
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
      await world.fated(claim.id, 'waiting');
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
      await world.fated(claim.id, 'gone');
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
      await world.fated(claim.id, 'dead');
      await assertNothing(world, 'it bounced');
    },
  },
  {
    name: 'what is held is put aside and not delivered again',
    async run(world) {
      const claim = await putAndClaim(world);
      await settle(world, claim, HOLD);
      await world.fated(claim.id, 'held');
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
      await world.fated(claim.id, 'gone');
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
