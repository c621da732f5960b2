/**
 * codec-crc32c — the checksum of the snappy framing format (CRC-32C, Castagnoli).
 *
 * Node has only the other CRC-32. Sixteen bytes a step by sixteen tables: 1.3 GB/s, against 0.7
 * with eight bytes read one by one.
 */

import { endianness } from 'node:os';
import type { Bytes } from './codec.ts';

/** The reversed polynomial. */
const POLYNOMIAL = 0x82f63b78;
const MASK_DELTA = 0xa282ead8;
const STEP_WORDS = 4;
const WORD_BYTES = 4;
const STEP_BYTES: number = STEP_WORDS * WORD_BYTES;
const TABLES = 16;

/** A function that gives the masked checksum, as the format stores it. */
export function createChecksum(): (bytes: Bytes) => number {
  const steps = createSteps();
  const { first } = steps;
  // The steps take words as they lie in memory, the lowest byte first.
  const canStep = endianness() === 'LE';
  return (bytes) => {
    // Words can be read only where they are aligned; elsewhere a copy is the cheaper way.
    const aligned = bytes.byteOffset % WORD_BYTES === 0 ? bytes : new Uint8Array(bytes);
    const stepCount = canStep ? Math.floor(aligned.length / STEP_BYTES) : 0;
    const words = new Int32Array(aligned.buffer, aligned.byteOffset, stepCount * STEP_WORDS);
    let crc = steps.run(words);
    for (let at = words.byteLength; at < bytes.length; at += 1) {
      crc = (first[(crc ^ (bytes[at] ?? 0)) & 0xff] ?? 0) ^ (crc >>> 8);
    }
    const sum = ~crc >>> 0;
    return (((sum >>> 15) | (sum << 17)) + MASK_DELTA) >>> 0;
  };
}

/** The sum of whole steps. */
function createSteps(): {
  readonly first: Int32Array;
  readonly run: (words: Int32Array) => number;
} {
  const tables = createTables();
  const [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15] = tables;
  // The dullest form is the quickest: no loop over tables.
  /* oxlint-disable typescript/no-non-null-assertion -- every index is below 256 or the length. */
  const run = (words: Int32Array): number => {
    let crc = -1;
    for (let at = 0; at < words.length; at += STEP_WORDS) {
      const a = words[at]! ^ crc;
      const b = words[at + 1]!;
      const c = words[at + 2]!;
      const d = words[at + 3]!;
      crc =
        t15![a & 0xff]! ^
        t14![(a >>> 8) & 0xff]! ^
        t13![(a >>> 16) & 0xff]! ^
        t12![a >>> 24]! ^
        t11![b & 0xff]! ^
        t10![(b >>> 8) & 0xff]! ^
        t9![(b >>> 16) & 0xff]! ^
        t8![b >>> 24]! ^
        t7![c & 0xff]! ^
        t6![(c >>> 8) & 0xff]! ^
        t5![(c >>> 16) & 0xff]! ^
        t4![c >>> 24]! ^
        t3![d & 0xff]! ^
        t2![(d >>> 8) & 0xff]! ^
        t1![(d >>> 16) & 0xff]! ^
        t0![d >>> 24]!;
    }
    return crc;
  };
  return { first: t0!, run };
  /* oxlint-enable typescript/no-non-null-assertion */
}

function createTables(): readonly Int32Array[] {
  const first = new Int32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    first[byte] = crc;
  }
  const tables = [first];
  for (let table = first; tables.length < TABLES; tables.push(table)) {
    // Each table is the one before, moved on by one zero byte.
    table = table.map((crc) => (crc >>> 8) ^ (first[crc & 0xff] ?? 0));
  }
  return tables;
}
