/**
 * pretty — a logger for terminals: one readable line per fact.
 *
 *   12:04:31.000Z warn  bounced id=0198… topic=mail.send because.code=smtp.550 because.text=…
 *
 * Promise: no text breaks out of its line, and no line holds a secret or steers a terminal.
 */

import { styleText } from 'node:util';
import { RespoolError, show, textOf } from '../../core/errors.ts';
import {
  CLOCK_OPTION,
  type Option,
  type OptionTable,
  readOptions,
} from '../../core/option-table.ts';
import { createRedactor, type RedactOptions } from '../../core/redact.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Logger, LogLevel } from '../../ports/logger.ts';
import { systemClock } from '../../system/clock.ts';
import { fieldText, jsonLine, safe } from './safe-text.ts';

const PRETTY = {
  write: {
    kind: 'code',
    type: 'a function of one line',
    ts: '(line: string) => unknown',
    defaultText: 'to stderr',
    about: 'receives each line, with its end',
  },
  color: {
    kind: 'boolean',
    defaultText: 'on if stderr is a terminal, unless `NO_COLOR` is set',
    about: 'styles the time and the level',
  },
  level: {
    kind: 'choice',
    choices: ['error', 'warn', 'info', 'debug'],
    ts: 'LogLevel',
    default: 'info',
    about: 'the lowest level that is written',
  },
  clock: { ...CLOCK_OPTION, about: 'for lines without `at`' },
  names: {
    kind: 'data',
    type: 'a list of names',
    ts: 'readonly string[]',
    about: 'additional fields that are hidden',
  },
} as const satisfies OptionTable;

/** The options of `prettyLogger`. */
export const PRETTY_OPTIONS: Readonly<Record<keyof PrettyOptions, Option>> = PRETTY;

/** What `prettyLogger()` takes. */
export interface PrettyOptions extends RedactOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Receives each line, with its end. Default to stderr. */
  readonly write?: (line: string) => unknown;
  /**
   * Styles the time and the level. Default on if stderr is a terminal, unless `NO_COLOR` is set.
   */
  readonly color?: boolean;
  /** The lowest level that is written. Default `info`. */
  readonly level?: LogLevel;
  /** For lines without `at`. Default the system clock. */
  readonly clock?: Clock;
}

const LEVELS: readonly LogLevel[] = PRETTY.level.choices;
const STYLES = { error: 'red', warn: 'yellow', info: 'green', debug: 'dim' } as const;
const LEVEL_COLUMNS = 6;
/** Fields within fields are written as `because.code`, down to here. */
const DOTS_MAX = 2;

/** A logger that writes lines for people; give it to `createSpool`, a consumer, an outbox. */
export function prettyLogger(options: PrettyOptions = {}): Logger {
  const values = readOptions({ what: 'prettyLogger' }, options, PRETTY);
  const { level: least, color = options.write === undefined && isColorful() } = values;
  const { write = toStderr, clock = systemClock } = options;
  if (typeof write !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${show(write)} as "write" of prettyLogger: allowed is a function of one line`,
    );
  }
  const redactor = createRedactor(options);
  const style = (name: 'dim' | 'red' | 'yellow' | 'green', text: string): string =>
    color ? styleText(name, text, { validateStream: false }) : text;
  const isEnabled = (level: LogLevel): boolean => LEVELS.indexOf(level) <= LEVELS.indexOf(least);
  const at =
    (level: LogLevel): Logger[LogLevel] =>
    (...message) => {
      if (!isEnabled(level)) return;
      const { given, text } = saidOf(message);
      const { at: moment, kind, ...fields } = redactor.fields(given);
      const time = timeOfDay(typeof moment === 'number' ? moment : clock.now());
      const word = style(STYLES[level], level.padEnd(LEVEL_COLUMNS));
      // The kind of an event is its text, but for trouble, whose text begins with it.
      const isSaid = typeof kind === 'string' && text.startsWith(kind);
      const rest = isSaid ? fields : { kind, ...fields };
      const line = `${style('dim', time)} ${word}${safe(redactor.text(text))}${fieldsText(rest)}`;
      write(`${line}\n`);
    };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: isEnabled,
  };
}

/** As pino takes it: fields and text, fields alone, or a text alone. */
function saidOf([first, second]: readonly unknown[]): { given: object; text: string } {
  if (typeof first !== 'object' || first === null) return { given: {}, text: textOf(first) };
  return { given: first, text: second === undefined ? '' : textOf(second) };
}

function toStderr(line: string): void {
  process.stderr.write(line);
}

function isColorful(): boolean {
  const { NO_COLOR: noColor = '', TERM: term } = process.env;
  return process.stderr.isTTY && noColor === '' && term !== 'dumb';
}

function fieldsText(fields: object, before = '', depth = 0): string {
  return Object.entries(fields)
    .map(([name, value]: [string, unknown]) => {
      const full = `${before}${name}`;
      if (value === null || value === undefined) return '';
      if (typeof value === 'string' || typeof value === 'number') return fieldText([full, value]);
      if (typeof value !== 'object') return fieldText([full, textOf(value)]);
      const isRecord = !Array.isArray(value) && depth + 1 < DOTS_MAX;
      if (isRecord) return fieldsText(value, `${full}.`, depth + 1);
      return fieldText([full, jsonLine(value)]);
    })
    .join('');
}

function timeOfDay(at: number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().slice('yyyy-mm-ddT'.length);
}

// A logger whose lines hold no secrets: fields and text pass through `redact`
// before they reach the one that was given. For the lines of your own; ours pass through it anyway.

/** The logger, without what must not be seen. Only the logger itself can throw. */
export function withRedaction(logger: Logger, options: RedactOptions = {}): Logger {
  const redactor = createRedactor(options);
  const isEnabled = (level: LogLevel): boolean => logger.isLevelEnabled?.(level) ?? true;
  const at =
    (level: LogLevel): Logger[LogLevel] =>
    (fields, text) => {
      if (!isEnabled(level)) return;
      // pino takes a text alone too, and no compiler stands between it and every program.
      const isObject = typeof fields === 'object' && fields !== null;
      const said: unknown = isObject ? text : fields;
      logger[level](isObject ? redactor.fields(fields) : {}, redactor.text(textOf(said ?? '')));
    };
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: isEnabled,
  };
}
