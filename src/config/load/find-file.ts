/**
 * find-file — the configuration file: the one that is named, or the nearest upwards.
 */

import { lstat, stat } from 'node:fs/promises';
import path from 'node:path';
import { lilconfig } from 'lilconfig';
import { isRespoolError, RespoolError, show, textOf } from '../../core/errors.ts';

/** What a configuration file may be called after its first dot. */
export const EXTENSIONS = ['ts', 'mts', 'js', 'mjs', 'json', 'yaml', 'yml'] as const;

/** Every name a configuration file may have. */
const NAMES: readonly string[] = EXTENSIONS.map((extension) => `respool.config.${extension}`);

/** The file to read, or undefined if none exists; `named` is a file or a folder. */
export async function findConfigFile(
  cwd: string,
  named: string | undefined,
): Promise<string | undefined> {
  if (named === undefined) return searchUpwards(path.resolve(cwd));
  const target = path.resolve(cwd, named);
  const found = await stat(target).catch(() => undefined);
  if (found === undefined) {
    if (await isLink(target)) throw deadLink(target);
    throw new RespoolError(
      'config.invalid',
      `cannot read the configuration ${show(named)}: there is no such file or folder`,
    );
  }
  if (!found.isDirectory()) return checkExtension(target);
  const file = await onlyOneIn(target);
  if (file !== undefined) return file;
  throw new RespoolError(
    'config.invalid',
    `cannot find a configuration in ${show(named)}: none of ${NAMES.join(', ')} is there`,
  );
}

async function searchUpwards(from: string): Promise<string | undefined> {
  // Found is not loaded: a program must not run before we know that it is the only one.
  const asFound = (file: string): string => file;
  const search = lilconfig('respool', {
    searchPlaces: [...NAMES],
    loaders: Object.fromEntries(EXTENSIONS.map((extension) => [`.${extension}`, asFound])),
    stopDir: path.parse(from).root,
    ignoreEmptySearchPlaces: false,
    cache: false,
  });
  await refuseStrange(from);
  try {
    const found = await search.search(from);
    return found === null ? undefined : await onlyOneIn(path.dirname(found.filepath));
  } catch (error) {
    if (isRespoolError(error)) throw error;
    throw new RespoolError('config.invalid', `cannot read the configuration: ${textOf(error)}`);
  }
}

/** Refuses what goes by a configuration's name and cannot be read, on the way to the nearest. */
async function refuseStrange(from: string): Promise<void> {
  for (let folder = from; ; folder = path.dirname(folder)) {
    const isFound = (await configFilesIn(folder)).length > 0;
    if (isFound || folder === path.dirname(folder)) return;
  }
}

/** The names of the configuration files in a folder. */
export async function configFilesIn(folder: string): Promise<readonly string[]> {
  const present: string[] = [];
  for (const name of NAMES) {
    const file = path.join(folder, name);
    const found = await stat(file).catch(() => undefined);
    if (found === undefined) {
      // Passed over, another configuration further up would hold in its place.
      if (await isLink(file)) throw deadLink(file);
      continue;
    }
    if (found.isDirectory()) {
      throw new RespoolError(
        'config.invalid',
        `cannot read the configuration ${show(file)}: it is a folder; give it another name`,
      );
    }
    present.push(name);
  }
  return present;
}

async function isLink(file: string): Promise<boolean> {
  return (await lstat(file).catch(() => undefined))?.isSymbolicLink() === true;
}

function deadLink(file: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot read the configuration ${show(file)}: it is a link to a file that is not there; ` +
      'fix the link or remove it',
  );
}

async function onlyOneIn(folder: string): Promise<string | undefined> {
  const [first, second] = await configFilesIn(folder);
  if (second !== undefined) {
    throw new RespoolError(
      'config.invalid',
      `cannot choose between "${first}" and "${second}" in ${show(folder)}: keep one of them, ` +
        'or name it with --config',
    );
  }
  return first === undefined ? undefined : path.join(folder, first);
}

function checkExtension(file: string): string {
  if (EXTENSIONS.some((extension) => file.endsWith(`.${extension}`))) return file;
  throw new RespoolError(
    'config.invalid',
    `cannot read the configuration ${show(file)}: its name must end in ${EXTENSIONS.join(', ')}`,
  );
}
