/** signature — Standard Webhooks: how a receiver knows who sent a request, and that it is whole. */

import { createHmac, type Hmac } from 'node:crypto';
import { RespoolError } from '../../core/errors.ts';

/** A shorter key could be guessed. */
const KEY_MIN_BYTES = 16;
/** This many keys may be valid at once; two are enough to change one for another. */
const KEYS_MAX = 8;
const ENCODED = /^whsec_([A-Za-z0-9+/]+={0,2})$/;

/** The keys of the option `secret`; a text that begins with `whsec_` is base64. */
export function checkSecrets(secret: unknown): readonly Buffer[] {
  const list: readonly unknown[] = Array.isArray(secret) ? secret : [secret];
  if (list.length === 0 || list.length > KEYS_MAX) throw refused(`a list of ${list.length}`);
  return list.map((one) => {
    if (typeof one !== 'string') throw refused(one === null ? 'null' : `a value of ${typeof one}`);
    if (one.startsWith('whsec_') && !ENCODED.test(one)) throw refused('whsec_ without base64');
    const encoded = ENCODED.exec(one)?.[1];
    const key = encoded === undefined ? Buffer.from(one) : Buffer.from(encoded, 'base64');
    if (key.length < KEY_MIN_BYTES) throw refused(`a secret of ${key.length} bytes`);
    return key;
  });
}

/** Signs a body that comes in parts, with every key. */
export class Signer {
  readonly #macs: readonly Hmac[];

  constructor(keys: readonly Buffer[], id: string, seconds: number) {
    this.#macs = keys.map((key) => createHmac('sha256', key).update(`${id}.${seconds}.`));
  }

  update(part: Uint8Array): void {
    for (const mac of this.#macs) mac.update(part);
  }

  /** The value of `webhook-signature`: one signature for each key, separated by blanks. */
  done(): string {
    return this.#macs.map((mac) => `v1,${mac.digest('base64')}`).join(' ');
  }
}

function refused(what: string): RespoolError {
  // The value is not named: it is a secret, or meant to be one.
  return new RespoolError(
    'config.invalid',
    `cannot use ${what} as "secret": allowed is a text of ${KEY_MIN_BYTES} bytes or more, ` +
      `'whsec_' and base64 of as many, or a list of 1 to ${KEYS_MAX} such texts; ` +
      'leave the option out to send unsigned requests',
  );
}
