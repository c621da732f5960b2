/** put — a body is read back byte by byte as written, or none of it is visible. */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { isRespoolError } from '../../core/errors.ts';
import { REF_MAX_CHARS } from '../../core/limits.ts';
import {
  allRefs,
  assertHolds,
  assertMissing,
  assertRefused,
  type BodyCase,
  chunksOf,
  comesFrom,
  farFuture,
  HELLO,
  lentPieces,
  MIB,
  oddPieces,
  pattern,
  randomBytes,
  readBehind,
} from './shared.ts';

export const putCases: readonly BodyCase[] = [
  {
    name: 'a body is read back as it was written, and its size is told',
    async run({ bodies }) {
      assert.deepEqual(await bodies.put('a', chunksOf(HELLO)), { size: HELLO.byteLength });
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'an empty body is a body',
    async run({ bodies }) {
      assert.deepEqual(await bodies.put('none', chunksOf()), { size: 0 });
      assert.deepEqual(await bodies.put('empty', chunksOf(new Uint8Array(0))), { size: 0 });
      await assertHolds(bodies, 'none', new Uint8Array(0));
      await assertHolds(bodies, 'empty', new Uint8Array(0));
    },
  },
  {
    name: 'a put reads no more of what it was given before than it says',
    async run({ bodies }) {
      const bytes = randomBytes(2 * MIB, 11);
      await bodies.put('a', lentPieces(bytes, bodies.holdsMaxBytes ?? Number.POSITIVE_INFINITY));
      await assertHolds(bodies, 'a', bytes);
    },
  },
  {
    name: 'a reader that says how much it holds is given the same bytes, and those are left alone',
    async run({ bodies }) {
      const bytes = randomBytes(MIB, 12);
      await bodies.put('a', oddPieces(bytes));
      for (const heldMaxBytes of [0, 100_000]) {
        const read = await readBehind(bodies.get('a', heldMaxBytes), heldMaxBytes);
        assert.ok(read.equals(bytes));
      }
    },
  },
  {
    name: 'a body of one byte is kept',
    async run({ bodies }) {
      assert.deepEqual(await bodies.put('a', chunksOf(Uint8Array.of(0))), { size: 1 });
      await assertHolds(bodies, 'a', Uint8Array.of(0));
    },
  },
  {
    name: 'a ref may be as long as refs can be',
    async run({ bodies }) {
      // Alike up to the last character: one that is cut would be another's.
      const [one, other] = ['a', 'b'].map((end) => 'r'.repeat(REF_MAX_CHARS - 1) + end);
      assert.ok(one !== undefined && other !== undefined);
      await bodies.put(one, chunksOf(HELLO));
      await bodies.put(other, chunksOf(Uint8Array.of(1)));
      await assertHolds(bodies, one, HELLO);
      await assertHolds(bodies, other, Uint8Array.of(1));
      assert.deepEqual(await allRefs(bodies, farFuture()), [one, other]);
      await bodies.remove([one]);
      await assertMissing(bodies, one);
      await assertHolds(bodies, other, Uint8Array.of(1));
    },
  },
  {
    name: 'a body of one mebibyte in odd pieces is kept whole',
    async run({ bodies }) {
      const bytes = randomBytes(MIB, 1);
      assert.deepEqual(await bodies.put('a', oddPieces(bytes)), { size: MIB });
      await assertHolds(bodies, 'a', bytes);
    },
  },
  {
    name: 'sizes around the usual page and block sizes are kept',
    async run({ bodies }) {
      for (const size of [4_095, 4_096, 4_097, 65_535, 65_536, 65_537, 262_144]) {
        const bytes = randomBytes(size, size);
        await bodies.put(`s${size}`, chunksOf(bytes));
        await assertHolds(bodies, `s${size}`, bytes);
      }
    },
  },
  {
    name: 'a body of 64 mebibytes goes in and out as a stream',
    async run({ bodies }) {
      const [written, found] = [createHash('sha256'), createHash('sha256')];
      assert.deepEqual(await bodies.put('big', pattern(64 * MIB, written)), { size: 64 * MIB });
      let size = 0;
      for await (const chunk of bodies.get('big')) {
        found.update(chunk);
        size += chunk.byteLength;
      }
      assert.equal(size, 64 * MIB);
      assert.equal(found.digest('hex'), written.digest('hex'));
    },
  },
  {
    name: 'a view into a larger buffer is written without its surroundings',
    async run({ bodies }) {
      const large = randomBytes(1_000, 2);
      await bodies.put('a', chunksOf(large.subarray(100, 200)));
      await assertHolds(bodies, 'a', large.slice(100, 200));
    },
  },
  {
    name: 'a buffer that its source uses again does not change what was written',
    async run({ bodies }) {
      async function* reusing(): AsyncGenerator<Uint8Array> {
        const buffer = new Uint8Array(4);
        for (let turn = 1; turn <= 3; turn += 1) yield buffer.fill(turn);
      }
      await bodies.put('a', reusing());
      await assertHolds(bodies, 'a', Uint8Array.of(1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    },
  },
  {
    name: 'changing bytes that were handed out does not change what is stored',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      for await (const chunk of bodies.get('a')) chunk.fill(0);
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'a ref that is there already is refused, and the first body stays',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      const again = () => bodies.put('a', chunksOf(Uint8Array.of(9)));
      await assertRefused(again, 'message.duplicate');
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'of puts of one ref at the same time one is kept and the others are refused',
    async run({ bodies }) {
      const puts = Array.from({ length: 8 }, (_, n) => bodies.put('a', chunksOf(Uint8Array.of(n))));
      const results = await Promise.allSettled(puts);
      const winners = results.flatMap(({ status }, n) => (status === 'fulfilled' ? [n] : []));
      assert.equal(winners.length, 1);
      for (const result of results) {
        if (result.status === 'rejected') {
          assert.ok(isRespoolError(result.reason, 'message.duplicate'), String(result.reason));
        }
      }
      await assertHolds(bodies, 'a', Uint8Array.of(winners[0] ?? -1));
    },
  },
  {
    name: 'a ref that is not there is missing before the first byte',
    async run({ bodies }) {
      await assertMissing(bodies, 'nobody');
    },
  },
  {
    name: 'a source that fails leaves nothing, and its error is told',
    async run({ bodies }) {
      const trouble = new Error('the source broke');
      async function* failing(): AsyncGenerator<Uint8Array> {
        yield randomBytes(100_000, 3);
        yield HELLO;
        throw trouble;
      }
      await assert.rejects(
        () => bodies.put('a', failing()),
        (error: unknown) => comesFrom(error, trouble),
      );
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'a source that fails before its first byte leaves nothing',
    async run({ bodies }) {
      const trouble = new Error('the source broke');
      // oxlint-disable-next-line require-yield -- it fails before it can yield.
      async function* failing(): AsyncGenerator<Uint8Array> {
        throw trouble;
      }
      await assert.rejects(
        () => bodies.put('a', failing()),
        (error: unknown) => comesFrom(error, trouble),
      );
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'a ref whose source failed can be put again',
    async run({ bodies }) {
      async function* failing(): AsyncGenerator<Uint8Array> {
        yield Uint8Array.of(9, 9, 9);
        throw new Error('the source broke');
      }
      await assert.rejects(() => bodies.put('a', failing()));
      await bodies.put('a', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'a body that is being written is not seen before it is whole',
    async run({ bodies }) {
      let finish = () => {};
      const gate = new Promise<void>((resolve) => {
        finish = resolve;
      });
      let reached = () => {};
      const isHalfway = new Promise<void>((resolve) => {
        reached = resolve;
      });
      async function* slow(): AsyncGenerator<Uint8Array> {
        yield HELLO;
        reached();
        await gate;
        yield HELLO;
      }
      const put = bodies.put('a', slow());
      await isHalfway;
      await assertMissing(bodies, 'a');
      finish();
      await put;
      await assertHolds(bodies, 'a', Buffer.concat([HELLO, HELLO]));
    },
  },
];
