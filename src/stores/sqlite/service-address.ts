/** service-address — whether a service has a SQLite store open, and where it answers. */

import path from 'node:path';
import { filePathOf } from './options.ts';

/** The address that a living process left for these tables; the store itself is not opened. */
export async function serviceAddress(given: string, tables = ''): Promise<string | undefined> {
  const { serviceOfFile } = await import('./instances.ts');
  return serviceOfFile({ path: await filePathOf(path.resolve(given), 'respool.db'), tables });
}
