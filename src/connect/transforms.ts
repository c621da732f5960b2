/**
 * transforms — from `zstd` or a list of data to transforms, and from keys to a sealed entry store.
 * Nothing is opened and no key fetched here.
 */

import { RespoolError } from '../core/errors.ts';
import { checkOneOf } from '../core/limits.ts';
import type { EntryStore } from '../ports/entry-store.ts';
import type { Transform } from '../ports/transform.ts';
import { checkTransforms } from '../spool/check-transforms.ts';
import type { CompressionLevel, DecryptOptions, EncryptOptions } from '../transforms/index.ts';
import type { SealOptions } from '../transforms/seal.ts';
import type { Config } from './define-config.ts';
import { isTransform, withKeyFiles } from './key-data.ts';
import { checkKeys, within } from './problems.ts';
import { isPlain } from './secrets.ts';

type Room = Awaited<ReturnType<typeof loadRoom>>;
type Data = Readonly<Record<string, unknown>>;

const KINDS = ['compress', 'encrypt', 'decrypt'] as const;
const ALLOWED =
  'a codec such as "zstd", { compress: "zstd", level }, { encrypt: { keys, … } }, ' +
  '{ decrypt: { keys } } or a transform';

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
  const { CODEC_NAMES } = await import('../transforms/compress-codecs.ts');
  const { compress, decrypt, encrypt } = await import('../transforms/index.ts');
  return { CODEC_NAMES, compress, decrypt, encrypt };
}

/** The entry store, sealed where the configuration says so. */
export async function sealedBy(
  { seal: given }: Pick<Config, 'seal'>,
  entries: EntryStore,
  folder: string,
): Promise<EntryStore> {
  if (given === undefined) return entries;
  const { seal } = await import('../transforms/seal.ts');
  const options = withKeyFiles(given, folder);
  if (!isPlain(options)) throw refusedKind('seal', given, '{ keys, primary }');
  checkKeys('seal', options, ['keys', 'primary']);
  return within('seal', () => seal(entries, options as unknown as SealOptions));
}

function transformOf(room: Room, given: unknown, key: string): unknown {
  // A transform that a program has made is checked with all the others.
  if (isTransform(given)) return given;
  if (typeof given === 'string') return compressOf(room, key, { codec: given, name: key });
  if (!isPlain(given)) throw refusedKind(key, given, ALLOWED);
  checkKeys(key, given, [...KINDS, 'level']);
  const [kind, second] = KINDS.filter((name) => name in given);
  if (kind === undefined || second !== undefined) throw refusedKind(key, given, ALLOWED);
  if (kind !== 'compress') return cipherOf(room, kind, given, key);
  checkKeys(key, given, ['compress', 'level']);
  const { compress: codec, level } = given;
  return compressOf(room, key, { codec, level, name: `${key}.compress` });
}

function compressOf(
  { compress, CODEC_NAMES }: Room,
  key: string,
  {
    codec,
    level,
    name,
  }: { readonly codec: unknown; readonly level?: unknown; readonly name: string },
): unknown {
  const known = checkOneOf(name, codec, CODEC_NAMES);
  const options = level === undefined ? {} : { level: level as CompressionLevel };
  return within(key, () => compress(known, options));
}

function cipherOf(room: Room, kind: 'encrypt' | 'decrypt', data: Data, key: string): unknown {
  checkKeys(key, data, [kind]);
  const options = data[kind];
  const names = kind === 'encrypt' ? ['keys', 'primary', 'cipher', 'pad'] : ['keys'];
  const whole = `${key}.${kind}`;
  if (!isPlain(options)) throw refusedKind(whole, options, `{ ${names.join(', ')} }`);
  checkKeys(whole, options, names);
  return within(key, () =>
    kind === 'encrypt'
      ? room.encrypt(options as unknown as EncryptOptions)
      : room.decrypt(options as unknown as DecryptOptions),
  );
}

/** What was given may be a key: its kind is all that is shown. */
function refusedKind(key: string, given: unknown, allowed: string): RespoolError {
  const kind = Array.isArray(given) ? 'list' : typeof given;
  const shown = kind === 'object' ? 'an object' : `a ${kind}`;
  return new RespoolError(
    'config.invalid',
    `cannot use ${shown} as "${key}": allowed is ${allowed}`,
  );
}
