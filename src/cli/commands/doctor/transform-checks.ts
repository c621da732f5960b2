/**
 * transform-checks — what is done to bodies: whether the packages are there, which keys can be had
 * from here, who else can read their files, and what the length of a body gives away.
 *
 * Keys are fetched as the service would fetch them, and are shown by their ids only.
 */

import { stat } from 'node:fs/promises';
import process from 'node:process';
import { withKeyFiles } from '../../../config/load/encryption-keys.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { isRespoolError, textOf } from '../../../core/errors.ts';
import { isPlainObject } from '../../../core/plain-object.ts';
import type { Transform } from '../../../ports/transform.ts';
import type { Keys } from '../../../transforms/index.ts';
import { placeOf } from '../../../transforms/key.ts';
import { type DoctorFinding, worthKnowing, ok, unsafe } from './finding.ts';

const OTHERS_READ = 0o004;
const GROUP_READ = 0o040;
const KEYS_TODO =
  'where the service runs the key must be there: look from its environment, or correct its path';

/** Keys at one place of the configuration. */
interface Holder {
  /** Such as `transforms[1]`; findings begin with it. */
  readonly id: string;
  /** Who uses them: `encrypt`, `decrypt` or `the seal`. */
  readonly owner: string;
  readonly keys: unknown;
  readonly primary?: unknown;
}

/** Everything about the transforms and the seal; nothing where there is none. */
export async function examineTransforms(loaded: LoadedConfig): Promise<DoctorFinding[]> {
  const { config, folder } = loaded;
  const { transformsOf } = await import('../../../config/open/transforms.ts');
  const made = await transformsOf(config, folder);
  const { transforms: given = [] } = config;
  const list: readonly unknown[] = Array.isArray(given) ? given : [given];
  const findings: DoctorFinding[] = [];
  for (const [at, transform] of made.entries()) {
    findings.push(...(await examineOne(`transforms[${at}]`, transform)));
  }
  for (const holder of holdersIn(list, config.seal, folder)) {
    findings.push(...(await examineKeys(holder)), ...(await examineKeyFiles(holder)));
  }
  return [...findings, ...examineLengths(list, made)];
}

/** Compression alone: whether an encryption can begin is told with its keys. */
async function examineOne(id: string, transform: Transform): Promise<DoctorFinding[]> {
  const { name, kind } = transform;
  if (kind !== 'compression') return [];
  try {
    await transform.open?.();
    return [ok(id, `bodies are compressed with ${name}`)];
  } catch (error) {
    return [
      unsafe(id, textOf(error), 'fix it, or use another codec: gzip and zstd are always there'),
    ];
  }
}

function holdersIn(list: readonly unknown[], seal: unknown, folder: string): Holder[] {
  const holders = list.flatMap((one, at) =>
    ['encrypt', 'decrypt'].flatMap((owner): Holder[] => {
      const options = isPlainObject(one) ? withKeyFiles(one[owner], folder) : undefined;
      if (!isPlainObject(options)) return [];
      return [
        { id: `transforms[${at}]`, owner, keys: options['keys'], primary: options['primary'] },
      ];
    }),
  );
  const sealed = withKeyFiles(seal, folder);
  if (!isPlainObject(sealed)) return holders;
  const { keys, primary } = sealed;
  return [...holders, { id: 'seal', owner: 'the seal', keys, primary }];
}

async function examineKeys({ id, owner, keys, primary }: Holder): Promise<DoctorFinding[]> {
  if (!isPlainObject(keys)) {
    return [
      worthKnowing(
        `${id}.keys`,
        `the keys of ${owner} come from a function: they are not looked at`,
      ),
    ];
  }
  const { KeyRing } = await import('../../../transforms/key-ring.ts');
  const ring = new KeyRing(owner, { keys: keys as Keys });
  const names = Object.keys(keys);
  // One key alone writes; what only reads has no key for that.
  const only = owner !== 'decrypt' && names.length === 1 ? names[0] : undefined;
  const writing = primary ?? only;
  const there: string[] = [];
  const missing: DoctorFinding[] = [];
  for (const name of names) {
    try {
      await ring.fetch(name);
      there.push(name === writing ? `${name} (primary)` : name);
    } catch (error) {
      if (!isRespoolError(error)) throw error;
      // Without the key that writes nothing can be put down.
      const find = name === writing ? unsafe : worthKnowing;
      missing.push(find(`${id}.keys.${name}`, error.message, KEYS_TODO));
    }
  }
  const found = ok(`${id}.keys`, `keys of ${owner} that can be had here: ${there.join(', ')}`);
  return [...(there.length === 0 ? [] : [found]), ...missing];
}

/** A key that stands in the configuration itself is found with the other secrets of that file. */
async function examineKeyFiles({ id, keys }: Holder): Promise<DoctorFinding[]> {
  if (!isPlainObject(keys) || process.platform === 'win32') return [];
  const findings: DoctorFinding[] = [];
  for (const [name, source] of Object.entries(keys)) {
    const place = typeof source === 'string' ? placeOf(source.trim()) : undefined;
    const file = place?.kind === 'file' ? place.name : undefined;
    const mode = file === undefined ? 0 : await modeOf(file);
    if ((mode & (OTHERS_READ | GROUP_READ)) === 0) continue;
    const key = `${id}.keys.${name}.file`;
    const todo = `chmod 600 "${file}"`;
    findings.push(
      (mode & OTHERS_READ) === 0
        ? worthKnowing(key, `"${file}" holds a key and its group can read it`, todo)
        : unsafe(key, `"${file}" holds a key and every user of this machine can read it`, todo),
    );
  }
  return findings;
}

async function modeOf(file: string): Promise<number> {
  return stat(file).then(
    ({ mode }) => mode,
    () => 0,
  );
}

function examineLengths(list: readonly unknown[], made: readonly Transform[]): DoctorFinding[] {
  const isCompressed = made.some(({ kind }) => kind === 'compression');
  const encrypted = list
    .map((one) => (isPlainObject(one) ? one['encrypt'] : undefined))
    .find(isPlainObject);
  if (!isCompressed || encrypted === undefined || encrypted['pad'] === true) return [];
  const text =
    'bodies are compressed, then encrypted: their length reveals something about their content';
  return [
    worthKnowing('transforms.length', text, 'pad: true hides most of it, where that matters'),
  ];
}
