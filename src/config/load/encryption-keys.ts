/**
 * encryption-keys — what of the data under `transforms` and `seal` is a key: to be hidden, to be
 * found in its file, to be shown by its place.
 *
 * Data may be wrong in any way here: it is looked through before it is checked, so that no error
 * can show a key.
 */

import path from 'node:path';
import { isPlainObject } from '../../core/limits.ts';
import { type KnownSecrets, SECRET_MARK } from '../../core/redact.ts';
import type { Transform } from '../../ports/transform.ts';
import { locationProblem, locationOf } from '../../transforms/key-ring.ts';
import type { Environment } from './read-file.ts';

/** Data that goes deeper goes round in circles. */
const DEPTH_MAX = 32;
/** As long as this, a text at a wrong place may be a key. */
const KEY_MIN_CHARS = 32;

/** A text that a file fills in from the environment. */
const VARIABLE = /^\$\{[^}]+\}$/;

type Change = (value: unknown, isKey: boolean) => unknown;

/** Remembers every key that is there, and those of variables; returns the variables' names. */
export function collectKeys(value: unknown, secrets: KnownSecrets, env: Environment): string[] {
  const names: string[] = [];
  mapLeaves(value, (leaf, isKey) => {
    if (typeof leaf !== 'string') return leaf;
    const text = leaf.trim();
    const place = locationOf(text);
    if (place === undefined) {
      if (isKey || text.length >= KEY_MIN_CHARS) secrets.add(text);
    } else if (locationProblem(place) !== undefined) {
      // Where the name of a place should stand there may be a key.
      secrets.add(place.name);
    } else if (place.kind === 'env') {
      names.push(place.name);
      secrets.add(env[place.name]?.trim());
    }
    return leaf;
  });
  return names;
}

/** The same data with `file:` of keys as absolute paths. */
export function withKeyFiles(value: unknown, folder: string): unknown {
  return mapLeaves(value, (leaf, isKey) => {
    const place = isKey && typeof leaf === 'string' ? locationOf(leaf.trim()) : undefined;
    // What is no path is left for the check to refuse.
    const isFile = place?.kind === 'file' && locationProblem(place) === undefined;
    return isFile ? `file:${path.resolve(folder, place.name)}` : leaf;
  });
}

/** The same data as it may be shown: keys only by their places. */
export function withoutKeys(value: unknown): unknown {
  return mapLeaves(value, (leaf, isKey) => {
    if (typeof leaf === 'function') return '(function)';
    if (!isKey) return isTransform(leaf) ? `(${leaf.kind} ${leaf.name})` : leaf;
    return typeof leaf === 'string' && isPlace(leaf.trim()) ? leaf.trim() : SECRET_MARK;
  });
}

/** Whether a key itself stands there, not the place of one, nor `${NAME}`. */
export function hasLiteralKey(value: unknown): boolean {
  let isFound = false;
  mapLeaves(value, (leaf, isKey) => {
    const isText = typeof leaf === 'string' && !isPlace(leaf.trim()) && !VARIABLE.test(leaf);
    isFound ||= isKey && (isText || leaf instanceof Uint8Array);
    return leaf;
  });
  return isFound;
}

/** Whether it is a transform that a program has made, or looks like one, and no data. */
export function isTransform(value: unknown): value is Transform {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return !isPlainObject(value) || typeof value['reader'] === 'function';
}

function isPlace(text: string): boolean {
  const place = locationOf(text);
  return place !== undefined && locationProblem(place) === undefined;
}

/** Goes through lists and plain objects; everything below a `keys` is a key. */
function mapLeaves(value: unknown, change: Change, isKey = false, depth = 0): unknown {
  if (depth > DEPTH_MAX) return '(deep)';
  if (Array.isArray(value)) {
    return value.map((one: unknown) => mapLeaves(one, change, isKey, depth + 1));
  }
  if (!isPlainObject(value) || isTransform(value)) return change(value, isKey);
  const pairs = Object.entries(value).map(([name, one]) => [
    name,
    mapLeaves(one, change, isKey || name === 'keys', depth + 1),
  ]);
  return Object.fromEntries(pairs) as unknown;
}
