/** config — reads the configuration for a command: file, environment and command line. */

import type { LoadedConfig, LoadOptions } from '../config/load/load-config.ts';
import type { Io, Out } from './ui/output.ts';

/** What reading the configuration needs. */
interface ConfigParts {
  readonly globals: { readonly config?: string; readonly store?: string };
  readonly io: Io;
  readonly out: Out;
}

/** Reads and checks the configuration, flags above it, and says what is strange about it. */
export async function readConfig(
  { globals, io, out }: ConfigParts,
  flags: Readonly<Record<string, unknown>> = {},
  { routes = true }: Pick<LoadOptions, 'routes'> = {},
): Promise<LoadedConfig> {
  const { loadConfig } = await import('../config/load/load-config.ts');
  const loaded = await loadConfig({
    cwd: io.cwd,
    env: io.env,
    file: globals.config,
    flags: { store: globals.store, ...flags },
    routes,
  });
  for (const warning of loaded.warnings) out.warn(warning);
  return loaded;
}
