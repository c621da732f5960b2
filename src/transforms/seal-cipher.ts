/**
 * seal-cipher — encrypts and decrypts the short texts of a sealed store with the keys of a ring,
 * each bound to the place that it belongs to; and makes seal tokens.
 *
 *   ring key ─HKDF─▶ root ─HMAC(salt)─▶ key ─AES-256-GCM─▶ v1:<key id>:<salt nonce bytes tag>
 *                └─▶ token key ─HMAC(value)─▶ sealed.<16 characters>
 *
 * A status is sealed on every step. With one key for all, the 2³² random nonces that the cipher
 * allows would be used up in ten days at 5,000 a second. So each sealing process makes a salt, and
 * with it a key of its own, for at most 2²⁴ texts: the probability that two share a nonce is 2⁻⁴⁹.
 * A key per message would work too, but takes twice the time. (2026-11-15) The place is
 * authenticated: a text can be decrypted only for the place it was sealed for. Sealing and
 * unsealing are synchronous; `loadKeys` and `loadKeysSoon` fetch keys before. They do not throw if
 * a key cannot be fetched, because texts of other keys must still be decrypted.
 */

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
  randomFillSync,
} from 'node:crypto';
import { RespoolError, textOf } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import { systemClock } from '../system/clock.ts';
import { withTimeout } from '../system/wait.ts';
import { isKeyId, type KeyRing } from './key-ring.ts';

/** What a token stands for; one value has different tokens for different kinds. */
type TokenKind = 'code' | 'fingerprint' | 'destination';

/** What a text belongs to: `message`, its id and a part; or `log` or `map` of a kind of records. */
export type SealPlace = readonly string[];

/**
 * Keys that could not be fetched, and the error of the ring: `key.unavailable` if it has none of
 * that id, `store.unavailable` if that cannot be found out now.
 */
export type MissingKeys = ReadonlyMap<string, RespoolError>;

/** The salt and key for the next texts. */
interface Sealing {
  readonly salt: Buffer;
  readonly key: KeyObject;
  textsLeft: number;
}

/** A key that could not be fetched a moment ago. */
interface KeyOutage {
  readonly error: RespoolError;
  /** Until when (monotonic) it is not fetched again. */
  readonly untilMs: number;
}

interface DerivedKeys {
  readonly texts: KeyObject;
  readonly tokens: KeyObject;
}

const CIPHER = 'aes-256-gcm';
const VERSION = 'v1';
const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const TEXT_AT: number = SALT_BYTES + NONCE_BYTES;
const AUTH: { readonly authTagLength: number } = { authTagLength: TAG_BYTES };
const ROOT_SALT = 'respool/v1/seal';
const TOKEN_PREFIX = 'sealed.';
/** Stored tokens have this length; test/transforms/seal-destinations.test.ts repeats it. */
const TOKEN_CHARS = 16;

/** Maximum number of texts per salt, except in tests. */
const TEXTS_PER_SALT_MAX = 2 ** 24;
/** Maximum number of cached keys; every sealing process makes one or a few. */
const SALTED_KEYS_MAX = 1_000;
/** Maximum number of cached tokens; codes, fingerprints and destinations recur. */
const TOKENS_MAX = 10_000;
const NONCE_POOL_BYTES = 3_072;
/** A caller that holds leases waits no longer for a key; the next call may get it. */
const LEASE_HOLDER_WAIT_MS = 1_000;
/** For this long, `loadKeysSoon` does not fetch a key again after an outage. */
const OUTAGE_KEPT_MS = 5_000;
const OUTAGES_MAX = 1_000;

const NONE_MISSING: MissingKeys = new Map();

/** Seals texts with the primary key of a ring and opens them with any. */
export class SealCipher {
  readonly #ring: KeyRing;
  readonly #clock: Clock;
  readonly #textsPerSalt: number;
  readonly #roots = new Map<string, DerivedKeys>();
  /** By key id and salt. */
  readonly #salted = new Map<string, KeyObject>();
  readonly #tokens = new Map<string, string>();
  readonly #outages = new Map<string, KeyOutage>();
  readonly #nonces = Buffer.alloc(NONCE_POOL_BYTES);
  #nonceAt = NONCE_POOL_BYTES;
  #sealing: Sealing | undefined;

  constructor(
    ring: KeyRing,
    textsPerSalt: number = TEXTS_PER_SALT_MAX,
    clock: Clock = systemClock,
  ) {
    this.#ring = ring;
    this.#clock = clock;
    this.#textsPerSalt = textsPerSalt;
  }

  /** Fetches the primary key. */
  open(): Promise<void> {
    return this.#ring.open();
  }

  /** The id of the primary key, which seals. */
  get primary(): string {
    return this.#ring.primary ?? '';
  }

  /** The ids of the keys that were used since the start. */
  get used(): readonly string[] {
    return [...this.#roots.keys()];
  }

  /** Whether the key is loaded, so that callers need not wait. */
  has(id: string): boolean {
    return this.#ring.loaded(id) !== undefined;
  }

  /** Seals a text with the primary key. */
  seal(place: SealPlace, text: string): string {
    const { salt, key } = this.#nextSealing();
    const nonce = this.#nextNonce();
    const cipher = createCipheriv(CIPHER, key, nonce, AUTH);
    cipher.setAAD(authenticatedData(place));
    const sealed = cipher.update(text, 'utf8');
    cipher.final();
    const bytes = Buffer.concat([salt, nonce, sealed, cipher.getAuthTag()]);
    return `${VERSION}:${this.primary}:${bytes.toString('base64url')}`;
  }

  /** Decrypts a text whose key is loaded; `store.corrupt` if it was not sealed for this place. */
  unseal(place: SealPlace, sealed: string): string {
    const { id, bytes } = readSealed(sealed);
    if (bytes.length < TEXT_AT + TAG_BYTES) throw damagedError(id);
    const key = this.#saltedKey(id, bytes.subarray(0, SALT_BYTES));
    const cipher = createDecipheriv(CIPHER, key, bytes.subarray(SALT_BYTES, TEXT_AT), AUTH);
    cipher.setAAD(authenticatedData(place));
    cipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    const text = cipher.update(bytes.subarray(TEXT_AT, -TAG_BYTES));
    try {
      cipher.final();
    } catch {
      // The tag does not match, and nothing of the text is returned.
      throw damagedError(id);
    }
    return text.toString('utf8');
  }

  /** Fetches keys; synchronous if all are loaded. Returns those that could not be fetched. */
  loadKeys(ids: Iterable<string>): MissingKeys | Promise<MissingKeys> {
    return this.#loadAbsent(ids, (id) => this.#load(id));
  }

  /**
   * `loadKeys` for a caller that holds leases, and for `open`: waits a second at most, and after an
   * outage (`store.unavailable`) returns the same error object for a while, without fetching again.
   */
  loadKeysSoon(ids: Iterable<string>): MissingKeys | Promise<MissingKeys> {
    return this.#loadAbsent(ids, (id) => this.#loadSoon(id));
  }

  /**
   * The token of a value: equal values of a kind have equal tokens under one key; it reveals
   * nothing without the key.
   */
  token(what: TokenKind, value: string, keyId: string = this.primary): string {
    const name = `${keyId}\n${what}\n${value}`;
    const known = this.#tokens.get(name);
    if (known !== undefined) return known;
    const mac = createHmac('sha256', this.#rootsOf(keyId).tokens).update(`${what}\n${value}`);
    const token = `${TOKEN_PREFIX}${mac.digest('base64url').slice(0, TOKEN_CHARS)}`;
    return setWithLimit(this.#tokens, name, token, TOKENS_MAX);
  }

  #loadAbsent(
    ids: Iterable<string>,
    lackOf: (id: string) => Promise<RespoolError | undefined>,
  ): MissingKeys | Promise<MissingKeys> {
    const absent = new Set<string>();
    for (const id of ids) if (this.#ring.loaded(id) === undefined) absent.add(id);
    return absent.size === 0 ? NONE_MISSING : loadEach(absent, lackOf);
  }

  /** Fetches a key; the error if that fails. */
  async #load(id: string): Promise<RespoolError | undefined> {
    try {
      await this.#ring.fetch(id);
      return undefined;
    } catch (error) {
      if (error instanceof RespoolError) return error;
      return new RespoolError('store.unavailable', textOf(error), { cause: error });
    }
  }

  async #loadSoon(id: string): Promise<RespoolError | undefined> {
    const before = this.#outages.get(id);
    if (before !== undefined && this.#clock.monotonic() < before.untilMs) return before.error;
    this.#outages.delete(id);
    const lack = await withTimeout(this.#clock, LEASE_HOLDER_WAIT_MS, this.#load(id), () =>
      lateError(id),
    );
    if (lack?.code !== 'store.unavailable') return lack;
    // Another call may have failed meanwhile: both return the same error.
    const found = this.#outages.get(id)?.error ?? lack;
    const untilMs = this.#clock.monotonic() + OUTAGE_KEPT_MS;
    setWithLimit(this.#outages, id, { error: found, untilMs }, OUTAGES_MAX);
    return found;
  }

  #nextSealing(): Sealing {
    if (this.#sealing === undefined || this.#sealing.textsLeft === 0) {
      const salt = randomBytes(SALT_BYTES);
      const key = this.#saltedKey(this.primary, salt);
      this.#sealing = { salt, key, textsLeft: this.#textsPerSalt };
    }
    this.#sealing.textsLeft -= 1;
    return this.#sealing;
  }

  #saltedKey(id: string, salt: Buffer): KeyObject {
    const name = `${id}:${salt.toString('latin1')}`;
    const known = this.#salted.get(name);
    if (known !== undefined) return known;
    const mac = createHmac('sha256', this.#rootsOf(id).texts).update(salt);
    return setWithLimit(this.#salted, name, createSecretKey(mac.digest()), SALTED_KEYS_MAX);
  }

  #rootsOf(id: string): DerivedKeys {
    const known = this.#roots.get(id);
    if (known !== undefined) return known;
    const key = this.#ring.loaded(id);
    if (key === undefined) {
      throw new RespoolError(
        'store.unavailable',
        `cannot use key "${id}" of the sealed store: it is not open; call open() first`,
      );
    }
    const derive = (info: string) =>
      createSecretKey(Buffer.from(hkdfSync('sha256', key, ROOT_SALT, info, 32)));
    const roots = { texts: derive('texts'), tokens: derive('tokens') };
    this.#roots.set(id, roots);
    return roots;
  }

  /** From a pool: requesting twelve random bytes costs more than sealing with them. */
  #nextNonce(): Buffer {
    if (this.#nonceAt >= NONCE_POOL_BYTES) {
      randomFillSync(this.#nonces);
      this.#nonceAt = 0;
    }
    const nonce = this.#nonces.subarray(this.#nonceAt, this.#nonceAt + NONCE_BYTES);
    this.#nonceAt += NONCE_BYTES;
    return nonce;
  }
}

/** The id of the key that a text was sealed with; `store.corrupt` if it is no sealed text. */
export function keyIdOf(sealed: string): string {
  const [version, id] = sealed.split(':', 2);
  if (version === VERSION && isKeyId(id)) return id;
  throw new RespoolError('store.corrupt', 'what should be sealed is not in a form we know');
}

/** Whether a text may be a token. */
export function isToken(word: string): boolean {
  return word.startsWith(TOKEN_PREFIX) && word.length === TOKEN_PREFIX.length + TOKEN_CHARS;
}

/** Sets a value in a map; beyond the limit the oldest is deleted. */
export function setWithLimit<K, V>(map: Map<K, V>, name: K, value: V, max: number): V {
  if (map.size >= max) {
    for (const oldest of map.keys()) {
      map.delete(oldest);
      break;
    }
  }
  map.set(name, value);
  return value;
}

function readSealed(sealed: string): { readonly id: string; readonly bytes: Buffer } {
  const id = keyIdOf(sealed);
  const text = sealed.slice(VERSION.length + id.length + 2);
  const bytes = Buffer.from(text, 'base64url');
  // n.b. Node ignores invalid base64url; only one spelling is accepted, so that changes are seen.
  if (bytes.toString('base64url') !== text) throw damagedError(id);
  return { id, bytes };
}

/** The place as JSON: no two places have the same bytes. */
function authenticatedData(place: SealPlace): Buffer {
  return Buffer.from(JSON.stringify(place), 'utf8');
}

async function loadEach(
  ids: ReadonlySet<string>,
  lackOf: (id: string) => Promise<RespoolError | undefined>,
): Promise<MissingKeys> {
  const missing = new Map<string, RespoolError>();
  // In parallel: one that hangs must not delay the others.
  await Promise.all(
    [...ids].map(async (id) => {
      const lack = await lackOf(id);
      if (lack !== undefined) missing.set(id, lack);
    }),
  );
  return missing;
}

function lateError(id: string): RespoolError {
  const seconds = LEASE_HOLDER_WAIT_MS / 1_000;
  return new RespoolError(
    'store.unavailable',
    `cannot get key "${id}" of the seal now: it did not come within ${seconds} s`,
  );
}

function damagedError(id: string): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `what was sealed with key "${id}" does not open: it was damaged or moved, or this is another ` +
      'key under the same id',
  );
}
