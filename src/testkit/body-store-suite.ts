/**
 * body-store-suite — the contract of a body store in full, one case per promise.
 *
 * Bodies are streams: the large ones are generated and checked by a running hash, never held whole.
 * Each case gets a fresh store from the maker and disposes of it.
 */

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { HOUR_MS } from '../core/duration.ts';
import { type ErrorCode, isRespoolError } from '../core/errors.ts';
import { REF_MAX_CHARS } from '../core/limits.ts';
import type { BodyStore } from '../ports/body-store.ts';
import type { StoreOperation } from '../ports/store-operation.ts';
import { systemClock } from '../system/clock.ts';
import {
  type BodyStoreAbilities,
  type BodyStoreMaker,
  heardOperations,
  type SuiteCase,
} from './suite.ts';
import { seededDice } from './virtual-time.ts';

/** The cases this body store has to pass, by what it can be asked. */
export function bodyStoreSuite(
  make: BodyStoreMaker,
  can: BodyStoreAbilities,
): readonly SuiteCase[] {
  const cases = [...putCases, ...bodyLifeCases, ...bodyOperationCases];
  return cases
    .filter(({ needs }) => needs === undefined || can.canReopen)
    .map(({ name, run }) => ({
      name,
      async run() {
        const under = await make();
        try {
          const { bodies, reopen } = under;
          const missing = () => assert.fail('the maker promised "reopen" and does not give it');
          await run({ bodies, reopen: reopen ?? missing });
        } finally {
          await under.dispose();
        }
      },
    }));
}

// What the cases have in common.

/** What a case gets: an opened body store and the way to open its data again. */
interface BodyWorld {
  readonly bodies: BodyStore;
  readonly reopen: () => Promise<BodyStore>;
}

/** A case before its store is made. */
interface BodyCase {
  readonly name: string;
  readonly needs?: 'reopen';
  readonly run: (world: BodyWorld) => Promise<void>;
}

const MIB: number = 2 ** 20;

/** Later than anything that is written in a case. */
function farFuture(): number {
  return systemClock.now() + HOUR_MS;
}

async function* chunksOf(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield chunk;
}

/** Pseudorandom bytes from a seed. */
function randomBytes(size: number, seed: number): Uint8Array {
  const dice = seededDice(seed);
  return Uint8Array.from({ length: size }, () => Math.floor(dice.random() * 256));
}

/** The bytes in pieces of irregular sizes, some of them empty. */
async function* oddPieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  const sizes = [1, 0, 3, 65_537, 997, 131_071, 7];
  for (let at = 0, turn = 0; at < bytes.byteLength; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** A pattern of any length in pieces of 64 KiB, each its own buffer so that none can be kept. */
async function* pattern(
  size: number,
  hash: { readonly update: (bytes: Uint8Array) => unknown },
): AsyncGenerator<Uint8Array> {
  for (let at = 0, piece = 0; at < size; piece += 1) {
    const length = Math.min(65_536, size - at);
    const bytes = new Uint8Array(length).fill(piece % 256);
    new DataView(bytes.buffer).setUint32(0, piece);
    hash.update(bytes);
    yield bytes;
    at += length;
  }
}

async function read(bodies: BodyStore, ref: string): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bodies.get(ref)) chunks.push(Uint8Array.from(chunk));
  return Buffer.concat(chunks);
}

/** Reads the first chunk and stops; returns its length. */
async function readAndStop(bodies: BodyStore, ref: string): Promise<number> {
  for await (const chunk of bodies.get(ref)) return chunk.byteLength;
  return 0;
}

async function allRefs(bodies: BodyStore, writtenBefore: number): Promise<readonly string[]> {
  const refs: string[] = [];
  for await (const { ref } of bodies.refs(writtenBefore)) refs.push(ref);
  return refs.sort();
}

async function assertHolds(bodies: BodyStore, ref: string, bytes: Uint8Array): Promise<void> {
  const found = await read(bodies, ref);
  assert.equal(found.byteLength, bytes.byteLength, `the size of "${ref}" differs`);
  assert.ok(Buffer.compare(found, bytes) === 0, `the bytes of "${ref}" differ`);
}

async function assertRefused(doing: () => Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(doing, (error: unknown) => {
    assert.ok(isRespoolError(error, code), `expected ${code}, got ${String(error)}`);
    return true;
  });
}

async function assertMissing(bodies: BodyStore, ref: string): Promise<void> {
  await assertRefused(() => read(bodies, ref), 'body.missing');
}

/** Whether an error is, or was caused by, this one. */
function comesFrom(error: unknown, cause: Error): boolean {
  for (let link = error; link instanceof Error; link = link.cause) if (link === cause) return true;
  return false;
}

const HELLO: Uint8Array = new TextEncoder().encode('hello, wörld');

// A body is read back byte by byte as written, or none of it is visible.

const putCases: readonly BodyCase[] = [
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

// Removing, listing, concurrency, closing and reopening; and that a store which reports
// its operations reports them correctly.

const bodyLifeCases: readonly BodyCase[] = [
  {
    name: 'a removed body is missing, and its neighbours stay',
    async run({ bodies }) {
      for (const ref of ['a', 'b', 'c']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['a', 'c']);
      await assertMissing(bodies, 'a');
      await assertHolds(bodies, 'b', HELLO);
      await assertMissing(bodies, 'c');
    },
  },
  {
    name: 'removing what is not there, twice, or nothing at all is no error',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await bodies.remove([]);
      await bodies.remove(['nobody', 'a', 'a']);
      await bodies.remove(['a']);
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'a store that remembers settled messages tells them from bodies that are missing',
    async run({ bodies }) {
      if (bodies.wasSettled === undefined) return;
      for (const ref of ['a', 'b', 'c', 'd']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['a'], 'delivered');
      await bodies.remove(['b'], 'removed');
      await bodies.remove(['c']);
      // Removed again by a process that finds a part of it: what is known of it stays.
      await bodies.remove(['a']);
      const known = [];
      for (const ref of ['a', 'b', 'c', 'd', 'e']) known.push(await bodies.wasSettled(ref));
      assert.deepEqual(known, ['delivered', 'removed', undefined, undefined, undefined]);
      for (const ref of ['a', 'b', 'c']) await assertMissing(bodies, ref);
      assert.deepEqual(await allRefs(bodies, farFuture()), ['d']);
      await assertRefused(() => bodies.put('a', chunksOf(HELLO)), 'message.duplicate');
    },
  },
  {
    name: 'many bodies are removed with one call',
    async run({ bodies }) {
      const refs = Array.from({ length: 300 }, (_, n) => `r${n}`);
      for (const ref of refs) await bodies.put(ref, chunksOf(Uint8Array.of(1)));
      await bodies.remove(refs);
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
    },
  },
  {
    name: 'the refs written before a time are listed, those after it are not',
    async run({ bodies }) {
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
      for (const ref of ['b', 'a', 'c']) await bodies.put(ref, chunksOf(HELLO));
      await bodies.remove(['c']);
      assert.deepEqual(await allRefs(bodies, farFuture()), ['a', 'b']);
      assert.deepEqual(await allRefs(bodies, systemClock.now() - HOUR_MS), []);
    },
  },
  {
    name: 'a ref is listed with the time it was written',
    async run({ bodies }) {
      // A server's clock may differ from ours, but not by an hour.
      await bodies.put('a', chunksOf(HELLO));
      for await (const { writtenAt } of bodies.refs(farFuture())) {
        assert.ok(Math.abs(writtenAt - systemClock.now()) < HOUR_MS);
      }
    },
  },
  {
    name: 'bodies can be removed while their refs are listed',
    async run({ bodies }) {
      for (let n = 0; n < 50; n += 1) await bodies.put(`r${n}`, chunksOf(Uint8Array.of(n)));
      const seen = new Set<string>();
      for await (const { ref } of bodies.refs(farFuture())) {
        seen.add(ref);
        await bodies.remove([ref]);
      }
      assert.equal(seen.size, 50);
      assert.deepEqual(await allRefs(bodies, farFuture()), []);
    },
  },
  {
    name: 'puts at the same time do not mix',
    async run({ bodies }) {
      const all = Array.from({ length: 24 }, (_, n) => randomBytes(10_000 + n * 7_919, n));
      await Promise.all(all.map((bytes, n) => bodies.put(`r${n}`, oddPieces(bytes))));
      for (const [n, bytes] of all.entries()) await assertHolds(bodies, `r${n}`, bytes);
    },
  },
  {
    name: 'readers of one body at the same time each get the whole',
    async run({ bodies }) {
      const bytes = randomBytes(MIB, 5);
      await bodies.put('a', chunksOf(bytes));
      await Promise.all(Array.from({ length: 8 }, () => assertHolds(bodies, 'a', bytes)));
    },
  },
  {
    name: 'a body can be read again and again',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      await assertHolds(bodies, 'a', HELLO);
    },
  },
  {
    name: 'readers that stop early leave nothing behind',
    async run({ bodies }) {
      const bytes = randomBytes(300_000, 6);
      await bodies.put('a', chunksOf(bytes.subarray(0, 150_000), bytes.subarray(150_000)));
      // More than the files a process may usually have open, were each of them to leave one.
      for (let n = 0; n < 1_500; n += 1) await readAndStop(bodies, 'a');
      await assertHolds(bodies, 'a', bytes);
      await bodies.remove(['a']);
      await assertMissing(bodies, 'a');
    },
  },
  {
    name: 'closing twice, or twice at once, is no error',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await Promise.all([bodies.close(), bodies.close()]);
      await bodies.close();
    },
  },
  {
    name: 'every use after closing is refused',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      await bodies.close();
      await assertRefused(() => bodies.put('b', chunksOf(HELLO)), 'store.unavailable');
      await assertRefused(() => read(bodies, 'a'), 'store.unavailable');
      await assertRefused(() => bodies.remove(['a']), 'store.unavailable');
      await assertRefused(() => allRefs(bodies, farFuture()), 'store.unavailable');
    },
  },
  {
    name: 'bodies survive closing and opening',
    needs: 'reopen',
    async run({ bodies, reopen }) {
      const bytes = randomBytes(200_000, 7);
      await bodies.put('a', oddPieces(bytes));
      await bodies.put('b', chunksOf());
      await bodies.put('c', chunksOf(HELLO));
      await bodies.remove(['c']);
      const again = await reopen();
      await assertHolds(again, 'a', bytes);
      await assertHolds(again, 'b', new Uint8Array(0));
      await assertMissing(again, 'c');
      assert.deepEqual(await allRefs(again, farFuture()), ['a', 'b']);
      await assertRefused(() => again.put('a', chunksOf(HELLO)), 'message.duplicate');
    },
  },
];

const bodyOperationCases: readonly BodyCase[] = [
  {
    name: 'put, get and remove are told as operations, with their items',
    async run({ bodies }) {
      const told = heardOperations(bodies);
      if (told === undefined) return;
      await bodies.put('a', chunksOf(HELLO));
      await bodies.put('b', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      await bodies.remove(['a', 'b']);
      assert.deepEqual(told.list.map(shown), [
        { store: 'bodies', name: 'put', items: 1, isDone: true },
        { store: 'bodies', name: 'put', items: 1, isDone: true },
        { store: 'bodies', name: 'get', items: 1, isDone: true },
        { store: 'bodies', name: 'remove', items: 2, isDone: true },
      ]);
      for (const { tookMs, name } of told.list) {
        assert.ok(Number.isFinite(tookMs) && tookMs >= 0, `"${name}" took ${tookMs} ms`);
      }
    },
  },
  {
    name: 'a put or a get that fails is told as failed, a reader that stops early is not',
    async run({ bodies }) {
      await bodies.put('a', chunksOf(HELLO));
      const told = heardOperations(bodies);
      if (told === undefined) return;
      await assertMissing(bodies, 'nobody');
      await assertRefused(() => bodies.put('a', chunksOf(HELLO)), 'message.duplicate');
      await assert.rejects(bodies.put('b', broken()));
      await readAndStop(bodies, 'a');
      assert.deepEqual(
        told.list.map(({ name, isDone }) => ({ name, isDone })),
        [
          { name: 'get', isDone: false },
          { name: 'put', isDone: false },
          { name: 'put', isDone: false },
          { name: 'get', isDone: true },
        ],
      );
    },
  },
  {
    name: 'a listener that stops gets no more operations, and one that throws does no harm',
    async run({ bodies }) {
      const stop = bodies.onOperation?.(() => {
        throw new Error('a listener failed');
      });
      const told = heardOperations(bodies);
      await bodies.put('a', chunksOf(HELLO));
      await assertHolds(bodies, 'a', HELLO);
      told?.stop();
      stop?.();
      await bodies.remove(['a']);
      if (told === undefined) return;
      assert.deepEqual(
        told.list.map(({ name }) => name),
        ['put', 'get'],
      );
    },
  },
];

function shown({ tookMs: _tookMs, ...rest }: StoreOperation): Omit<StoreOperation, 'tookMs'> {
  return rest;
}

async function* broken(): AsyncGenerator<Uint8Array> {
  yield HELLO;
  throw new Error('the stream failed');
}
