/** progress — a bar on stderr while something long runs; nothing where nobody looks. */

import type { Io } from './io.ts';
import type { Out } from './out.ts';
import { numberText } from './safe.ts';

/** A bar that is drawn over itself. */
export interface Progress {
  /** Without a total, as while ids come from a pipe, only what is done is told. */
  show(done: number, total?: number): void;
  /** Takes it away, for a line that is printed; the next `show` draws it again. */
  clear(): void;
}

const BAR_COLUMNS = 24;
/** How long something takes before it is worth a bar. */
const SHOWN_AFTER_MS = 500;
/** A terminal far away is not flooded: nobody sees more than this. */
const DRAWN_EVERY_MS = 100;

/** A bar for one thing that may take long. */
export function createProgress(io: Io, out: Out): Progress {
  const isShown = io.isTTY('stderr') && !out.quiet && !out.json;
  const startedAt = io.clock.monotonic();
  let hasDrawn = false;
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    show: (done, total) => {
      if (!isShown) return;
      const now = io.clock.monotonic();
      if (now - startedAt < SHOWN_AFTER_MS) return;
      if (hasDrawn && done !== total && now - drawnAt < DRAWN_EVERY_MS) return;
      hasDrawn = true;
      drawnAt = now;
      if (total === undefined) {
        io.stderr.write(`\r${numberText(done)} done `);
        return;
      }
      const share = total === 0 ? 1 : Math.min(1, Math.max(0, done / total) || 0);
      const filled = Math.round(share * BAR_COLUMNS);
      const bar = `${'#'.repeat(filled)}${'.'.repeat(BAR_COLUMNS - filled)}`;
      io.stderr.write(`\r[${bar}] ${numberText(done)} of ${numberText(total)} `);
    },
    clear: () => {
      if (hasDrawn) io.stderr.write('\r\u001b[K');
      hasDrawn = false;
    },
  };
}

/**
 * A bar over the ids that were given, for a command whose output goes elsewhere: on the terminal
 * itself the output shows how far it is.
 */
export function idProgress({
  args,
  io,
  out,
}: {
  readonly args: readonly string[];
  readonly io: Io;
  readonly out: Out;
}): Progress {
  const total = args.includes('-') ? undefined : args.length;
  const bar = createProgress(io, out);
  return {
    show: (done) => {
      if (!io.isTTY('stdout')) bar.show(done, total);
    },
    clear: () => bar.clear(),
  };
}
