/**
 * progress — how far something long is, on stderr: a bar at a terminal, elsewhere a line every few
 * seconds, with `--json` an object. With `--quiet` nothing.
 */

import type { Io } from './io.ts';
import type { Out } from './out.ts';
import { SECOND_MS } from '../core/duration.ts';
import { jsonLine, numberText } from './safe.ts';

/** A bar that is drawn over itself. */
export interface Progress {
  /** Without a total, as while ids come from a pipe, only what is done is told. */
  show(done: number, total?: number): void;
  /** Takes it away, for a line that is printed; the next `show` draws it again. */
  clear(): void;
}

const BAR_COLUMNS = 24;
/** A shorter bar tells less than its numbers. */
const BAR_MIN_COLUMNS = 6;
/** How long something takes before it is worth a bar. */
const SHOWN_AFTER_MS = 500;
/** A terminal far away is not flooded: nobody sees more than this. */
const DRAWN_EVERY_MS = 100;

/** Interval of progress lines: visible in a log without flooding it. */
const LINE_EVERY_MS: number = 5 * SECOND_MS;

/** A bar, or lines, for one thing that may take long. */
export function createProgress(io: Io, out: Out): Progress {
  if (out.quiet) return { show: () => undefined, clear: () => undefined };
  return io.isTTY('stderr') && !out.json ? createBar(io) : createLines(io, out);
}

function createLines(io: Io, { json }: Out): Progress {
  let nextAt = io.clock.monotonic() + LINE_EVERY_MS;
  return {
    show: (done, total) => {
      const now = io.clock.monotonic();
      if (now < nextAt) return;
      nextAt = now + LINE_EVERY_MS;
      const of = total === undefined ? '' : ` of ${numberText(total)}`;
      const line = json ? jsonLine({ progress: { done, total } }) : `${numberText(done)}${of} done`;
      io.stderr.write(`${line}\n`);
    },
    clear: () => undefined,
  };
}

function createBar(io: Io): Progress {
  const startedAt = io.clock.monotonic();
  let hasDrawn = false;
  let drawnAt = Number.NEGATIVE_INFINITY;
  return {
    show: (done, total) => {
      const now = io.clock.monotonic();
      if (now - startedAt < SHOWN_AFTER_MS) return;
      if (hasDrawn && done !== total && now - drawnAt < DRAWN_EVERY_MS) return;
      hasDrawn = true;
      drawnAt = now;
      // In the last column a terminal breaks the line, and what is drawn over it is the wrong one.
      io.stderr.write(`\r${lineOf(done, total, io.columns() - 1)}`);
    },
    clear: () => {
      if (hasDrawn) io.stderr.write('\r\u001b[K');
      hasDrawn = false;
    },
  };
}

/** A bar and its numbers, in at most so many columns. */
function lineOf(done: number, total: number | undefined, columns: number): string {
  if (total === undefined) return `${numberText(done)} done `.slice(0, columns);
  const numbers = `${numberText(done)} of ${numberText(total)} `;
  const room = Math.min(BAR_COLUMNS, columns - numbers.length - '[] '.length);
  if (room < BAR_MIN_COLUMNS) return numbers.slice(0, columns);
  const share = total === 0 ? 1 : Math.min(1, Math.max(0, done / total) || 0);
  const filled = Math.round(share * room);
  return `[${'#'.repeat(filled)}${'.'.repeat(room - filled)}] ${numbers}`;
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
