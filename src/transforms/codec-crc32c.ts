/**
 * codec-crc32c — the checksum of the snappy framing format (CRC-32C, Castagnoli).
 *
 * Node has only the other CRC-32. Eight bytes a step by eight tables: over 1 GB/s.
 */

import type { Bytes } from './codec.ts';

/** The reversed polynomial. */
const POLYNOMIAL = 0x82f63b78;
const MASK_DELTA = 0xa282ead8;

/** A function that gives the masked checksum, as the format stores it. */
export function createChecksum(): (bytes: Bytes) => number {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = createTables();
  // The dullest form is the quickest: no loop over tables, no view, no bound that is not plain.
  /* oxlint-disable typescript/no-non-null-assertion -- every index is below 256 or the length. */
  return (bytes) => {
    let crc = -1;
    let at = 0;
    for (const end = bytes.length - 7; at < end; at += 8) {
      crc ^= bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
      crc =
        t7[crc & 0xff]! ^
        t6[(crc >>> 8) & 0xff]! ^
        t5[(crc >>> 16) & 0xff]! ^
        t4[crc >>> 24]! ^
        t3[bytes[at + 4]!]! ^
        t2[bytes[at + 5]!]! ^
        t1[bytes[at + 6]!]! ^
        t0[bytes[at + 7]!]!;
    }
    for (; at < bytes.length; at += 1) crc = t0[(crc ^ bytes[at]!) & 0xff]! ^ (crc >>> 8);
    const sum = ~crc >>> 0;
    return (((sum >>> 15) | (sum << 17)) + MASK_DELTA) >>> 0;
  };
  /* oxlint-enable typescript/no-non-null-assertion */
}

type Table = Int32Array;
type Tables = readonly [Table, Table, Table, Table, Table, Table, Table, Table];

function createTables(): Tables {
  const first = new Int32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
    first[byte] = crc;
  }
  // Each table is the one before, moved on by one zero byte.
  const moved = (table: Table): Table => table.map((crc) => (crc >>> 8) ^ (first[crc & 0xff] ?? 0));
  const t1 = moved(first);
  const t2 = moved(t1);
  const t3 = moved(t2);
  const t4 = moved(t3);
  const t5 = moved(t4);
  const t6 = moved(t5);
  return [first, t1, t2, t3, t4, t5, t6, moved(t6)];
}
