/**
 * pad — hide the exact length of what is encrypted.
 *
 * After the last byte comes 0x80, then zeros up to a length that few bits tell (Padmé): at most
 * 12 % more, and the less, the longer it is. A reader takes off the last 0x80 and what follows.
 */

const MARK = 0x80;

/** Zeros to give out, a piece at a time. */
const ZEROS: Uint8Array = new Uint8Array(64 * 1_024);
const MARK_PIECE: Uint8Array = Uint8Array.of(MARK);

/** The length that this many bytes have once they are padded, with the mark. */
export function paddedLength(bytes: number): number {
  return padme(bytes + 1);
}

/** The padding after this many bytes. */
export function* paddingAfter(bytes: number): Generator<Uint8Array> {
  yield* padding(paddedLength(bytes) - bytes - 1);
}

/** The bytes before the padding, or undefined where there is none. */
export function withoutPadding(bytes: Uint8Array): Uint8Array | undefined {
  const at = lastNonZero(bytes);
  return at >= 0 && bytes[at] === MARK ? bytes.subarray(0, at) : undefined;
}

/** Takes the padding off a stream: holds back what may be padding until more comes. */
export class PadStripper {
  /** Zeros since the last mark; undefined where the bytes so far cannot end in padding. */
  #zeros: number | undefined;

  /** What is no padding for sure, in order, of some parts. */
  *pushAll(parts: readonly Uint8Array[]): Generator<Uint8Array> {
    for (const part of parts) yield* this.push(part);
  }

  /** The same of one part. */
  *push(bytes: Uint8Array): Generator<Uint8Array> {
    const at = lastNonZero(bytes);
    if (at < 0 && this.#zeros !== undefined) {
      this.#zeros += bytes.length;
      return;
    }
    if (at >= 0 && this.#zeros !== undefined) {
      yield* padding(this.#zeros);
      this.#zeros = undefined;
    }
    const isMark = at >= 0 && bytes[at] === MARK;
    if (isMark) this.#zeros = bytes.length - at - 1;
    const rest = isMark ? bytes.subarray(0, at) : bytes;
    if (rest.length > 0) yield rest;
  }

  /** Whether what came last was padding. */
  get isPadded(): boolean {
    return this.#zeros !== undefined;
  }
}

/** Keeps the upper bits of a length: about as many as the length of the length. */
function padme(length: number): number {
  let exponent = 0;
  while (2 ** (exponent + 1) <= length) exponent += 1;
  if (exponent < 2) return length;
  const kept = Math.floor(Math.log2(exponent)) + 1;
  const step = 2 ** (exponent - kept);
  return Math.ceil(length / step) * step;
}

function* padding(zeros: number): Generator<Uint8Array> {
  yield MARK_PIECE;
  for (let left = zeros; left > 0; left -= ZEROS.length) yield ZEROS.subarray(0, left);
}

function lastNonZero(bytes: Uint8Array): number {
  let at = bytes.length - 1;
  while (at >= 0 && bytes[at] === 0) at -= 1;
  return at;
}
