/**
 * transform-ciphers — both ciphers, beside one call of node:crypto over the whole body.
 *
 * The one call is made as Node's documentation makes it, with the key as bytes, one nonce and one
 * tag. To encode, it joins them to one buffer, as one would store it; to decode, it joins nothing.
 * Ours derives a key for each body, and makes a nonce and a tag for each 512 KiB.
 */

import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { type Cipher, encrypt } from 'respool/transforms';
import { drain, drainReusing, partsOf, type TransformStep } from './transform-step.ts';

const CIPHERS: readonly Cipher[] = ['aes-256-gcm', 'chacha20-poly1305'];
const TAG = { authTagLength: 16 } as const;
const NONCE_BYTES = 12;

/** Encode and decode of every cipher. */
export const cipherSteps: readonly TransformStep[] = CIPHERS.flatMap((cipher) => [
  encodeStep(cipher),
  decodeStep(cipher, { isKept: false }),
  decodeStep(cipher, { isKept: true }),
]);

function encodeStep(cipher: Cipher): TransformStep {
  return {
    name: `${cipher} encode`,
    prepare: async (body) => {
      const transform = encrypt({ keys: { k1: randomBytes(32) }, cipher });
      const lock = locker(cipher);
      return {
        ours: () => {
          const writer = transform.writer?.({ id: 'bench' });
          if (writer === undefined) throw new Error(`${cipher} does not write`);
          return drain(writer.encode(partsOf(body)));
        },
        theirs: () => lock.lock(body),
      };
    },
  };
}

/** `isKept`: for a reader who may keep every part, as that of `stream()`. */
function decodeStep(cipher: Cipher, { isKept }: { readonly isKept: boolean }): TransformStep {
  const read = isKept ? drain : drainReusing;
  return {
    name: `${cipher} decode${isKept ? ', kept' : ''}`,
    prepare: async (body) => {
      const transform = encrypt({ keys: { k1: randomBytes(32) }, cipher });
      const writer = transform.writer?.({ id: 'bench' });
      if (writer === undefined) throw new Error(`${cipher} does not write`);
      const stored = await writer.encodeBytes(body);
      const lock = locker(cipher);
      const locked = lock.lock(body);
      return {
        ours: async () => {
          const context = { id: 'bench', maxBytes: body.length };
          const reader = transform.reader(writer.encoding, context);
          if (reader === undefined) throw new Error(`nobody reads ${writer.encoding}`);
          const bytes = await read(reader.decode(partsOf(stored)));
          if (bytes !== body.length) throw new Error(`${cipher} lost bytes`);
        },
        theirs: () => lock.unlock(locked),
      };
    },
  };
}

interface Locker {
  lock(body: Buffer): Buffer;
  unlock(locked: Buffer): Buffer;
}

function locker(cipher: Cipher): Locker {
  const key = randomBytes(32);
  // The types know the tag of a GCM cipher only; the other has it just the same.
  const name = cipher as 'aes-256-gcm';
  return {
    lock: (body) => {
      const nonce = randomBytes(NONCE_BYTES);
      const work = createCipheriv(name, key, nonce, TAG);
      return Buffer.concat([nonce, work.update(body), work.final(), work.getAuthTag()]);
    },
    unlock: (locked) => {
      const work = createDecipheriv(name, key, locked.subarray(0, NONCE_BYTES), TAG);
      work.setAuthTag(locked.subarray(-TAG.authTagLength));
      const body = work.update(locked.subarray(NONCE_BYTES, -TAG.authTagLength));
      work.final();
      return body;
    },
  };
}
