/**
 * serve-log — what the service, and other commands that run until a signal (consume, relay, rules),
 * print meanwhile: one line per fact, for people or as JSON.
 *
 * Never waits for its reader. A reader that is too slow loses lines, and learns how many.
 */

import type { SerializedEvent } from '../../../spool/operator/operator.ts';
import { textOf } from '../../../core/errors.ts';
import { createRedactor } from '../../../core/redact.ts';
import { levelOf } from '../../../engine/events.ts';
import { eventLine, isRepeated, isLogged, type LogLevelText } from '../../ui/event-line.ts';
import type { CommandContext } from '../../spec.ts';
import type { Io, Out } from '../../ui/output.ts';
import { jsonLine, safe } from '../../../observe/logs/safe-text.ts';
import { timeOfDay } from '../../ui/times.ts';

/** How the lines look. */
interface LogOptions {
  readonly format: 'pretty' | 'json' | 'auto';
  readonly level: LogLevelText;
  /** Cuts secrets out of a line. */
  readonly hide: (text: string) => string;
  /** Names of fields whose values are not shown, beside those of secrets. */
  readonly redact: readonly string[];
}

/** Where the service's lines go. */
export interface ServeLog {
  /** `source`: whose event it is, where it is not the spool's. */
  event(event: SerializedEvent, source?: 'relay' | `queue:${string}`): void;
  /** A line of the service itself; `fields` are for JSON. */
  say(level: LogLevelText, text: string, fields?: object): void;
}

/** Bytes that may wait for the reader of stdout. */
const WAITING_MAX_BYTES = 4 * 2 ** 20;

/** Lines to stdout. */
export function createServeLog(io: Io, out: Out, options: LogOptions): ServeLog {
  const isJson =
    out.json || options.format === 'json' || (options.format === 'auto' && !io.isTTY('stdout'));
  const redactor = createRedactor({ names: options.redact });
  let missed = 0;
  stayWithoutReader(io, out);
  const put = (line: string): void => {
    if (io.stdout.destroyed) return;
    if (io.stdout.writableLength > WAITING_MAX_BYTES) {
      missed += 1;
      return;
    }
    if (missed > 0) {
      const text = `${missed} lines were dropped: the reader of the log was too slow`;
      const at = io.clock.now();
      io.stdout.write(`${isJson ? jsonLine({ at, level: 'warn', text }) : text}\n`);
      missed = 0;
    }
    io.stdout.write(`${options.hide(line)}\n`);
  };
  return {
    event: (event, source) => {
      if (!isLogged(event, options.level)) return;
      const from = source === undefined ? {} : { source };
      const shown = redactor.fields(rounded(event));
      if (isJson) put(jsonLine({ level: levelOf(event), ...from, ...shown }));
      else {
        // As it was, but for what is hidden: that is a text, whatever stood there.
        const line = eventLine(out, shown as unknown as SerializedEvent, source);
        put(`${out.style('dim', timeOfDay(event.at))} ${line}`);
      }
    },
    say: (level, value, fields = {}) => {
      if (!isRepeated(level, options.level)) return;
      const text = redactor.text(value);
      const at = io.clock.now();
      if (isJson) put(jsonLine({ at, level, text, ...redactor.fields(fields) }));
      else put(`${out.style('dim', timeOfDay(at))} ${safe(text, { multiline: true })}`);
    },
  };
}

/** A full disk below the log is no reason to stop delivering; said once, where it can be read. */
function stayWithoutReader(io: Io, out: Out): void {
  let isTold = false;
  io.onUnwritten?.((error) => {
    if (isTold) return;
    isTold = true;
    out.warn(`cannot write the log: ${textOf(error)}; deliveries continue`);
  });
}

/** Spans to a tenth of a millisecond: more is noise. */
function rounded(event: SerializedEvent): object {
  if (event.kind === 'ended') return { ...event, tookMs: tenth(event.tookMs) };
  if (event.kind !== 'delivered') return event;
  return { ...event, tookMs: tenth(event.tookMs), ageMs: tenth(event.ageMs) };
}

function tenth(ms: number): number {
  return Math.round(ms * 10) / 10;
}

/** The level of the log: `--verbose` and `--quiet` go before the configuration. */
export function logLevelOf(
  { out }: Pick<CommandContext, 'out'>,
  configured: LogLevelText,
): LogLevelText {
  if (out.verbose) return 'debug';
  return out.quiet ? 'warn' : configured;
}
