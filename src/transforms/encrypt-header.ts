/**
 * encrypt-header — the first bytes of an encrypted body: how it was encrypted, and with which key.
 *
 *   0   4  magic "RSPE"            43   7  nonce prefix, random
 *   4   1  version 1               50   1  length of the key's id, 1 to 64
 *   5   1  cipher 1 or 2           51   n  the key's id
 *   6   1  flags, bit 0: padded    then the chunks
 *   7   4  plain bytes in a chunk
 *  11  32  salt, random            numbers are unsigned, big endian
 *
 * docs/reference/body-format.md is the description for others; every byte of a header is
 * authenticated with every chunk.
 */

import { isKeyId } from './key.ts';

/** The ciphers, by the name that encodings and Node have for them. */
export type Cipher = 'aes-256-gcm' | 'chacha20-poly1305';

export const CIPHERS: readonly Cipher[] = ['aes-256-gcm', 'chacha20-poly1305'];
/**
 * n.b. Every chunk has a price: a MiB takes a tenth longer to read with 256 KiB, and half as long
 * again with 64 KiB. With a MiB it takes longer to write: what may be the last one is kept back.
 */
export const CHUNK_BYTES = 524_288;
export const SALT_BYTES = 32;
export const PREFIX_BYTES = 7;
export const CHUNK_MAX_BYTES = 1_048_576;

const MAGIC = 'RSPE';
const VERSION = 1;
const CODES: Readonly<Record<Cipher, number>> = { 'aes-256-gcm': 1, 'chacha20-poly1305': 2 };
const PADDED = 1;

const CIPHER_AT = 5;
const FLAGS_AT = 6;
const CHUNK_BYTES_AT = 7;
const SALT_AT = 11;
const PREFIX_AT = SALT_AT + SALT_BYTES;
const KEY_LENGTH_AT = PREFIX_AT + PREFIX_BYTES;
const KEY_AT = KEY_LENGTH_AT + 1;

/** What a header says. */
export interface HeaderFields {
  readonly cipher: Cipher;
  readonly isPadded: boolean;
  readonly chunkBytes: number;
  readonly salt: Uint8Array;
  readonly prefix: Uint8Array;
  readonly keyId: string;
}

/** A header, and its bytes as they are stored. */
export interface EncryptHeader extends HeaderFields {
  readonly bytes: Uint8Array;
}

/** A new header. */
export function createHeader(fields: HeaderFields): EncryptHeader {
  const { cipher, isPadded, chunkBytes, salt, prefix, keyId } = fields;
  const bytes = Buffer.alloc(KEY_AT + keyId.length);
  bytes.write(MAGIC, 0, 'latin1');
  bytes[MAGIC.length] = VERSION;
  bytes[CIPHER_AT] = CODES[cipher];
  bytes[FLAGS_AT] = isPadded ? PADDED : 0;
  bytes.writeUInt32BE(chunkBytes, CHUNK_BYTES_AT);
  bytes.set(salt, SALT_AT);
  bytes.set(prefix, PREFIX_AT);
  bytes[KEY_LENGTH_AT] = keyId.length;
  bytes.write(keyId, KEY_AT, 'latin1');
  return { ...fields, bytes };
}

/** How long the header is that begins so; undefined where that is not known yet. */
export function headerLength(start: Uint8Array): number | undefined {
  const keyLength = start[KEY_LENGTH_AT];
  return keyLength === undefined ? undefined : KEY_AT + keyLength;
}

/** What a whole header says, or a text that says why it is none. */
export function parseHeader(bytes: Uint8Array): EncryptHeader | string {
  // A copy: the key may have to be fetched before the salt is used.
  const view = Buffer.from(bytes);
  if (view.toString('latin1', 0, MAGIC.length) !== MAGIC) return 'it does not begin as one';
  const version = view[MAGIC.length] ?? 0;
  if (version > VERSION) {
    return `it is of version ${version}, written by a newer version of respool; update this one`;
  }
  if (version !== VERSION) return `there is no version ${version}`;
  if (view.length !== headerLength(view)) return 'it ends inside its header';
  const cipher = CIPHERS.find((name) => CODES[name] === view[CIPHER_AT]);
  if (cipher === undefined) return `there is no cipher ${view[CIPHER_AT]}`;
  const flags = view[FLAGS_AT] ?? 0;
  if ((flags & ~PADDED) !== 0) return `there are no flags ${flags}`;
  const chunkBytes = view.readUInt32BE(CHUNK_BYTES_AT);
  if (chunkBytes < 1 || chunkBytes > CHUNK_MAX_BYTES) {
    return `a chunk of ${chunkBytes} bytes is none; allowed are 1 to ${CHUNK_MAX_BYTES}`;
  }
  const keyId = view.toString('latin1', KEY_AT);
  if (!isKeyId(keyId)) return "its key's id is none";
  return {
    bytes: view,
    cipher,
    isPadded: (flags & PADDED) !== 0,
    chunkBytes,
    salt: view.subarray(SALT_AT, PREFIX_AT),
    prefix: view.subarray(PREFIX_AT, KEY_LENGTH_AT),
    keyId,
  };
}
