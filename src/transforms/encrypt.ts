/**
 * encrypt, decrypt — the transforms that encrypt bodies with AES-256-GCM or ChaCha20-Poly1305;
 * every change of an encrypted body is detected when it is read.
 *
 * The key of a body is derived from a key of the ring, a random salt and the message's id; the
 * body is encrypted in chunks, so that it streams. The format: docs/reference/body-format.md.
 */

import { randomBytes } from 'node:crypto';
import { assert, RespoolError, show } from '../core/errors.ts';
import type { ReadContext, Transform } from '../ports/transform.ts';
import { CHUNK_BYTES, createHeader, PREFIX_BYTES, SALT_BYTES } from './encrypt-format.ts';
import { EncryptReader, type EncryptRecord, EncryptWriter } from './encrypt-stream.ts';
import { isKeyId, KeyRing } from './key-ring.ts';
import {
  checkDecryptOptions,
  checkEncryptOptions,
  type Cipher,
  CIPHERS,
  type DecryptOptions,
  type EncryptOptions,
} from './options.ts';

/** Settings for tests and for making test vectors only. */
export interface EncryptInternals {
  /** Makes salt and nonce prefix: using the same twice under one key would break the encryption. */
  readonly random?: (bytes: number) => Uint8Array;
  readonly chunkBytes?: number;
  readonly firstCounter?: number;
}

/** Encrypts bodies, and reads what any key of the ring encrypted with either cipher. */
export function encrypt(options: EncryptOptions): Transform {
  return encryptWith(options, {});
}

/**
 * Reads encrypted bodies and writes none: for after encryption was switched off.
 *
 * @example
 * import { createSpool } from 'respool';
 * import { decrypt } from 'respool/transforms';
 * // Reads bodies that were encrypted before, and writes new ones as they are.
 * const transforms = [decrypt({ keys: { k1: 'env:SPOOL_KEY' } })];
 * const reader = createSpool({ path: 'spool', transforms });
 */
export function decrypt(options: DecryptOptions): Transform {
  checkDecryptOptions(options);
  const ring = new KeyRing('decrypt', options);
  return {
    name: 'decrypt',
    kind: 'encryption',
    reader: (encoding, context) => readerOf(ring, encoding, context),
  };
}

/** `encrypt` with random numbers and sizes of the caller's, for tests. */
export function encryptWith(options: EncryptOptions, internals: EncryptInternals): Transform {
  const { cipher, pad: isPadded } = checkEncryptOptions(options);
  const { random = randomBytes, chunkBytes = CHUNK_BYTES, firstCounter = 0 } = internals;
  const ring = KeyRing.forWriting('encrypt', options);
  const { primary } = ring;
  assert(primary !== undefined, 'a ring for writing has no key to write with');
  return {
    name: cipher,
    kind: 'encryption',
    open: () => ring.open(),
    writer: ({ id }) => {
      const master = ring.loaded(primary);
      if (master === undefined) throw notOpen(primary);
      const chance = random(SALT_BYTES + PREFIX_BYTES);
      const header = createHeader({
        cipher,
        isPadded,
        chunkBytes,
        salt: chance.subarray(0, SALT_BYTES),
        prefix: chance.subarray(SALT_BYTES),
        keyId: primary,
      });
      return new EncryptWriter({ header, master, id, firstCounter });
    },
    reader: (encoding, context) => readerOf(ring, encoding, context),
  };
}

function readerOf(ring: KeyRing, encoding: string, { id }: ReadContext): EncryptReader | undefined {
  const [name, ...parameters] = encoding.split(';');
  const cipher = CIPHERS.find((one) => one === name);
  if (cipher === undefined) return undefined;
  const record = recordOf(cipher, parameters);
  if (record !== undefined) return new EncryptReader(ring, record, id);
  throw new RespoolError(
    'body.corrupt',
    `cannot decrypt the body of message "${id}": its entry says ${show(encoding)}, which was ` +
      'damaged or written by a newer version of respool; update this one',
  );
}

/**
 * Parses the parameters of an encoding; the only known one is the id of the key. As
 * EncryptWriter.encoding (encrypt-stream.ts) writes them; also in docs/reference/body-format.md.
 */
function recordOf(cipher: Cipher, parameters: readonly string[]): EncryptRecord | undefined {
  const [first = '', ...others] = parameters;
  const keyId = first.startsWith('key=') ? first.slice('key='.length) : undefined;
  return others.length === 0 && isKeyId(keyId) ? { cipher, keyId } : undefined;
}

function notOpen(id: string): RespoolError {
  return new RespoolError(
    'key.unavailable',
    `cannot encrypt a body: key "${id}" was not fetched yet; await open() of the transform first`,
  );
}
