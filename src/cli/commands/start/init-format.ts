/** init-format — which form of configuration fits a folder, and what its file is called. */

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Format } from './init-templates.ts';

/** TypeScript where the package can be imported, otherwise data that needs nothing. */
export function chooseFormat(folder: string): Format {
  return canImport(folder) ? 'ts' : 'yaml';
}

/** The file's name; a program is named so that Node takes it for a module in this folder. */
export async function fileNameOf(format: Format, folder: string): Promise<string> {
  const isPlainTs = format === 'ts' && (await isModuleFolder(folder));
  return `respool.config.${format === 'ts' && !isPlainTs ? 'mts' : format}`;
}

/** Whether the folder's programs can import the package. */
export function canImport(folder: string): boolean {
  try {
    createRequire(path.join(folder, 'respool.config.js')).resolve('respool');
    return true;
  } catch {
    return false;
  }
}

/** What the nearest manifest upwards says about `.ts` and `.js` files. */
async function isModuleFolder(folder: string): Promise<boolean> {
  for (let at = folder; ; at = path.dirname(at)) {
    const text = await readFile(path.join(at, 'package.json'), 'utf8').catch(() => undefined);
    if (text !== undefined) return isModuleManifest(text);
    if (at === path.dirname(at)) return false;
  }
}

function isModuleManifest(text: string): boolean {
  try {
    return (JSON.parse(text) as { type?: unknown }).type === 'module';
  } catch {
    // A manifest that cannot be read says nothing; the safe name works with and without it.
    return false;
  }
}
