/** setup — a fresh folder with a configuration in it, and the loading of it. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { type LoadedConfig, loadConfig } from '../../src/config/load/load-config.ts';

/** Below the project, so that a configuration that is a program finds `respool`. */
const CACHE = path.join(import.meta.dirname, '../../.cache');

export async function folderWith(files: Readonly<Record<string, string>> = {}): Promise<string> {
  await mkdir(CACHE, { recursive: true });
  const folder = await mkdtemp(path.join(CACHE, 'connect-'));
  // Not by afterEach(), which is called before what a test itself has to end: the folder goes last.
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await writeFile(path.join(folder, name), text);
  }
  return folder;
}

export interface Given {
  readonly config?: object;
  readonly yaml?: string;
  readonly env?: Record<string, string | undefined>;
  readonly flags?: Record<string, unknown>;
  readonly dotEnv?: string;
  readonly routes?: boolean;
}

/** Loads what is given from a folder of its own. */
export async function load({
  config,
  yaml,
  env = {},
  flags,
  dotEnv,
  routes,
}: Given): Promise<LoadedConfig> {
  const folder = await folderWith({
    ...(config === undefined ? {} : { 'respool.config.json': JSON.stringify(config, null, 2) }),
    ...(yaml === undefined ? {} : { 'respool.config.yaml': yaml }),
    ...(dotEnv === undefined ? {} : { '.env': dotEnv }),
  });
  // Without a file of its own a folder below the project could find one further up.
  return loadConfig({ cwd: folder, env, flags, routes });
}

/** What loading this says when it is refused. */
export async function refusal(given: Given): Promise<string> {
  return textOf(load(given));
}

/** The text of the `config.invalid` that a promise ends with. */
export async function textOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code !== 'config.invalid') throw error;
    return message;
  }
  throw new Error('it was not refused');
}

/** The value at a dotted key. */
export function at(loaded: LoadedConfig, key: string): unknown {
  let node: unknown = loaded.config;
  for (const word of key.split('.')) node = (node as Record<string, unknown> | undefined)?.[word];
  return node;
}
