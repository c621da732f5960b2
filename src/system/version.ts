/** version — the version of this package, from its manifest. */

import { readFileSync } from 'node:fs';
import path from 'node:path';

/** The version of this package. */
export function readVersion(): string {
  // The manifest is two folders up, both from the source and from the build.
  const manifest = path.join(import.meta.dirname, '..', '..', 'package.json');
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string };
  return version;
}
