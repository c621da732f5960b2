/**
 * progress — progress of a long operation on stderr: a bar at a terminal, otherwise a line every
 * few seconds, with `--json` an object. With `--quiet` nothing.
 */

import type { Io, Out } from './output.ts';
import { SECOND_MS } from '../../core/duration.ts';
import { jsonLine, numberText } from '../../observe/logs/safe-text.ts';
import type { CommandContext } from '../spec.ts';
import type { MoveProgress } from '../../rabbit/admin/reports.ts';
import { interruptible } from '../lifetime.ts';

/** A bar that is drawn over itself. */
interface Progress {
  /** Says what is done before anything can be counted: `counting`. */
  begin(doing: string): void;
  /** Without a total, as while ids come from a pipe, only the number done is shown. */
  show(done: number, total?: number): void;
  /** Takes it away, for a line that is printed or at the end; the next `show` draws it again. */
  clear(): void;
}

/** From here to the end of the line. */
const CLEAR = '\u001b[K';
const BAR_COLUMNS = 24;
/** Minimum width of a bar; a shorter one says less than its numbers. */
const BAR_MIN_COLUMNS = 6;
/** How long something takes before it is worth a bar. */
const SHOWN_AFTER_MS = 500;
/** Minimum interval between updates, so that a slow terminal is not flooded. */
const DRAWN_EVERY_MS = 100;

/**
 * Interval of progress lines: visible in a log without flooding it. Also in docs/reference/cli.md.
 */
const LINE_EVERY_MS: number = 5 * SECOND_MS;

/** A bar, or lines, for one thing that may take long. */
export function createProgress(io: Io, out: Out): Progress {
  const nothing = (): void => undefined;
  if (out.quiet) return { begin: nothing, show: nothing, clear: nothing };
  return io.isTTY('stderr') && !out.json ? createBar(io) : createLines(io, out);
}

/** A line every few seconds, also while one step takes longer than that. */
function createLines({ clock, stderr }: Io, { json }: Out): Progress {
  let nextAt = clock.monotonic() + LINE_EVERY_MS;
  let line = (): string => '';
  let callOff: (() => void) | undefined;
  const write = (): void => {
    nextAt = clock.monotonic() + LINE_EVERY_MS;
    stderr.write(`${line()}\n`);
  };
  const again = (): void => {
    callOff = clock.after(LINE_EVERY_MS, () => {
      write();
      again();
    });
  };
  const tell = (text: () => string): void => {
    line = text;
    if (callOff === undefined) again();
    if (clock.monotonic() < nextAt) return;
    write();
    callOff?.();
    again();
  };
  return {
    begin: (doing) => tell(() => (json ? jsonLine({ progress: { done: 0 } }) : doing)),
    show: (done, total) =>
      tell(() => {
        const of = total === undefined ? '' : ` of ${numberText(total)}`;
        return json ? jsonLine({ progress: { done, total } }) : `${numberText(done)}${of} done`;
      }),
    clear: () => {
      callOff?.();
      callOff = undefined;
    },
  };
}

function createBar(io: Io): Progress {
  const startedAt = io.clock.monotonic();
  let hasDrawn = false;
  let drawnAt = Number.NEGATIVE_INFINITY;
  let hasWords = false;
  let callOff: (() => void) | undefined;
  // In the last column a terminal breaks the line, and what is drawn over it is the wrong one.
  const draw = (textIn: (columns: number) => string): void => {
    callOff?.();
    io.stderr.write(`\r${hasWords ? CLEAR : ''}${textIn(io.columns() - 1)}`);
    hasDrawn = true;
    hasWords = false;
    drawnAt = io.clock.monotonic();
  };
  return {
    begin: (doing) => {
      callOff = io.clock.after(SHOWN_AFTER_MS, () => {
        draw((columns) => doing.slice(0, columns));
        hasWords = true;
      });
    },
    show: (done, total) => {
      const now = io.clock.monotonic();
      if (now - startedAt < SHOWN_AFTER_MS) return;
      if (hasDrawn && done !== total && now - drawnAt < DRAWN_EVERY_MS) return;
      draw((columns) => lineOf(done, total, columns));
    },
    clear: () => {
      callOff?.();
      if (hasDrawn) io.stderr.write(`\r${CLEAR}`);
      hasDrawn = false;
      hasWords = false;
    },
  };
}

/** A bar and its numbers, in at most this many columns. */
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
}): Pick<Progress, 'show' | 'clear'> {
  const total = args.includes('-') ? undefined : args.length;
  const bar = createProgress(io, out);
  return {
    show: (done) => {
      if (!io.isTTY('stdout')) bar.show(done, total);
    },
    clear: () => bar.clear(),
  };
}

/** What takes long before anything can be asked. */
export const COUNTING = 'counting messages';

/** Does one thing of which it is not known how far it is. */
export async function during<T>(
  { io, out }: Pick<CommandContext, 'io' | 'out'>,
  doing: string,
  work: () => Promise<T>,
): Promise<T> {
  const bar = createProgress(io, out);
  bar.begin(doing);
  try {
    return await work();
  } finally {
    bar.clear();
  }
}

/** The same items, counted as they pass. */
export async function* passing<T>(
  { io, out }: Pick<CommandContext, 'io' | 'out'>,
  items: AsyncIterable<T>,
): AsyncGenerator<T> {
  const bar = createProgress(io, out);
  let count = 0;
  try {
    for await (const item of items) {
      count += 1;
      bar.show(count);
      yield item;
    }
  } finally {
    bar.clear();
  }
}

/** Runs it; `total` is how many messages there are. A signal ends it between two messages. */
export async function moveWith<Report>(
  { io, out }: CommandContext,
  total: number,
  run: (signal: AbortSignal, onProgress: (progress: MoveProgress) => void) => Promise<Report>,
): Promise<Report> {
  const bar = createProgress(io, out);
  /** What was seen, by queue: several are moved one after the other. */
  const seen = new Map<string, number>();
  const done = (): number => [...seen.values()].reduce((sum, count) => sum + count, 0);
  const howFar = (): string =>
    ` after ${numberText(done())} of ${numberText(total)} messages; run it again for the rest: ` +
    'nothing is lost';
  return interruptible(io, howFar, (signal) =>
    run(signal, ({ queue, moved, skipped }) => {
      seen.set(queue, moved + skipped);
      bar.show(done(), total);
    }),
  ).finally(() => bar.clear());
}
