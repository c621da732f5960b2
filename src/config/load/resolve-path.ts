/**
 * resolve-path — where a relative path starts. Who types one means the working directory; who
 * writes one into a file means the folder of the file.
 */

import path from 'node:path';
import { KEY_HOLDERS, withKeyFiles } from './encryption-keys.ts';
import type { KeyKind } from '../schema/key.ts';
import { configError } from './config-errors.ts';

/** Where paths start from. */
export interface BaseFolders {
  /** For what flags and the environment say. */
  readonly cwd: string;
  /** For everything else. */
  readonly folder: string;
}

const STORES: readonly string[] = ['store', 'entries', 'bodies', 'outbox.store'];

/** A value that was said in the working directory, so that it means the same in the folder. */
export function resolvePath(
  { key, kind }: KeyKind,
  value: unknown,
  { cwd, folder }: BaseFolders,
): unknown {
  if (KEY_HOLDERS.includes(key)) return withKeyFiles(value, cwd);
  if (typeof value !== 'string' || value.includes('\0')) return value;
  const [, scheme = '', place = '', options = ''] = STORES.includes(key)
    ? (/^((?:sqlite|file):)([^?]*)(.*)$/is.exec(value) ?? [])
    : kind === 'file'
      ? ['', '', value, '']
      : [];
  if (place === '' || path.isAbsolute(place)) return value;
  const meant = path.resolve(cwd, place);
  // As it was written, wherever that says the same.
  if (meant === path.resolve(folder, place)) return value;
  if (scheme !== '' && meant.includes('?')) {
    throw configError(key, value, 'a place without "?" in its whole path');
  }
  return `${scheme}${meant}${options}`;
}
