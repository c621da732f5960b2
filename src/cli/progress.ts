/** progress — a bar on stderr while something long runs; nothing where nobody looks. */

import type { Io } from './io.ts';
import type { Out } from './out.ts';
import { numberText } from './safe.ts';

/** A bar that is drawn over itself. */
export interface Progress {
  show(done: number, total: number): void;
  clear(): void;
}

const BAR_COLUMNS = 24;
/** How long something takes before it is worth a bar. */
const SHOWN_AFTER_MS = 500;

/** A bar for one thing that may take long. */
export function createProgress(io: Io, out: Out): Progress {
  const isShown = io.isTTY('stderr') && !out.quiet && !out.json;
  const startedAt = io.clock.monotonic();
  let hasDrawn = false;
  return {
    show: (done, total) => {
      if (!isShown || io.clock.monotonic() - startedAt < SHOWN_AFTER_MS) return;
      const share = total === 0 ? 1 : Math.min(1, Math.max(0, done / total) || 0);
      const filled = Math.round(share * BAR_COLUMNS);
      const bar = `${'#'.repeat(filled)}${'.'.repeat(BAR_COLUMNS - filled)}`;
      hasDrawn = true;
      io.stderr.write(`\r[${bar}] ${numberText(done)} of ${numberText(total)} `);
    },
    clear: () => {
      if (hasDrawn) io.stderr.write('\r\u001b[K');
      hasDrawn = false;
    },
  };
}
