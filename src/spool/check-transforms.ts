/** check-transforms — a list of transforms at the door: whole, named once, in a sound order. */

import { RespoolError, show } from '../core/errors.ts';
import { checkOneOf } from '../core/limits.ts';
import type { Transform } from '../ports/transform.ts';

/** Transforms in one list, at the most. */
const TRANSFORMS_MAX = 16;
const NAME_PATTERN = /^[a-z0-9-]{1,64}$/;
const KINDS = ['compression', 'encryption', 'other'] as const;

/** Refuses what is no list of transforms, and lists that would do harm. */
export function checkTransforms(given: unknown): readonly Transform[] {
  if (!Array.isArray(given)) throw invalid('transforms', given, 'a list of transforms');
  const transforms = given.map((one: unknown, at) => checkTransform(`transforms[${at}]`, one));
  if (transforms.length > TRANSFORMS_MAX) {
    throw refused(`there are ${transforms.length}, allowed are ${TRANSFORMS_MAX}`);
  }
  const names = new Set<string>();
  for (const { name } of transforms) {
    if (names.has(name)) throw refused(`"${name}" is there twice; a name tells who reads a body`);
    names.add(name);
  }
  checkKinds(transforms);
  return transforms;
}

function checkKinds(transforms: readonly Transform[]): void {
  const [compression, again] = transforms.filter(({ kind }) => kind === 'compression');
  const [encryption, encrypted] = transforms.filter(({ kind }) => kind === 'encryption');
  if (again !== undefined) {
    throw refused(
      `"${compression?.name}" and "${again.name}" both compress, and what is compressed twice is ` +
        'no smaller; keep the one for new bodies: those of any other are readable without it',
    );
  }
  if (encrypted !== undefined) {
    throw refused(
      `"${encryption?.name}" and "${encrypted.name}" both encrypt; keep one and give it all ` +
        'keys, also those that only read',
    );
  }
  if (compression === undefined || encryption === undefined) return;
  if (transforms.indexOf(compression) > transforms.indexOf(encryption)) {
    throw refused(
      `compression "${compression.name}" stands after encryption "${encryption.name}", and ` +
        'encrypted bytes cannot be compressed; put the compression first',
    );
  }
}

function checkTransform(what: string, given: unknown): Transform {
  if (typeof given !== 'object' || given === null) {
    throw invalid(what, given, 'a transform, such as compress() or encrypt() make');
  }
  const { name, kind, reader, writer, open } = given as Partial<Record<keyof Transform, unknown>>;
  if (typeof name !== 'string' || !NAME_PATTERN.test(name)) {
    throw invalid(`${what}.name`, name, '1 to 64 lower case letters, digits and dashes');
  }
  checkOneOf(`${what}.kind`, kind, KINDS);
  if (typeof reader !== 'function') throw invalid(`${what}.reader`, reader, 'a function');
  for (const [part, value] of Object.entries({ writer, open })) {
    if (value !== undefined && typeof value !== 'function') {
      throw invalid(`${what}.${part}`, value, 'a function, or nothing');
    }
  }
  return given as Transform;
}

function invalid(what: string, value: unknown, allowed: string): RespoolError {
  const text = `cannot use ${show(value)} as "${what}": allowed is ${allowed}`;
  return new RespoolError('config.invalid', text);
}

function refused(why: string): RespoolError {
  return new RespoolError('config.invalid', `cannot use these "transforms": ${why}`);
}
