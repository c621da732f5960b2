/**
 * transforms — from `zstd` or a list of data to transforms, and from keys to a sealed entry store.
 * Nothing is opened and no key fetched here.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkOneOf, isPlainObject } from '../../core/limits.ts';
import type { EntryStore } from '../../ports/entry-store.ts';
import type { Transform } from '../../ports/transform.ts';
import { checkTransforms } from '../../spool/chain.ts';
import {
  CIPHERS,
  COMPRESS_OPTIONS,
  type CompressionLevel,
  DECRYPT_OPTIONS,
  type DecryptOptions,
  ENCRYPT_OPTIONS,
  type EncryptOptions,
  LEVELS,
  SEAL_OPTIONS,
  type SealOptions,
} from '../../transforms/options.ts';
import type { Config } from '../schema/define-config.ts';
import { isTransform, withKeyFiles } from '../load/encryption-keys.ts';
import { checkKeys, inSection, isNear } from '../load/config-errors.ts';

type Room = Awaited<ReturnType<typeof loadRoom>>;
type Data = Readonly<Record<string, unknown>>;

const KINDS = ['compress', 'encrypt', 'decrypt'] as const;
const COMPRESS_NAMES = Object.keys(COMPRESS_OPTIONS);
const CIPHER_NAMES = {
  encrypt: Object.keys(ENCRYPT_OPTIONS),
  decrypt: Object.keys(DECRYPT_OPTIONS),
};
/** A clock is nothing that a configuration can say. */
const SEAL_NAMES = Object.keys(SEAL_OPTIONS).filter((name) => name !== 'clock');
const ALLOWED =
  'a codec such as "zstd", { compress: "zstd", level }, { encrypt: { keys, … } }, ' +
  '{ decrypt: { keys } } or a transform, also several as a list; [] is none';

/** Everything that stands in such data by its name. */
const NAMES = [...KINDS, ...COMPRESS_NAMES, ...CIPHER_NAMES.encrypt];
/** As long as this, a text at a wrong place may be a key that was typed wrongly. */
const HIDDEN_MIN_CHARS = 6;

/** Makes the transforms of a configuration; files of keys are found from `folder`. */
export async function transformsOf(
  { transforms: given }: Pick<Config, 'transforms'>,
  folder: string,
): Promise<readonly Transform[]> {
  if (given === undefined) return [];
  const room = await loadRoom();
  const list: readonly unknown[] = Array.isArray(given) ? given : [given];
  const made = list.map((one, at) => {
    const key = Array.isArray(given) ? `transforms[${at}]` : 'transforms';
    return transformOf(room, withKeyFiles(one, folder), key);
  });
  return checkTransforms(made);
}

/** Loaded for configurations that have transforms. */
async function loadRoom() {
  const { CODEC_NAMES, refuseS2 } = await import('../../transforms/compress.ts');
  const { compress, decrypt, encrypt } = await import('../../transforms/index.ts');
  return { CODEC_NAMES, compress, decrypt, encrypt, refuseS2 };
}

/** The entry store, sealed where the configuration says so. */
export async function sealedBy(
  { seal: given }: Pick<Config, 'seal'>,
  entries: EntryStore,
  folder: string,
): Promise<EntryStore> {
  if (given === undefined) return entries;
  const { seal } = await import('../../transforms/seal.ts');
  const options = withKeyFiles(given, folder);
  if (!isPlainObject(options)) throw refusedKind('seal', given, `{ ${SEAL_NAMES.join(', ')} }`);
  checkNamesIn('seal', options, SEAL_NAMES);
  return inSection('seal', () => seal(entries, options as unknown as SealOptions));
}

function transformOf(room: Room, value: unknown, key: string): unknown {
  // A transform that a program has made is checked with all the others.
  if (isTransform(value)) return value;
  if (typeof value === 'string') return compressOf(room, key, { codec: value, name: key });
  if (!isPlainObject(value)) throw refusedKind(key, value, ALLOWED);
  checkNamesIn(key, value, [...KINDS, ...COMPRESS_NAMES]);
  const [kind, second] = KINDS.filter((name) => name in value);
  if (kind === undefined || second !== undefined) throw refusedKind(key, value, ALLOWED);
  if (kind !== 'compress') return cipherOf(room, kind, value, key);
  checkNamesIn(key, value, [kind, ...COMPRESS_NAMES]);
  const { compress: codec, level } = value;
  return compressOf(room, key, { codec, level, name: `${key}.compress` });
}

function compressOf(
  { compress, CODEC_NAMES, refuseS2 }: Room,
  key: string,
  {
    codec,
    level,
    name,
  }: { readonly codec: unknown; readonly level?: unknown; readonly name: string },
): unknown {
  const more = name === 'transforms' ? '; or JSON, a list of transforms; [] takes them away' : '';
  inSection(name, () => refuseS2(codec));
  checkWord(name, codec, CODEC_NAMES, more);
  const known = checkOneOf(name, codec, CODEC_NAMES);
  checkWord(`${key}.level`, level, LEVELS);
  const options = level === undefined ? {} : { level: level as CompressionLevel };
  return inSection(key, () => compress(known, options));
}

function cipherOf(room: Room, kind: 'encrypt' | 'decrypt', data: Data, key: string): unknown {
  checkNamesIn(key, data, [kind]);
  const options = data[kind];
  const names = CIPHER_NAMES[kind];
  const whole = `${key}.${kind}`;
  if (!isPlainObject(options)) throw refusedKind(whole, options, `{ ${names.join(', ')} }`);
  checkNamesIn(whole, options, names);
  checkWord(`${whole}.cipher`, options['cipher'], CIPHERS);
  return inSection(whole, () =>
    kind === 'encrypt'
      ? room.encrypt(options as unknown as EncryptOptions)
      : room.decrypt(options as unknown as DecryptOptions),
  );
}

/** Refuses unknown names; one that is no near miss may be a key, and is not shown. */
function checkNamesIn(key: string, value: object, texts: readonly string[]): void {
  const strange = Object.keys(value).find((name) => !texts.includes(name));
  if (strange === undefined || mayBeShown(strange, NAMES)) return checkKeys(key, value, texts);
  throw new RespoolError(
    'config.invalid',
    `there is no key "${key}.…" with a name of ${strange.length} characters: ` +
      `known are ${texts.join(', ')}`,
  );
}

/** Refuses a text that is not one of the words; it is shown where it is nearly one. */
function checkWord(key: string, value: unknown, words: readonly string[], more = ''): void {
  if (typeof value !== 'string' || words.includes(value)) return;
  const shown = mayBeShown(value, words) ? show(value) : `a text of ${value.length} characters`;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${shown} as "${key}": allowed is ${words.join(' | ')}${more}`,
  );
}

/** How near: `isNear` of load/config-errors.ts. */
function mayBeShown(text: string, words: readonly string[]): boolean {
  return text.length < HIDDEN_MIN_CHARS || isNear(text, words);
}

/** What was given may be a key: its kind is all that is shown. */
function refusedKind(key: string, value: unknown, allowed: string): RespoolError {
  const kind = Array.isArray(value) ? 'list' : typeof value;
  const shown = kind === 'object' ? 'an object' : `a ${kind}`;
  return new RespoolError(
    'config.invalid',
    `cannot use ${shown} as "${key}": allowed is ${allowed}`,
  );
}
