/**
 * transform — the interface of compression, encryption and other changes of a body's bytes between
 * the caller and the store.
 *
 * Transforms are applied in the order of the list when a body is written, and undone in reverse
 * when it is read. Each body records what was applied, so that it stays readable when the list
 * changes.
 */

/** What a transform knows about the body that it writes. */
export interface WriteContext {
  /** The message the body belongs to. */
  readonly id: string;
}

/** What a transform knows about the body that it reads. */
export interface ReadContext {
  /** The message the body belongs to. */
  readonly id: string;
  /** No honest body decodes to more bytes than this; Infinity where nothing is known. */
  readonly maxBytes: number;
}

/** Writes one body through a transform; used once. It never changes the bytes it is given. */
export interface BodyWriter {
  /** The reader of the result may keep its parts. */
  encode(stream: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
  /** `encode` for a body that is whole in memory; a promise only where it takes long. */
  encodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
  /**
   * What the envelope records: all that `reader` needs to undo it. Known when the bytes are out.
   */
  readonly encoding: string;
  /** With it the digest over the plain bytes is an HMAC-SHA-256, without it a SHA-256. */
  readonly digestKey?: Uint8Array;
}

/** Reads one body through a transform; used once. It never changes the bytes it is given. */
export interface BodyReader {
  /** Fails with `body.corrupt` where the bytes cannot be what `encode` wrote. */
  decode(stream: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array>;
  decodeBytes(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
  /** The key of the digest, once the first byte or the end is out. */
  readonly digestKey?: Uint8Array;
}

/** A change of bodies before they are stored, undone when they are read. */
export interface Transform {
  /** Lower case letters, digits and dashes; unique in a list. */
  readonly name: string;
  /** At most one compression and one encryption in a list, in this order. */
  readonly kind: 'compression' | 'encryption' | 'other';
  /** Called before the first body, again only if it failed: fetches keys and optional packages. */
  open?(): Promise<void>;
  /** Absent on a transform that only reads what was written before. */
  writer?(context: WriteContext): BodyWriter;
  /** Undefined for an encoding that is not one of this transform's. */
  reader(encoding: string, context: ReadContext): BodyReader | undefined;
}
