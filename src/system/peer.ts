/**
 * peer — the only way to an optional package. A missing one is `peer.missing` with the command to run.
 */

import { RespoolError } from '../core/errors.ts';

/** Imports an optional package when it is needed, or says how to install it. */
export async function importPeer<T>(name: string, forWhat: string): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new RespoolError(
      'peer.missing',
      `cannot open ${forWhat}: package "${name}" is not installed; run: npm install ${name}`,
      { cause: error },
    );
  }
}
