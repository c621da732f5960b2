/**
 * key-ring — the encryption keys of one transform or seal (`KeyRing`): the primary one writes, all
 * of them read. Also the forms of a key, how it is parsed, and `generateKey`.
 *
 * Keys that are given as bytes or text are there at once. Of those with a location or a function,
 * `open` fetches the primary one; the others are fetched when first needed and kept. Concurrent
 * calls share the fetch, and a failed fetch is repeated by the next call. Every fetch has a time
 * limit; a key that arrives later is kept for the next call. Promise: keys are in private fields
 * only, so neither JSON nor `util.inspect` shows them, and no error text of ours contains any part
 * of one; that of a key function which fails is passed on.
 */

import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { open } from 'node:fs/promises';
import { asError, RespoolError, show, textOf } from '../core/errors.ts';
import type { Clock } from '../ports/clock.ts';
import { systemClock } from '../system/clock.ts';
import { withTimeout } from '../system/wait.ts';

const KEYS_MAX = 1_000;

/**
 * The time limit for a key service or a disk. Also in docs/reference/threats.md and
 * test/transforms/encrypt-keys.test.ts.
 */
const KEY_FETCH_MAX_MS = 30_000;

/** Only this much of a file is read; the text of a key is far shorter. */
const KEY_FILE_MAX_BYTES = 4_096;

/** Errors that an operator has to fix; others are taken for an outage of the disk. */
const LASTING_FILE_ERRORS: ReadonlySet<string> = new Set([
  'EACCES',
  'EISDIR',
  'ELOOP',
  'ENAMETOOLONG',
  'ENOENT',
  'ENOTDIR',
  'EPERM',
]);

/** Which keys there are, and which of them writes. */
interface KeyRingOptions {
  readonly keys: Keys;
  /** Needed with several keys or a function. */
  readonly primary?: string | undefined;
  /** Times how long a key may take; default: the machine's clock. */
  readonly clock?: Clock | undefined;
}

/** The keys of one owner. */
export class KeyRing {
  readonly #owner: string;
  readonly #clock: Clock;
  readonly #sources: ReadonlyMap<string, Key>;
  /** The function that returns every key, if there is no list. */
  readonly #everyKey: KeyFunction | undefined;
  readonly #loaded = new Map<string, KeyObject>();
  readonly #fetching = new Map<string, Promise<KeyObject>>();
  readonly #primary: string | undefined;

  /** Checks keys that are given as bytes or text at once; `owner` is named in errors. */
  constructor(owner: string, { keys, primary, clock = systemClock }: KeyRingOptions) {
    this.#owner = owner;
    this.#clock = clock;
    this.#everyKey = typeof keys === 'function' ? keys : undefined;
    this.#sources = typeof keys === 'function' ? new Map() : this.#checkKeys(keys);
    this.#primary = primary === undefined ? this.#onlyKey() : this.#checkPrimary(primary);
  }

  /** A ring with a key to write with. */
  static forWriting(owner: string, options: KeyRingOptions): KeyRing {
    const ring = new KeyRing(owner, options);
    if (ring.#primary !== undefined) return ring;
    const why = typeof options.keys === 'function' ? 'keys is a function' : 'there are several';
    throw invalid(
      `cannot choose the key that ${owner} writes with: ${why}; set "primary" to its id`,
    );
  }

  /** The id of the primary key; a ring `forWriting` always has one. */
  get primary(): string | undefined {
    return this.#primary;
  }

  /** Fetches the primary key; may be called again after it failed. */
  async open(): Promise<void> {
    if (this.#primary !== undefined) await this.fetch(this.#primary);
  }

  /** A key that is loaded; undefined if not. */
  loaded(id: string): KeyObject | undefined {
    return this.#loaded.get(id);
  }

  /**
   * A key, fetched if it is not loaded. Fails with `key.unavailable` if there is none, and with
   * `store.unavailable` if that cannot be found out now, or not within 30 s.
   */
  async fetch(id: string): Promise<KeyObject> {
    const there = this.#loaded.get(id);
    if (there !== undefined) return there;
    const running = this.#fetching.get(id);
    if (running !== undefined) return running;
    const fetching = this.#inTime(id, this.#load(id)).finally(() => this.#fetching.delete(id));
    this.#fetching.set(id, fetching);
    return fetching;
  }

  #inTime(id: string, loading: Promise<KeyObject>): Promise<KeyObject> {
    return withTimeout(this.#clock, KEY_FETCH_MAX_MS, loading, () => {
      throw this.#outageError(id, `it did not come within ${KEY_FETCH_MAX_MS / 1_000} s`);
    });
  }

  async #load(id: string): Promise<KeyObject> {
    const source = this.#everyKey ?? this.#sources.get(id);
    if (source === undefined) throw this.#unavailableError(id, this.#knownIdsText());
    const given: unknown =
      typeof source === 'function' ? await this.#callFunction(source, id) : source;
    if (given === undefined || given === null) {
      throw this.#unavailableError(id, 'the key function knows no such key');
    }
    const place = typeof given === 'string' ? locationOf(given.trim()) : undefined;
    const text = place === undefined ? given : await this.#readLocation(place, id);
    const key = parseKey(text);
    if (typeof key === 'string') {
      const from = place === undefined ? 'the key function' : showLocation(place);
      throw this.#unavailableError(id, `what ${from} gave is no key: ${key}`);
    }
    this.#loaded.set(id, key);
    return key;
  }

  async #callFunction(source: (id: string) => unknown, id: string): Promise<unknown> {
    try {
      return await source(id);
    } catch (error) {
      throw this.#outageError(id, `the key function failed: ${show(textOf(error))}`, error);
    }
  }

  async #readLocation(place: KeyLocation, id: string): Promise<string> {
    const fault = locationProblem(place);
    if (fault !== undefined)
      throw this.#unavailableError(id, `the key function gave a place: ${fault}`);
    if (place.kind === 'env') {
      const text = process.env[place.name];
      if (text !== undefined && text.trim() !== '') return text;
      throw this.#unavailableError(id, `the variable ${showLocation(place)} is not set`);
    }
    try {
      return await readStart(place.name);
    } catch (error) {
      const { code = '' } = error as NodeJS.ErrnoException;
      const text = `${showLocation(place)} cannot be read: ${code === '' ? textOf(error) : code}`;
      // The disk may come back; a missing file needs an operator.
      throw LASTING_FILE_ERRORS.has(code)
        ? this.#unavailableError(id, text)
        : this.#outageError(id, text, error);
    }
  }

  #checkKeys(keys: unknown): ReadonlyMap<string, Key> {
    if (typeof keys !== 'object' || keys === null || isList(keys)) {
      throw invalid(
        `cannot use the keys of ${this.#owner}: allowed is { id: key, … } or a function of the id`,
      );
    }
    const entries = Object.entries(keys);
    if (entries.length === 0 || entries.length > KEYS_MAX) {
      throw invalid(
        `cannot use ${entries.length} keys for ${this.#owner}: allowed are 1 to ${KEYS_MAX}`,
      );
    }
    for (const [id, source] of entries) this.#checkKey(checkKeyId('id of a key', id), source);
    return new Map(entries);
  }

  #checkKey(id: string, source: unknown): void {
    if (typeof source === 'function') return;
    const label = `key "${id}" of ${this.#owner}`;
    const place = typeof source === 'string' ? locationOf(source.trim()) : undefined;
    const read = place === undefined ? parseKey(source) : locationProblem(place);
    if (typeof read === 'string') throw invalid(`cannot use ${label}: ${read}`);
    if (read !== undefined) this.#loaded.set(id, read);
  }

  #checkPrimary(primary: unknown): string {
    const id = checkKeyId(`"primary" of ${this.#owner}`, primary);
    if (this.#everyKey !== undefined || this.#sources.has(id)) return id;
    throw invalid(
      `cannot use ${showName(id)} as "primary" of ${this.#owner}: there is no key of that id; ` +
        this.#knownIdsText(),
    );
  }

  #onlyKey(): string | undefined {
    return this.#sources.size === 1 ? [...this.#sources.keys()][0] : undefined;
  }

  #knownIdsText(): string {
    const ids = [...this.#sources.keys()].map((id) => `"${id}"`);
    const shown = ids.slice(0, KNOWN_SHOWN_MAX).join(', ');
    return ids.length > KNOWN_SHOWN_MAX ? `known are ${shown}, …` : `known are ${shown}`;
  }

  #unavailableError(id: string, why: string): RespoolError {
    const text = `cannot get key "${id}" of ${this.#owner}: ${why}`;
    return new RespoolError('key.unavailable', `${text}; add the key under this id`);
  }

  #outageError(id: string, why: string, cause?: unknown): RespoolError {
    const text = `cannot get key "${id}" of ${this.#owner} now: ${why}`;
    const options = cause === undefined ? {} : { cause: asError(cause) };
    return new RespoolError('store.unavailable', text, options);
  }
}

const KNOWN_SHOWN_MAX = 10;

/** The beginning of a file: a wrong file may be of any size, or never end. */
async function readStart(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    const { bytesRead, buffer } = await file.read({ buffer: Buffer.alloc(KEY_FILE_MAX_BYTES) });
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await file.close();
  }
}

function showLocation({ kind, name }: KeyLocation): string {
  return show(`${kind}:${name}`);
}

function isList(value: object): boolean {
  return Array.isArray(value) || ArrayBuffer.isView(value);
}

function invalid(text: string): RespoolError {
  return new RespoolError('config.invalid', text);
}

// The forms of a key, and how one is made.
//
// A key is 32 bytes. No error text contains any of them: a wrong value is described by its type and
// length, never shown.

/**
 * Where a key comes from, at the time it is needed: a key service, a vault. Undefined means that
 * there is no such key; a failure, that it is not known now.
 */
export type KeyFunction = (id: string) => KeySource | undefined | Promise<KeySource | undefined>;

/**
 * 32 bytes, or a text: their base64 or hex, `env:NAME` for a variable or `file:PATH` for a file
 * that holds one of these.
 */
export type KeySource = Uint8Array | string;

/** One key: itself, its location, or a function that fetches it. */
export type Key = KeySource | KeyFunction;

/** Keys by their ids, or one function for every id. Ids are 1 to 64 of A-Z a-z 0-9 . _ -. */
export type Keys = Readonly<Record<string, Key>> | KeyFunction;

/** The location of a key's text: a variable or a file. */
interface KeyLocation {
  readonly kind: 'env' | 'file';
  readonly name: string;
}

const KEY_BYTES = 32;
/** As the pattern below and docs/reference/body-format.md say. */
const KEY_ID_MAX_CHARS = 64;
const KEY_ID_PATTERN = /^[A-Za-z0-9._-]{1,64}$/;
const KEY_ID_ALLOWED = `1 to ${KEY_ID_MAX_CHARS} of A-Z a-z 0-9 . _ -`;

const HEX = /^[0-9a-fA-F]{64}$/;
const BASE64 = /^[A-Za-z0-9+/]{43}=?$/;
const BASE64URL = /^[A-Za-z0-9_-]{43}=?$/;

/** A longer name is not shown: it might be a key that was given by mistake. */
const NAME_SHOWN_MAX_CHARS = 32;

const KEY_ALLOWED =
  'allowed is 32 bytes, their base64 or hex, env:NAME, file:PATH or a function; ' +
  'respool keys generate makes a key';

/** A new random key: the base64 of 32 bytes. */
export function generateKey(): string {
  return randomBytes(KEY_BYTES).toString('base64');
}

/** Whether this can be the id of a key at all. */
export function isKeyId(id: unknown): id is string {
  return typeof id === 'string' && KEY_ID_PATTERN.test(id);
}

/** Refuses an invalid id, or a key given as id by mistake: ids are stored unencrypted. */
function checkKeyId(what: string, id: unknown): string {
  if (isKeyId(id) && bytesOfText(id) === undefined) return id;
  if (isKeyId(id)) {
    throw invalid(`cannot use the ${what}: it looks like a key; ids are stored in the clear`);
  }
  throw invalid(`cannot use ${showName(id)} as ${what}: allowed is ${KEY_ID_ALLOWED}`);
}

/** An id or name for error texts; if it is as long as a key, only its length. */
function showName(name: unknown): string {
  if (typeof name !== 'string') return `a ${kindOf(name)}`;
  if (name.length <= NAME_SHOWN_MAX_CHARS && bytesOfText(name) === undefined) return show(name);
  return `a text of ${name.length} characters`;
}

/** The location that a text names; undefined for a text that should be a key itself. */
export function locationOf(text: string): KeyLocation | undefined {
  const [, kind, name = ''] = /^(env|file):(.*)$/s.exec(text) ?? [];
  return kind === 'env' || kind === 'file' ? { kind, name } : undefined;
}

/**
 * Why a location cannot be used: it has no name, or the name is a key by mistake, which must not be
 * shown. Undefined if it can be used.
 */
export function locationProblem({ kind, name }: KeyLocation): string | undefined {
  if (name === '' || name.includes('\0') || (kind === 'env' && name.includes('='))) {
    const allowed = kind === 'env' ? 'the name of a variable' : 'the path of a file';
    return `after "${kind}:" should stand ${allowed}`;
  }
  if (bytesOfText(name) === undefined) return undefined;
  return `after "${kind}:" stands a key; leave out "${kind}:"`;
}

/** Parses a key given as bytes or text; a returned text says why it is invalid, never the key. */
export function parseKey(source: unknown): KeyObject | string {
  const bytes = typeof source === 'string' ? bytesOfText(source.trim()) : source;
  if (!(bytes instanceof Uint8Array) || bytes.length !== KEY_BYTES) {
    return `it is ${describe(source)}; ${KEY_ALLOWED}`;
  }
  // Probably memory that was never filled.
  if (bytes.every((byte) => byte === 0)) return `all its bytes are zero; ${KEY_ALLOWED}`;
  // A copy, in a form that neither JSON nor a debugger's print shows.
  return createSecretKey(bytes);
}

function bytesOfText(text: string): Uint8Array | undefined {
  if (HEX.test(text)) return Buffer.from(text, 'hex');
  const form = BASE64.test(text) ? 'base64' : BASE64URL.test(text) ? 'base64url' : undefined;
  if (form === undefined) return undefined;
  const bytes = Buffer.from(text, form);
  // The last character has two unused bits; if they are set, it was typed wrongly.
  return bytes.toString(form).replace('=', '') === text.replace('=', '') ? bytes : undefined;
}

function describe(source: unknown): string {
  if (source instanceof Uint8Array) return `${source.length} bytes`;
  if (source === null || source === undefined) return 'missing';
  if (typeof source !== 'string') return `a ${kindOf(source)}`;
  const length = source.trim().length;
  return length === 0
    ? 'empty'
    : `a text of ${length} characters that is no base64 or hex of 32 bytes`;
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? 'list' : typeof value;
}
