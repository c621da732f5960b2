/**
 * open-desk — which desk a command works at: a service's, or one over the store itself.
 */

import type { Control } from '../control/control.ts';
import type { Io } from './io.ts';
import type { Out } from './out.ts';

/** Where a command works, and in whose name. */
export interface Desk {
  readonly control: Control;
  /** The address of the service it goes through; undefined when it works on the store itself. */
  readonly url: string | undefined;
}

/** What opening a desk needs. */
export interface DeskParts {
  readonly globals: { readonly config?: string; readonly store?: string; readonly url?: string };
  readonly io: Io;
  readonly out: Out;
  readonly atEnd: (close: () => Promise<void> | void) => void;
}

/** Opens the desk that the options and the configuration lead to. */
export async function openDesk({ io, atEnd }: DeskParts): Promise<Desk> {
  const { createSpool } = await import('../spool/spool.ts');
  const { createControl } = await import('../control/index.ts');
  const spool = createSpool({ path: `${io.cwd}/respool`, clock: io.clock });
  atEnd(() => spool.stop());
  return { control: createControl(spool, { by: `${io.user}@cli` }), url: undefined };
}
