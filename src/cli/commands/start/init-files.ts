/**
 * init-files — puts the first files into a folder. What is there is never lost: it is refused, or
 * with force kept under another name.
 */

import { appendFile, lstat, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { textOf } from '../../../core/errors.ts';
import { CommandError } from '../../exit-codes.ts';

/** A file to be. */
export interface NewFile {
  readonly name: string;
  readonly text: string;
  /** Other names of the same thing, that must not be there beside it. */
  readonly rivals?: readonly string[];
}

/** What became of a file. */
export interface WrittenFile {
  readonly name: string;
  /** The name under which what was there is kept. */
  readonly kept?: string;
}

const BACKUPS_MAX = 100;
/** Anchored: a folder of this name further down is not ours. */
const IGNORED = '/respool/';

/** Writes all, or refuses before the first. */
export async function writeFiles(
  folder: string,
  files: readonly NewFile[],
  { force }: { readonly force: boolean },
): Promise<readonly WrittenFile[]> {
  const present: string[] = [];
  for (const { name, rivals = [] } of files) {
    for (const one of new Set([name, ...rivals])) {
      if (await isThere(path.join(folder, one))) present.push(one);
    }
  }
  if (present.length > 0 && !force) {
    throw new CommandError(
      'usage.invalid',
      `cannot begin in "${folder}": already there: ${present.join(', ')}; nothing was ` +
        'changed; take another folder, or --force to replace it and keep a .bak',
    );
  }
  try {
    return await replaceAll(folder, files, present);
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(
      'usage.invalid',
      `cannot begin in "${folder}": ${textOf(error)}; take a folder you may write to`,
    );
  }
}

async function replaceAll(
  folder: string,
  files: readonly NewFile[],
  present: readonly string[],
): Promise<readonly WrittenFile[]> {
  const written: WrittenFile[] = [];
  for (const name of present) written.push({ name, kept: await putAside(folder, name) });
  for (const { name, text } of files) {
    await writeFile(path.join(folder, name), text, { flag: 'wx' });
    if (!present.includes(name)) written.push({ name });
  }
  return written;
}

/** Adds the store's folder to a `.gitignore` that is there; true if it was missing. */
export async function ignoreStore(folder: string): Promise<boolean> {
  const file = path.join(folder, '.gitignore');
  try {
    const text = await readFile(file, 'utf8');
    if (/^\/?respool\/?\s*$/m.test(text)) return false;
    await appendFile(file, `${text === '' || text.endsWith('\n') ? '' : '\n'}${IGNORED}\n`);
    return true;
  } catch {
    // None, or none that may be read and changed: a project that says nothing is not told.
    return false;
  }
}

async function putAside(folder: string, name: string): Promise<string> {
  for (let number = 1; number <= BACKUPS_MAX; number += 1) {
    const kept = `${name}.bak${number === 1 ? '' : number}`;
    if (await isThere(path.join(folder, kept))) continue;
    await rename(path.join(folder, name), path.join(folder, kept));
    return kept;
  }
  throw new CommandError(
    'usage.invalid',
    `cannot keep "${name}": there are ${BACKUPS_MAX} copies of it already; remove some`,
  );
}

async function isThere(file: string): Promise<boolean> {
  return lstat(file).then(
    () => true,
    () => false,
  );
}
