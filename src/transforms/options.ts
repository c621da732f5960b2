/**
 * options — the options of compression, encryption and the seal: tables, interfaces, checks,
 * defaults.
 *
 * Imports no codec and no cipher, so that a configuration can be checked before one is loaded.
 */

import { RespoolError } from '../core/errors.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../core/option-table.ts';
import type { Clock } from '../ports/clock.ts';
import type { Keys } from './key-ring.ts';

/** The compression levels; each codec maps them to its own numbers. */
export const LEVELS = ['fastest', 'default', 'better', 'best'] as const;

/** How much work compression takes: from `fastest` to `best`. */
export type CompressionLevel = (typeof LEVELS)[number];

/** The ciphers, by the name that encodings and Node have for them. */
export const CIPHERS = ['aes-256-gcm', 'chacha20-poly1305'] as const;

/** The ciphers, by the name that encodings and Node have for them. */
export type Cipher = (typeof CIPHERS)[number];

const KEYS_TYPE = { kind: 'data', type: 'keys by id, or a function', ts: 'Keys' } as const;

const COMPRESS = {
  level: {
    kind: 'choice',
    choices: LEVELS,
    ts: 'CompressionLevel',
    default: 'default',
    about:
      'how much work it takes: with gzip, zlib and deflate level 1, 6, 7 or 9, with brotli ' +
      'quality 1, 4, 6 or 11, with zstd 1, 3, 7 or 19; snappy and lz4 have no levels. The `best` ' +
      'of brotli and zstd takes a hundred times as long as `default`, and zstd then 90 MB of ' +
      'memory',
  },
} as const;

const ENCRYPT = {
  keys: {
    ...KEYS_TYPE,
    schema: 'keys',
    required: true,
    about: 'the key that writes and all that read, by id; or a function that fetches them',
  },
  primary: {
    kind: 'text',
    type: 'the id of a key',
    defaultText: 'the only key',
    about: 'the id of the key that writes; needed with several keys or a function',
  },
  cipher: {
    kind: 'choice',
    choices: CIPHERS,
    ts: 'Cipher',
    default: 'aes-256-gcm',
    about: '`chacha20-poly1305` is quicker on processors without AES',
  },
  pad: {
    kind: 'choice',
    choices: [true, false],
    default: false,
    about: 'hides the exact length for at most 12 % more bytes',
  },
} as const;

const DECRYPT = {
  keys: {
    ...KEYS_TYPE,
    schema: 'keys',
    required: true,
    about: 'all keys that bodies were written with, by id; or a function that fetches them',
  },
} as const;

const SEAL = {
  keys: { ...ENCRYPT.keys, about: 'the key that seals and all that open, by id; or a function' },
  primary: {
    ...ENCRYPT.primary,
    about: 'the id of the key that seals; needed with several keys or a function',
  },
  clock: { ...CLOCK_OPTION, about: 'times how long a key may take' },
} as const;

/** Every option of `compress()`. */
export const COMPRESS_OPTIONS: Readonly<Record<keyof CompressOptions, Option>> = COMPRESS;

/** Every option of `encrypt()`. */
export const ENCRYPT_OPTIONS: Readonly<Record<keyof EncryptOptions, Option>> = ENCRYPT;

/** Every option of `decrypt()`. */
export const DECRYPT_OPTIONS: Readonly<Record<keyof DecryptOptions, Option>> = DECRYPT;

/** Every option of `seal()`. */
export const SEAL_OPTIONS: Readonly<Record<keyof SealOptions, Option>> = SEAL;

/** How a body is compressed. */
export interface CompressOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * How much work it takes: with gzip, zlib and deflate level 1, 6, 7 or 9, with brotli quality 1,
   * 4, 6 or 11, with zstd 1, 3, 7 or 19; snappy and lz4 have no levels. The `best` of brotli and
   * zstd takes a hundred times as long as `default`, and zstd then 90 MB of memory. Default
   * `default`.
   */
  readonly level?: CompressionLevel;
}

/** How bodies are encrypted. */
export interface EncryptOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The key that writes and all that read, by id; or a function that fetches them. */
  readonly keys: Keys;
  /**
   * The id of the key that writes; needed with several keys or a function. Default the only key.
   */
  readonly primary?: string;
  /** `chacha20-poly1305` is quicker on processors without AES. Default `aes-256-gcm`. */
  readonly cipher?: Cipher;
  /** Hides the exact length for at most 12 % more bytes. Default false. */
  readonly pad?: boolean;
}

/** The keys of bodies that are no longer written. */
export interface DecryptOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** All keys that bodies were written with, by id; or a function that fetches them. */
  readonly keys: Keys;
}

/** Which keys seal and open. */
export interface SealOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The key that seals and all that open, by id; or a function. */
  readonly keys: Keys;
  /** The id of the key that seals; needed with several keys or a function. Default the only key. */
  readonly primary?: string;
  /** Times how long a key may take. Default the system clock. */
  readonly clock?: Clock;
}

/** The level of a compression. */
export function checkCompressOptions(options: CompressOptions): CompressionLevel {
  return readOptions({ what: 'compress' }, options, COMPRESS).level;
}

/** The cipher of an encryption, and whether lengths are padded. */
export function checkEncryptOptions(options: EncryptOptions): {
  readonly cipher: Cipher;
  readonly pad: boolean;
} {
  const owner = { what: 'encrypt', prefix: 'encrypt.' };
  return readOptions(owner, checkObject('encrypt', options), ENCRYPT);
}

export function checkDecryptOptions(options: DecryptOptions): void {
  readOptions({ what: 'decrypt' }, checkObject('decrypt', options), DECRYPT);
}

export function checkSealOptions(options: SealOptions): void {
  readOptions({ what: 'the seal' }, options, SEAL);
}

function checkObject(what: string, options: unknown): object {
  if (typeof options === 'object' && options !== null) return options;
  throw new RespoolError('config.invalid', `cannot make ${what} without options: give it { keys }`);
}
