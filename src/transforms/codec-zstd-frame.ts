/**
 * codec-zstd-frame — finds the end of the one zstd frame that a body is (RFC 8878, section 3.1.1).
 *
 * Node does not tell: 22 takes a frame that is cut for a shorter one, and 22 and 24 leave out what
 * follows the first frame. Only the lengths of blocks are looked at, so it costs next to nothing.
 */

import { type Bytes, Damaged } from './codec.ts';

const MAGIC = 0xfd2fb528;
const START_BYTES = 5;
const BLOCK_HEADER_BYTES = 3;
const CHECKSUM_BYTES = 4;
const RLE_BLOCK = 1;
const RESERVED_BLOCK = 3;
/** By the two lowest bits of the descriptor. */
const DICTIONARY_ID_BYTES = [0, 1, 2, 4] as const;
/** By the two highest bits of the descriptor. */
const CONTENT_SIZE_BYTES = [0, 2, 4, 8] as const;

/** Walks along a frame, piece by piece. */
export class ZstdFrame {
  #step: 'start' | 'block' | 'over' = 'start';
  readonly #head: Buffer = Buffer.alloc(START_BYTES);
  #headBytes = 0;
  #skipBytes = 0;
  #hasChecksum = false;

  /** Takes the next piece; bytes after the end of the frame are damage. */
  scan(piece: Bytes): void {
    let at = 0;
    while (at < piece.length) {
      if (this.#skipBytes > 0) {
        const skipped = Math.min(this.#skipBytes, piece.length - at);
        this.#skipBytes -= skipped;
        at += skipped;
      } else if (this.#step === 'over') {
        throw new Damaged('there are bytes after its end');
      } else {
        this.#head[this.#headBytes] = piece[at] ?? 0;
        this.#headBytes += 1;
        at += 1;
        const neededBytes = this.#step === 'start' ? START_BYTES : BLOCK_HEADER_BYTES;
        if (this.#headBytes === neededBytes) this.#take();
      }
    }
  }

  /** No more pieces: a frame that is not whole is damage. */
  end(): void {
    if (this.#step === 'over' && this.#skipBytes === 0) return;
    throw new Damaged('it ends too early');
  }

  #take(): void {
    this.#headBytes = 0;
    if (this.#step === 'start') this.#takeStart();
    else this.#takeBlock();
  }

  #takeStart(): void {
    if (this.#head.readUInt32LE(0) !== MAGIC) throw new Damaged('it does not begin as zstd does');
    const descriptor = this.#head[4] ?? 0;
    const isSingleSegment = (descriptor & 0x20) !== 0;
    const sizeBytes = CONTENT_SIZE_BYTES[(descriptor >> 6) as 0 | 1 | 2 | 3];
    this.#hasChecksum = (descriptor & 0x04) !== 0;
    this.#skipBytes =
      (isSingleSegment ? Math.max(1, sizeBytes) : 1 + sizeBytes) +
      DICTIONARY_ID_BYTES[(descriptor & 0x03) as 0 | 1 | 2 | 3];
    this.#step = 'block';
  }

  #takeBlock(): void {
    const header = this.#head.readUIntLE(0, BLOCK_HEADER_BYTES);
    const kind = (header >> 1) & 0x03;
    if (kind === RESERVED_BLOCK) throw new Damaged('a block of it has no known kind');
    this.#skipBytes = kind === RLE_BLOCK ? 1 : header >> 3;
    if ((header & 1) === 0) return;
    this.#step = 'over';
    if (this.#hasChecksum) this.#skipBytes += CHECKSUM_BYTES;
  }
}
