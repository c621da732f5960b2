/** shared — what the cases of the body store suite have in common. */

import assert from 'node:assert/strict';
import { HOUR_MS } from '../../core/duration.ts';
import { type ErrorCode, isRespoolError } from '../../core/errors.ts';
import type { BodyStore } from '../../ports/body-store.ts';
import { systemClock } from '../../system/clock.ts';
import { LentMemory } from '../../system/memory.ts';
import { seededDice } from '../virtual-time.ts';

/** What a case gets: an opened body store and the way to open its data again. */
export interface BodyWorld {
  readonly bodies: BodyStore;
  readonly reopen: () => Promise<BodyStore>;
}

/** A case before its store is made. */
export interface BodyCase {
  readonly name: string;
  readonly needs?: 'reopen';
  readonly run: (world: BodyWorld) => Promise<void>;
}

export const MIB: number = 2 ** 20;

/** Later than anything that is written in a case. */
export function farFuture(): number {
  return systemClock.now() + HOUR_MS;
}

export async function* chunksOf(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield chunk;
}

/** Bytes by chance from a seed. */
export function randomBytes(size: number, seed: number): Uint8Array {
  const dice = seededDice(seed);
  return Uint8Array.from({ length: size }, () => Math.floor(dice.random() * 256));
}

/** The bytes in pieces of irregular sizes, some of them empty. */
export async function* oddPieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  const sizes = [1, 0, 3, 65_537, 997, 131_071, 7];
  for (let at = 0, turn = 0; at < bytes.byteLength; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

/** The same in memory that is overwritten when the reader may read no more of it. */
export async function* lentPieces(
  bytes: Uint8Array,
  heldMaxBytes: number,
): AsyncGenerator<Uint8Array> {
  const lent = new LentMemory<Uint8Array>(heldMaxBytes, (piece) => piece.fill(0xee));
  for await (const piece of oddPieces(bytes)) {
    const copy = Uint8Array.from(piece);
    lent.give(copy, copy.byteLength);
    yield copy;
    lent.asked();
  }
}

/** Reads every part as late as a reader may that buffers this many bytes. */
export async function readBehind(
  stream: AsyncIterable<Uint8Array>,
  heldMaxBytes: number,
): Promise<Buffer> {
  const read: Buffer[] = [];
  const held = new LentMemory<Uint8Array>(heldMaxBytes, (part) => read.push(Buffer.from(part)));
  for await (const part of stream) {
    held.give(part, part.byteLength);
    held.asked();
  }
  held.give(new Uint8Array(0), Number.POSITIVE_INFINITY);
  held.asked();
  return Buffer.concat(read);
}

/** A pattern of any length in pieces of 64 KiB, each its own buffer so that none can be kept. */
export async function* pattern(
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

export async function read(bodies: BodyStore, ref: string): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bodies.get(ref)) chunks.push(Uint8Array.from(chunk));
  return Buffer.concat(chunks);
}

/** Reads the first chunk and stops; returns its length. */
export async function readAndStop(bodies: BodyStore, ref: string): Promise<number> {
  for await (const chunk of bodies.get(ref)) return chunk.byteLength;
  return 0;
}

export async function allRefs(
  bodies: BodyStore,
  writtenBefore: number,
): Promise<readonly string[]> {
  const refs: string[] = [];
  for await (const { ref } of bodies.refs(writtenBefore)) refs.push(ref);
  return refs.sort();
}

export async function assertHolds(
  bodies: BodyStore,
  ref: string,
  bytes: Uint8Array,
): Promise<void> {
  const found = await read(bodies, ref);
  assert.equal(found.byteLength, bytes.byteLength, `the size of "${ref}" differs`);
  assert.ok(Buffer.compare(found, bytes) === 0, `the bytes of "${ref}" differ`);
}

export async function assertRefused(doing: () => Promise<unknown>, code: ErrorCode): Promise<void> {
  await assert.rejects(doing, (error: unknown) => {
    assert.ok(isRespoolError(error, code), `expected ${code}, got ${String(error)}`);
    return true;
  });
}

export async function assertMissing(bodies: BodyStore, ref: string): Promise<void> {
  await assertRefused(() => read(bodies, ref), 'body.missing');
}

/** Whether an error is, or was caused by, this one. */
export function comesFrom(error: unknown, cause: Error): boolean {
  for (let link = error; link instanceof Error; link = link.cause) if (link === cause) return true;
  return false;
}

export const HELLO: Uint8Array = new TextEncoder().encode('hello, wörld');
