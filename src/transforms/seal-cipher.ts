/**
 * seal-cipher — short texts under the keys of a ring, each bound to the place it belongs to.
 *
 *   ring key ─HKDF─▶ root ─HMAC(salt)─▶ key ─AES-256-GCM─▶ v1:<key id>:<salt nonce bytes tag>
 *                └─▶ token key ─HMAC(value)─▶ sealed.<16 characters>
 *
 * A status is sealed on every step. Under one key for all, the 2³² random nonces that the cipher
 * allows would be used up in ten days at 5,000 a second. So each sealing process makes a salt, and
 * with it a key of its own, for 2²⁴ texts at most: two share a nonce with a chance of 2⁻⁴⁹. A
 * key per message would do too, at twice the time. (2026-11-15) The place is authenticated: a text
 * opens only where it was sealed. Nothing here waits; `need` and `needSoon` fetch keys before. A
 * key that cannot be had is no failure of theirs: what other keys sealed must still open.
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

/** What a word may stand for; the same value makes another word for each. */
export type TokenOf = 'code' | 'fingerprint' | 'destination';

/** What a text belongs to: `message`, its id and which half; or a kind of records and a key. */
export type SealPlace = readonly string[];

/**
 * Keys that cannot be had, and what the ring said: `key.unavailable` where it has none of that id,
 * `store.unavailable` where that cannot be told now.
 */
export type MissingKeys = ReadonlyMap<string, RespoolError>;

/** What the next texts are sealed with. */
interface Sealing {
  readonly salt: Buffer;
  readonly key: KeyObject;
  textsLeft: number;
}

/** A key that could not be had a moment ago. */
interface Outage {
  readonly error: RespoolError;
  /** Not asked for again before, on the clock that only grows. */
  readonly untilMs: number;
}

interface Roots {
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
const TOKEN_CHARS = 16;

/** Texts that one salt is good for, unless a test says otherwise. */
const TEXTS_PER_SALT_MAX = 2 ** 24;
/** Keys that are kept for opening; every process that sealed made one, or a few. */
const SALTED_KEYS_MAX = 1_000;
/** Tokens that are kept; codes, fingerprints and destinations come again and again. */
const TOKENS_MAX = 10_000;
const NONCE_POOL_BYTES = 3_072;
/** A holder of leases waits no longer for a key; it may still come for the next. */
const PATIENCE_MS = 1_000;
/** A holder of leases does not ask again so soon for a key that could not be had. */
const OUTAGE_KEPT_MS = 5_000;
const OUTAGES_MAX = 1_000;

const NONE_MISSING: MissingKeys = new Map();

/** Seals texts with the primary key of a ring and opens them with any. */
export class SealCipher {
  readonly #ring: KeyRing;
  readonly #clock: Clock;
  readonly #textsPerSalt: number;
  readonly #roots = new Map<string, Roots>();
  /** By key id and salt. */
  readonly #salted = new Map<string, KeyObject>();
  readonly #tokens = new Map<string, string>();
  readonly #outages = new Map<string, Outage>();
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

  /** Fetches the key that seals. */
  open(): Promise<void> {
    return this.#ring.open();
  }

  /** The id of the key that seals. */
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
    cipher.setAAD(boundTo(place));
    const sealed = cipher.update(text, 'utf8');
    cipher.final();
    const bytes = Buffer.concat([salt, nonce, sealed, cipher.getAuthTag()]);
    return `${VERSION}:${this.primary}:${bytes.toString('base64url')}`;
  }

  /** Opens a text whose key is there; `store.corrupt` where it is not what was sealed here. */
  unseal(place: SealPlace, sealed: string): string {
    const { id, bytes } = readSealed(sealed);
    if (bytes.length < TEXT_AT + TAG_BYTES) throw damaged(id);
    const key = this.#saltedKey(id, bytes.subarray(0, SALT_BYTES));
    const cipher = createDecipheriv(CIPHER, key, bytes.subarray(SALT_BYTES, TEXT_AT), AUTH);
    cipher.setAAD(boundTo(place));
    cipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    const text = cipher.update(bytes.subarray(TEXT_AT, -TAG_BYTES));
    try {
      cipher.final();
    } catch {
      // The one thing it can mean: told in our words, and nothing of the text is given out.
      throw damaged(id);
    }
    return text.toString('utf8');
  }

  /** Fetches the keys of these ids; at once where all are there. Tells which cannot be had. */
  need(ids: Iterable<string>): MissingKeys | Promise<MissingKeys> {
    return this.#gather(ids, (id) => this.#lack(id));
  }

  /**
   * The same for a holder of leases: waits a second at most, and for a while repeats what it
   * found, the very error, without asking again.
   */
  needSoon(ids: Iterable<string>): MissingKeys | Promise<MissingKeys> {
    return this.#gather(ids, (id) => this.#lackSoon(id));
  }

  /** A word that stands for a value: the same for the same value, of no use without the key. */
  token(what: TokenOf, value: string, keyId: string = this.primary): string {
    const name = `${keyId}\n${what}\n${value}`;
    const known = this.#tokens.get(name);
    if (known !== undefined) return known;
    const mac = createHmac('sha256', this.#rootsOf(keyId).tokens).update(`${what}\n${value}`);
    const token = `${TOKEN_PREFIX}${mac.digest('base64url').slice(0, TOKEN_CHARS)}`;
    return keepPlain(this.#tokens, name, token, TOKENS_MAX);
  }

  #gather(
    ids: Iterable<string>,
    lackOf: (id: string) => Promise<RespoolError | undefined>,
  ): MissingKeys | Promise<MissingKeys> {
    const absent = new Set<string>();
    for (const id of ids) if (this.#ring.loaded(id) === undefined) absent.add(id);
    return absent.size === 0 ? NONE_MISSING : lackOfEach(absent, lackOf);
  }

  /** Why a key cannot be had; undefined once it is there. */
  async #lack(id: string): Promise<RespoolError | undefined> {
    try {
      await this.#ring.fetch(id);
      return undefined;
    } catch (error) {
      if (error instanceof RespoolError) return error;
      return new RespoolError('store.unavailable', textOf(error), { cause: error });
    }
  }

  async #lackSoon(id: string): Promise<RespoolError | undefined> {
    const before = this.#outages.get(id);
    if (before !== undefined && this.#clock.monotonic() < before.untilMs) return before.error;
    this.#outages.delete(id);
    const lack = await withTimeout(this.#clock, PATIENCE_MS, this.#lack(id), () => late(id));
    if (lack?.code !== 'store.unavailable') return lack;
    // Another call may have found the same meanwhile: one error for both.
    const found = this.#outages.get(id)?.error ?? lack;
    const untilMs = this.#clock.monotonic() + OUTAGE_KEPT_MS;
    keepPlain(this.#outages, id, { error: found, untilMs }, OUTAGES_MAX);
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
    return keepPlain(this.#salted, name, createSecretKey(mac.digest()), SALTED_KEYS_MAX);
  }

  #rootsOf(id: string): Roots {
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

  /** From a pool: asking the system for twelve bytes costs more than sealing with them. */
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

/** The id of the key that a text was sealed with; `store.corrupt` where it is no sealed text. */
export function keyIdOf(sealed: string): string {
  const [version, id] = sealed.split(':', 2);
  if (version === VERSION && isKeyId(id)) return id;
  throw new RespoolError('store.corrupt', 'what should be sealed is not in a form we know');
}

/** Whether a word may be a token. */
export function isToken(word: string): boolean {
  return word.startsWith(TOKEN_PREFIX) && word.length === TOKEN_PREFIX.length + TOKEN_CHARS;
}

/** Keeps a value under a name; past the limit the oldest is forgotten. */
export function keepPlain<K, V>(map: Map<K, V>, name: K, value: V, max: number): V {
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
  // n.b. Node passes over what is no base64url; one spelling only, so that any change is seen.
  if (bytes.toString('base64url') !== text) throw damaged(id);
  return { id, bytes };
}

/** As JSON: no two places are written the same. */
function boundTo(place: SealPlace): Buffer {
  return Buffer.from(JSON.stringify(place), 'utf8');
}

async function lackOfEach(
  ids: ReadonlySet<string>,
  lackOf: (id: string) => Promise<RespoolError | undefined>,
): Promise<MissingKeys> {
  const missing = new Map<string, RespoolError>();
  // At once: one that hangs must not make the others wait.
  await Promise.all(
    [...ids].map(async (id) => {
      const lack = await lackOf(id);
      if (lack !== undefined) missing.set(id, lack);
    }),
  );
  return missing;
}

function late(id: string): RespoolError {
  return new RespoolError(
    'store.unavailable',
    `cannot get key "${id}" of the seal now: it did not come within ${PATIENCE_MS / 1_000} s`,
  );
}

function damaged(id: string): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `what was sealed with key "${id}" does not open: it was damaged or moved, or this is another ` +
      'key under the same id',
  );
}
