/** peer — loads optional packages, and programs of the user; no other file imports these. */

import { RespoolError } from '../core/errors.ts';

/** Loads a file of the user's that is a program, by its `file:` URL. */
export async function importFile(url: string): Promise<Readonly<Record<string, unknown>>> {
  const name = url;
  return (await import(name)) as Record<string, unknown>;
}

/** Loads an optional package; one that is not installed is `peer.missing` with the command. */
export async function importPeer(
  packageName: string,
  need: string,
): Promise<Readonly<Record<string, unknown>>> {
  const name = packageName;
  try {
    return (await import(name)) as Record<string, unknown>;
  } catch (error) {
    // A package that is installed but fails to load has another cause, which must be shown.
    const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
    const text = error instanceof Error ? error.message : String(error);
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && text.includes(`'${packageName}'`);
    throw new RespoolError(
      'peer.missing',
      isMissing
        ? `cannot use ${need}: the package "${packageName}" is not installed; ` +
            `run: npm install ${packageName}`
        : `cannot use ${need}: the package "${packageName}" does not load (${text})`,
      { cause: error },
    );
  }
}
