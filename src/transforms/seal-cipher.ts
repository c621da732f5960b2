/**
 * seal-cipher — short texts under the keys of a ring, each bound to what it belongs to.
 *
 *   ring key ─HKDF─▶ root ─HMAC(subject)─▶ key of one message ─AES-256-GCM─▶ v1:<key id>:<bytes>
 *                └─▶ token key ─HMAC(value)─▶ sealed.<16 characters>
 *
 * A key per message, because a status is sealed on every step: under one key for all, 2³² random
 * nonces, after which the cipher is no longer safe, are used up in ten days at 5,000 a second. No
 * message has that many steps. Subject and part are authenticated: a text opens only where it was
 * sealed. Nothing here waits; `need` fetches keys before.
 */

import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomFillSync,
} from 'node:crypto';
import { isRespoolError, RespoolError } from '../core/errors.ts';
import { isKeyId } from './key.ts';
import type { KeyRing } from './key-ring.ts';

/** What a text belongs to. */
export interface SealPlace {
  /** A message or a kind of records; it has a key of its own. */
  readonly subject: string;
  /** Which part of it. */
  readonly part: string;
}

/** Keys that a ring does not have, and what it said. */
export type MissingKeys = ReadonlyMap<string, RespoolError>;

interface Roots {
  readonly texts: KeyObject;
  readonly tokens: KeyObject;
}

const CIPHER = 'aes-256-gcm';
const VERSION = 'v1';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const AUTH: { readonly authTagLength: number } = { authTagLength: TAG_BYTES };
const SALT = 'respool/v1/seal';
const TOKEN_PREFIX = 'sealed.';
const TOKEN_CHARS = 16;

/** Keys of messages that are kept: a message is sealed and opened several times within seconds. */
const SUBJECT_KEYS_MAX = 4_096;
/** Tokens that are kept; codes and fingerprints come again and again. */
const TOKENS_MAX = 10_000;
const NONCE_POOL_BYTES = 3_072;

const NONE_MISSING: MissingKeys = new Map();

/** Seals texts with the primary key of a ring and opens them with any. */
export class SealCipher {
  readonly #ring: KeyRing;
  readonly #roots = new Map<string, Roots>();
  readonly #subjectKeys = new Map<string, KeyObject>();
  readonly #tokens = new Map<string, string>();
  readonly #nonces = Buffer.alloc(NONCE_POOL_BYTES);
  #nonceAt = NONCE_POOL_BYTES;

  constructor(ring: KeyRing) {
    this.#ring = ring;
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

  /** Seals a text with the primary key. */
  seal(place: SealPlace, text: string): string {
    const id = this.primary;
    const nonce = this.#nextNonce();
    const cipher = createCipheriv(CIPHER, this.#subjectKey(id, place.subject), nonce, AUTH);
    cipher.setAAD(boundTo(place));
    const sealed = cipher.update(text, 'utf8');
    cipher.final();
    const bytes = Buffer.concat([nonce, sealed, cipher.getAuthTag()]);
    return `${VERSION}:${id}:${bytes.toString('base64url')}`;
  }

  /** Opens a text whose key is there; `store.corrupt` where it is not what was sealed here. */
  unseal(place: SealPlace, sealed: string): string {
    const { id, bytes } = readSealed(sealed);
    if (bytes.length < NONCE_BYTES + TAG_BYTES) throw damaged(id);
    const nonce = bytes.subarray(0, NONCE_BYTES);
    const cipher = createDecipheriv(CIPHER, this.#subjectKey(id, place.subject), nonce, AUTH);
    cipher.setAAD(boundTo(place));
    cipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    const text = cipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
    try {
      cipher.final();
    } catch {
      // The one thing it can mean: told in our words, and nothing of the text is given out.
      throw damaged(id);
    }
    return text.toString('utf8');
  }

  /**
   * Fetches the keys of these ids; at once where all are there. Tells which the ring does not have,
   * and fails with `store.unavailable` where that cannot be told now.
   */
  need(ids: Iterable<string>): MissingKeys | Promise<MissingKeys> {
    const absent = new Set<string>();
    for (const id of ids) if (this.#ring.loaded(id) === undefined) absent.add(id);
    return absent.size === 0 ? NONE_MISSING : this.#fetch(absent);
  }

  /** A word that stands for a value: the same for the same value, of no use without the key. */
  token(what: 'code' | 'fingerprint', value: string, keyId: string = this.primary): string {
    const name = `${keyId}\n${what}\n${value}`;
    const known = this.#tokens.get(name);
    if (known !== undefined) return known;
    const mac = createHmac('sha256', this.#rootsOf(keyId).tokens).update(`${what}\n${value}`);
    const token = `${TOKEN_PREFIX}${mac.digest('base64url').slice(0, TOKEN_CHARS)}`;
    return keep(this.#tokens, name, token, TOKENS_MAX);
  }

  async #fetch(ids: ReadonlySet<string>): Promise<MissingKeys> {
    const missing = new Map<string, RespoolError>();
    for (const id of ids) {
      try {
        await this.#ring.fetch(id);
      } catch (error) {
        if (!isRespoolError(error, 'key.unavailable')) throw error;
        missing.set(id, error);
      }
    }
    return missing;
  }

  #subjectKey(id: string, subject: string): KeyObject {
    const name = `${id}\n${subject}`;
    const known = this.#subjectKeys.get(name);
    if (known !== undefined) return known;
    const mac = createHmac('sha256', this.#rootsOf(id).texts).update(subject);
    return keep(this.#subjectKeys, name, createSecretKey(mac.digest()), SUBJECT_KEYS_MAX);
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
      createSecretKey(Buffer.from(hkdfSync('sha256', key, SALT, info, 32)));
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
export function keep<K, V>(map: Map<K, V>, name: K, value: V, max: number): V {
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

/** No subject has a line feed: ids and kinds of records are checked for control characters. */
function boundTo({ subject, part }: SealPlace): Buffer {
  return Buffer.from(`${subject}\n${part}`, 'utf8');
}

function damaged(id: string): RespoolError {
  return new RespoolError(
    'store.corrupt',
    `what was sealed with key "${id}" does not open: it was damaged or moved, or this is another ` +
      'key under the same id',
  );
}
