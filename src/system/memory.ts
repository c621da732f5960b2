/**
 * memory — buffers that are released or reused as soon as they are no longer read.
 *
 * V8 sees only the small object in front of a buffer: left to itself it lets 64 MiB of dead ones
 * gather before it looks, and every new one costs page faults. A stage of a stream that knows how
 * much of what it gave is still read lets go of the rest at once.
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

// By the stream, not by a parameter: no interface carries it, and a stream of anyone else's making
// between two of ours has no window, so that nothing behind it is reused.
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

/** A stream that hands on the parts of its source: its reader's window is that of the source. */
export function shareWindow<Stream extends AsyncIterable<Uint8Array>>(
  source: AsyncIterable<Uint8Array>,
  stream: Stream,
): Stream {
  const window = windows.get(source);
  if (window !== undefined) windows.set(stream, window);
  return stream;
}

/** Parts that were passed to a reader of only their last bytes. */
export class ReusedMemory<Part> {
  readonly #heldMaxBytes: number;
  readonly #free: (part: Part) => void;
  readonly #given: { readonly part: Part; readonly bytes: number }[] = [];
  #bytes = 0;

  /** `free` is called with what is beyond the last `heldMaxBytes`. */
  constructor(heldMaxBytes: number, free: (part: Part) => void) {
    this.#heldMaxBytes = heldMaxBytes;
    this.#free = free;
  }

  /** Parts that are not reported count as none: then the others are kept for longer. */
  give(part: Part, bytes: number): void {
    this.#given.push({ part, bytes });
    this.#bytes += bytes;
  }

  /** More is asked for: only now is it true that what was given before is no longer read. */
  asked(): void {
    for (let first = this.#given[0]; first !== undefined; first = this.#given[0]) {
      if (this.#bytes - first.bytes < this.#heldMaxBytes) return;
      this.#given.shift();
      this.#bytes -= first.bytes;
      this.#free(first.part);
    }
  }
}

/**
 * Gives the memory of a buffer back at once. A later read of it finds no bytes, not those of
 * another owner.
 *
 * A chunk of 256 KiB out of a cipher took 61 µs with it and 113 to 148 µs without, in processor
 * time: the next one finds memory that is mapped already. (2026-11-18, Node 24.21)
 */
export function letGo({ buffer, byteLength }: Uint8Array): void {
  // A view of something larger is not alone in it.
  if (buffer instanceof ArrayBuffer && buffer.byteLength === byteLength) buffer.transfer(0);
}

/** Buffers of one size or another that are lent and come back. */
export class ReusedBuffers {
  readonly #spare: Buffer[] = [];
  readonly #lent: ReusedMemory<Buffer>;

  constructor(heldMaxBytes: number) {
    this.#lent = new ReusedMemory(heldMaxBytes, (memory) => this.#spare.push(memory));
  }

  /** Memory of at least this size, with anything in it; given on before the next is taken. */
  take(bytes: number): Buffer {
    this.#lent.asked();
    const spare = this.#spare.pop();
    return spare !== undefined && spare.length >= bytes ? spare : Buffer.allocUnsafeSlow(bytes);
  }

  /** Says how much of it was given on. */
  give(memory: Buffer, bytes: number): Uint8Array {
    this.#lent.give(memory, bytes);
    return memory.subarray(0, bytes);
  }
}

/** Maximum bytes reserved at once for an expected size, which may be wrong. */
const RESERVED_MAX_BYTES: number = 32 * 2 ** 20;
const USED_MIN = 0.75;

/** All bytes of a stream in one memory. This many are expected; what comes is what counts. */
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

/** Streamed bytes between two hints. */
const HINT_EVERY_BYTES: number = 16 * 2 ** 20;
/** With what was streamed it makes the 64 MiB at which V8 looks for dead buffers. */
const HINT_BYTES: number = 48 * 2 ** 20;
/** A look goes through the whole heap: in a large one it costs more than the memory is worth. */
const HEAP_MAX_BYTES: number = 64 * 2 ** 20;
let streamedBytes = 0;

/**
 * Counts bytes in buffers that we cannot let go, because the caller's stream made them or its
 * reader may keep them; most are dead soon. Every 16 MiB, V8 is made to look for them.
 *
 * It counts the size of buffers, not what is used of them. So one of 48 MiB that is not written to
 * is a hint that takes no memory: the system maps no page of it. V8 looks about as often as it did
 * when our own buffers were garbage, too.
 *
 * 1 GiB through zstd and AES-256-GCM: 125 to 127 MB at most with it, 151 to 163 MB without.
 * Every 8 MiB: 112 MB, for a twentieth more processor time. (2026-11-18, Node 24.21, 2 cores)
 */
export function countStreamed(bytes: number): void {
  streamedBytes += bytes;
  if (streamedBytes < HINT_EVERY_BYTES) return;
  streamedBytes = 0;
  if (process.memoryUsage().heapUsed > HEAP_MAX_BYTES) return;
  try {
    // n.b. Above 32 MiB glibc maps new pages each time, and has nothing to fill with zeros.
    void new ArrayBuffer(HINT_BYTES);
  } catch {
    // Dropped on purpose: where no address space is left for a hint, V8 looks when it likes.
  }
}
