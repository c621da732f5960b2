/**
 * memory — buffers of streams that are released or reused as soon as their reader is done with
 * them; the reader declares how much it still needs (`setReadWindow`); also `readWhole`, and the
 * hint that makes V8 collect buffers that cannot be released.
 *
 * V8 counts only the small object in front of a buffer: by itself it lets 64 MiB of unused buffers
 * gather before it collects them, and every new one costs page faults. A stage of a stream that
 * knows how much of its output is still read releases the rest at once.
 *
 * Promise: memory that a reader may still read is never released or reused.
 *
 * Why: docs/decisions/0045-stream-memory-is-reused.md
 */

/**
 * How many of the last bytes of a stream its reader still reads when it asks for the next part;
 * undefined: all of them, so that nothing is reused.
 */
export interface ReadWindow {
  maxBytes: number | undefined;
}

// Found by the stream, not passed as a parameter: no interface has to carry it, and a foreign
// stream between two of ours has no window, so that nothing behind it is reused.
const windows = new WeakMap<object, ReadWindow>();

/** A stream that reuses its memory behind the window of its reader, as it is at the first part. */
export function streamWithWindow<Stream extends AsyncIterable<Uint8Array>>(
  make: (window: ReadWindow) => Stream,
): Stream {
  const window: ReadWindow = { maxBytes: undefined };
  const stream = make(window);
  windows.set(stream, window);
  return stream;
}

/** Called by the only reader of a stream, before it asks for the first part. */
export function setReadWindow(stream: AsyncIterable<unknown>, maxBytes: number | undefined): void {
  const window = windows.get(stream);
  if (window !== undefined) window.maxBytes = maxBytes;
}

/** For a stream that passes on the parts of its source: both have the same window. */
export function shareWindow<Stream extends AsyncIterable<Uint8Array>>(
  source: AsyncIterable<Uint8Array>,
  stream: Stream,
): Stream {
  const window = windows.get(source);
  if (window !== undefined) windows.set(stream, window);
  return stream;
}

/** Parts that were handed to a reader, and are freed once they are outside its window. */
export class ReusedMemory<Part> {
  readonly #windowBytes: number;
  readonly #free: (part: Part) => void;
  readonly #handedOut: { readonly part: Part; readonly bytes: number }[] = [];
  #bytes = 0;

  /** `free` is called with parts that are before the last `windowBytes`. */
  constructor(windowBytes: number, free: (part: Part) => void) {
    this.#windowBytes = windowBytes;
    this.#free = free;
  }

  /** Says that a part was handed to the reader. If one is not reported, the others stay longer. */
  handOut(part: Part, bytes: number): void {
    this.#handedOut.push({ part, bytes });
    this.#bytes += bytes;
  }

  /** Frees what is outside the window. Called when the reader asks for more, and only then. */
  reclaim(): void {
    for (let first = this.#handedOut[0]; first !== undefined; first = this.#handedOut[0]) {
      if (this.#bytes - first.bytes < this.#windowBytes) return;
      this.#handedOut.shift();
      this.#bytes -= first.bytes;
      this.#free(first.part);
    }
  }
}

/**
 * Returns the memory of a buffer at once (ArrayBuffer.transfer). A later read of the buffer finds
 * no bytes, never those of another owner.
 *
 * A chunk of 256 KiB out of a cipher took 61 µs with it and 113 to 148 µs without, in processor
 * time: the next one finds memory that is mapped already. (2026-11-18, Node 24.21)
 */
export function detachBuffer({ buffer, byteLength }: Uint8Array): void {
  // A view of something larger is not alone in it.
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

/** Buffers that are handed out and reused once they are outside the reader's window. */
export class ReusedBuffers {
  readonly #spare: Buffer[] = [];
  readonly #lent: ReusedMemory<Buffer>;

  constructor(windowBytes: number) {
    this.#lent = new ReusedMemory(windowBytes, (memory) => this.#spare.push(memory));
  }

  /** A buffer of at least this size, with any content; hand it out before you take the next. */
  take(bytes: number): Buffer {
    this.#lent.reclaim();
    const spare = this.#spare.pop();
    return spare !== undefined && spare.length >= bytes ? spare : Buffer.allocUnsafeSlow(bytes);
  }

  /** The part of a taken buffer that is handed to the reader. */
  handOut(memory: Buffer, bytes: number): Uint8Array {
    this.#lent.handOut(memory, bytes);
    return memory.subarray(0, bytes);
  }
}

/** Maximum bytes reserved for an expected size, which may be wrong, before half of it has come. */
const RESERVED_MAX_BYTES: number = 32 * 2 ** 20;
const USED_MIN = 0.75;

/** All bytes of a stream in one buffer; `expectedBytes` is only a guess of their number. */
export async function readWhole(
  stream: AsyncIterable<Uint8Array>,
  expectedBytes: number,
): Promise<Buffer> {
  let memory: Buffer | undefined;
  let length = 0;
  // Each part is copied before the next is asked for.
  setReadWindow(stream, 0);
  for await (const part of stream) {
    if (part.length === 0) continue;
    const needed = length + part.length;
    if (memory === undefined || memory.length < needed) {
      const roomy = Math.max(2 * needed, RESERVED_MAX_BYTES);
      const isLikely = expectedBytes >= needed && expectedBytes <= roomy;
      const grown = Buffer.allocUnsafeSlow(isLikely ? expectedBytes : 2 * needed);
      if (memory !== undefined) grown.set(memory.subarray(0, length));
      memory = grown;
    }
    memory.set(part, length);
    length = needed;
  }
  const whole = memory?.subarray(0, length) ?? Buffer.alloc(0);
  // Do not keep large amounts of unused memory.
  return whole.length < whole.buffer.byteLength * USED_MIN ? Buffer.from(whole) : whole;
}

/**
 * Unreleased bytes between two hints to V8. Also in decision 0045, whose 32 MiB of output are
 * counted by half (spool/body.ts).
 */
const HINT_EVERY_BYTES: number = 16 * 2 ** 20;
/** With what was streamed it makes the 64 MiB at which V8 looks for dead buffers. */
const HINT_BYTES: number = 48 * 2 ** 20;
/**
 * A collection goes through the whole heap: in a larger one it costs more than it gains. Also in
 * decision 0045.
 */
const HEAP_MAX_BYTES: number = 64 * 2 ** 20;
let streamedBytes = 0;

/**
 * Counts bytes in buffers that we cannot release, because the caller's stream made them or its
 * reader may keep them; most are unused soon. Every 16 MiB, V8 is made to collect them, unless its
 * heap is large.
 *
 * V8 counts the size of buffers, not how much of them is used. So a buffer of 48 MiB that is never
 * written is a hint that takes no memory: the system maps no page of it. V8 then collects about as
 * often as it did when our own buffers were garbage too.
 *
 * 1 GiB through zstd and AES-256-GCM: 125 to 127 MB at most with it, 151 to 163 MB without.
 * Every 8 MiB: 112 MB, for a twentieth more processor time. (2026-11-18, Node 24.21, 2 cores)
 */
export function countUnreleasedBytes(bytes: number): void {
  streamedBytes += bytes;
  if (streamedBytes < HINT_EVERY_BYTES) return;
  streamedBytes = 0;
  if (process.memoryUsage().heapUsed > HEAP_MAX_BYTES) return;
  try {
    // n.b. Above 32 MiB glibc maps new pages each time, and has nothing to fill with zeros.
    void new ArrayBuffer(HINT_BYTES);
  } catch {
    // Ignored on purpose: without address space for a hint, V8 collects when it decides to.
  }
}
