/**
 * exec — delivers a message by running a command: the body is its input, the envelope is in its
 * environment, and its exit code is the answer.
 *
 * Promise: no shell is involved, exit code 0 within the timeout means delivered, and what is not
 * certainly permanent is tried again, or held for an operator.
 *
 * Its options and their check are here, too; one run of a command: run.ts.
 */

import path from 'node:path';
import { type Duration, formatDuration } from '../../core/duration.ts';
import { textOf } from '../../core/errors.ts';
import { failure } from '../../core/failure.ts';
import { type Option, readOptions } from '../../core/option-table.ts';
import { type Outcome, delivered, failed, held } from '../../core/verdict.ts';
import { type Command, OUTPUT_KEPT_BYTES, type RunResult, StartError, runCommand } from './run.ts';
import { checkOptionList, checkStringRecord, checkTexts, invalidOption } from '../option-checks.ts';
import { type ReadyHandler, plainText } from '../ready-handler.ts';
import {
  argumentSecrets,
  hideArguments,
  hideKnownSecrets,
  hideValues,
  mayBeSecretName,
} from '../../core/redact.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Delivery } from '../../ports/handler.ts';
import { systemClock } from '../../system/clock.ts';
import { TimeLimit } from '../../system/wait.ts';

const EXEC = {
  cwd: {
    kind: 'text',
    type: 'a folder',
    defaultText: 'the folder of the configuration file; in your own program that of the process',
    about: 'the folder in which the command runs and relative programs are resolved',
  },
  env: {
    kind: 'data',
    type: 'texts by name',
    ts: 'Readonly<Record<string, string>>',
    schema: 'textMap',
    about: 'environment variables for the command, besides the inherited ones',
  },
  inherit: {
    kind: 'data',
    type: 'a list of names',
    ts: 'readonly string[]',
    schema: 'textList',
    defaultText: '`PATH`, `HOME`, `LANG`, `TZ` and the like',
    about: 'our own environment variables to pass on',
  },
  timeout: {
    kind: 'duration',
    min: '1ms',
    max: '1d',
    default: '5m',
    about: 'after this the command gets SIGTERM',
  },
  killAfter: {
    kind: 'duration',
    max: '1d',
    default: '5s',
    about: 'how long after SIGTERM it is killed',
  },
  transient: {
    kind: 'data',
    type: 'a list of exit codes',
    ts: 'readonly number[]',
    schema: 'exitCodes',
    about: 'exit codes that are tried again, besides 75 and all codes in no list',
  },
  permanent: {
    kind: 'data',
    type: 'a list of exit codes',
    ts: 'readonly number[]',
    schema: 'exitCodes',
    about: 'exit codes that give the message up, besides 64 to 68, 77 and 78 of sysexits',
  },
  hold: {
    kind: 'data',
    type: 'a list of exit codes',
    ts: 'readonly number[]',
    schema: 'exitCodes',
    about: 'exit codes that put the message on hold for an operator',
  },
} as const;

/** Every option of `exec()`. */
export const EXEC_OPTIONS: Readonly<Record<keyof ExecOptions, Option>> = EXEC;

/** What `exec()` takes besides the command. */
export interface ExecOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * The folder in which the command runs and relative programs are resolved. Default the folder of
   * the configuration file; in your own program that of the process.
   */
  readonly cwd?: string;
  /** Environment variables for the command, besides the inherited ones. */
  readonly env?: Readonly<Record<string, string>>;
  /**
   * Our own environment variables to pass on. Default `PATH`, `HOME`, `LANG`, `TZ` and the like.
   */
  readonly inherit?: readonly string[];
  /** After this the command gets SIGTERM. 1ms to 1d; default 5m. */
  readonly timeout?: Duration;
  /** How long after SIGTERM it is killed. Up to 1d; default 5s. */
  readonly killAfter?: Duration;
  /** Exit codes that are tried again, besides 75 and all codes in no list. */
  readonly transient?: readonly number[];
  /** Exit codes that give the message up, besides 64 to 68, 77 and 78 of sysexits. */
  readonly permanent?: readonly number[];
  /** Exit codes that put the message on hold for an operator. */
  readonly hold?: readonly number[];
}

const REASON_LINE_MAX_CHARS = 200;
/** Errors of the operator, which waiting does not fix. */
const CANNOT_START = new Set([
  'ENOENT',
  'EACCES',
  'ENOEXEC',
  'ENOTDIR',
  'EISDIR',
  'EPERM',
  'ELOOP',
]);

/** Delivers by running a command, given as a list of program and arguments; never by a shell. */
export function exec(command: readonly string[] | string, options: ExecOptions = {}): ReadyHandler {
  return makeExec(command, options, {});
}

/** What tests replace. */
interface ExecInternals {
  readonly clock?: Clock;
}

/** `exec()`, with replaceable internals. */
export function makeExec(
  command: readonly string[] | string,
  options: ExecOptions,
  internals: ExecInternals,
): ReadyHandler {
  const { clock = systemClock } = internals;
  const settings = checkExecOptions(command, options);
  const deliver = async (delivery: Delivery): Promise<Outcome> => {
    const limit = new TimeLimit(clock, settings.timeoutMs, delivery.signal);
    try {
      const result = await runCommand(commandOf(delivery, settings), delivery.stream(), {
        clock,
        signal: limit.signal,
      });
      const told = withoutSecrets(result, settings);
      note(delivery, told);
      return outcomeOf(told, settings, limit);
    } catch (error) {
      // Anything else is an error of the body, which the engine handles.
      if (error instanceof StartError) return startFailure(error, settings);
      throw error;
    } finally {
      limit.stop();
    }
  };
  return Object.assign(deliver, {
    describe: () => describeExec(settings),
    from: (folder: string) =>
      makeExec(command, { ...options, cwd: path.resolve(folder, options.cwd ?? '.') }, internals),
  });
}

function commandOf(delivery: Delivery, settings: ExecSettings): Command {
  const { program, args, killAfterMs } = settings;
  const cwd = path.resolve(settings.cwd ?? '.');
  return {
    // A bare name is looked up in PATH, a path is relative to the folder of the command.
    program: /[/\\]/.test(program) ? path.resolve(cwd, program) : program,
    args,
    cwd,
    env: environmentOf(delivery, settings, process.env),
    killAfterMs,
  };
}

/** What a command said, for everyone who may see the message. */
interface ToldResult extends Pick<RunResult, 'exitCode' | 'endSignal'> {
  readonly output: string;
  readonly errors: string;
  readonly errorsEnd: string;
}

/** Programs print how they were called, with `set -x`. It may be cut in the middle of a secret. */
function withoutSecrets(result: RunResult, { args, env, inherit }: ExecSettings): ToldResult {
  const inherited = inherit.map((name) => [name, process.env[name] ?? ''] as const);
  const variables = [...inherited, ...Object.entries(env)].flatMap(([name, value]) =>
    mayBeSecretName(name) ? [value] : argumentSecrets([value]),
  );
  const secrets = [...argumentSecrets(args), ...variables];
  const decoder = new TextDecoder();
  const hide = (bytes: Uint8Array, isCutAt: 'end' | 'both ends' = 'end') =>
    hideKnownSecrets(decoder.decode(bytes), secrets, isCutAt);
  const { exitCode, endSignal, output, errors, errorsEnd } = result;
  return {
    exitCode,
    endSignal,
    output: hide(output),
    errors: hide(errors),
    errorsEnd: hide(errorsEnd, 'both ends'),
  };
}

function note(delivery: Delivery, { exitCode, output, errors }: ToldResult): void {
  if (exitCode !== null) delivery.note('exec-exit', String(exitCode));
  const outputText = plainText(output, OUTPUT_KEPT_BYTES);
  const errorText = plainText(errors, OUTPUT_KEPT_BYTES);
  if (outputText !== '') delivery.note('exec-output', outputText);
  if (errorText !== '') delivery.note('exec-errors', errorText);
}

function outcomeOf(result: ToldResult, settings: ExecSettings, limit: TimeLimit): Outcome {
  const { program, timeoutMs, exits } = settings;
  const { exitCode, endSignal } = result;
  const why = lastLine(result.errorsEnd);
  const transient = (code: string, text: string): Outcome =>
    failed(failure('transient', code, `"${program}" ${text}${why === '' ? '' : `: ${why}`}`));
  // Whatever its exit code after SIGTERM: it had not finished by then.
  if (limit.isOver) {
    return transient('exec.timeout', `did not finish within ${formatDuration(timeoutMs)}`);
  }
  if (limit.signal.aborted) return transient('exec.aborted', 'was cancelled');
  if (exitCode === null) return transient('exec.signal', `was ended by signal ${endSignal}`);
  if (exitCode === 0) return delivered();
  const code = `exec.${exitCode}`;
  const reason = `"${program}" ended with exit code ${exitCode}${why === '' ? '' : `: ${why}`}`;
  const meaning = exits.get(exitCode) ?? 'transient';
  if (meaning === 'hold') return held(reason, code);
  return failed(failure(meaning, code, reason));
}

/** The last line that is not empty, where programs report why they failed. */
function lastLine(text: string): string {
  const lines = text.split(/[\r\n]+/);
  return plainText(lines.findLast((line) => line.trim() !== '') ?? '', REASON_LINE_MAX_CHARS);
}

function startFailure(error: StartError, { program, cwd }: ExecSettings): Outcome {
  const where = cwd === undefined ? '' : ` in "${cwd}"`;
  const reason = `cannot start "${program}"${where}: ${textOf(error)}`;
  if (CANNOT_START.has(error.code)) return held(reason, 'exec.missing');
  return failed(failure('transient', 'exec.start', reason));
}

// The environment variables in which a command finds its message.
//
// Each name is known to OTHERS of config/load/load-config.ts, so that `respool` can be the command.
// Promise: variables made from a message begin with RESPOOL_, so that no header can become PATH or
// LD_PRELOAD; and of our own variables only those listed are passed on.

/** All environment variables of the command. */
export function environmentOf(
  delivery: Delivery,
  { inherit, env }: ExecSettings,
  ours: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const inherited = inherit.flatMap((name) => {
    const value = Object.hasOwn(ours, name) ? ours[name] : undefined;
    return value === undefined ? [] : [[name, value] as const];
  });
  return {
    ...Object.fromEntries(inherited),
    ...env,
    ...headerVariables(delivery),
    ...envelopeVariables(delivery),
  };
}

function envelopeVariables(delivery: Delivery): Record<string, string> {
  const { envelope, lastFailure } = delivery;
  return {
    RESPOOL_ID: delivery.id,
    RESPOOL_TOPIC: delivery.topic,
    RESPOOL_ATTEMPT: String(delivery.attempt),
    RESPOOL_LANE: delivery.lane,
    RESPOOL_ENQUEUED_AT: new Date(envelope.enqueuedAt).toISOString(),
    RESPOOL_BODY_SIZE: String(envelope.body.size),
    ...(envelope.destination === undefined ? {} : { RESPOOL_DESTINATION: envelope.destination }),
    ...(lastFailure === undefined
      ? {}
      : { RESPOOL_LAST_CODE: lastFailure.code, RESPOOL_LAST_REASON: lastFailure.reason }),
  };
}

/** `content-type` → `RESPOOL_HEADER_CONTENT_TYPE`; of two that become one, the first by name. */
function headerVariables({ headers: own, trace }: Delivery): Record<string, string> {
  const headers = { ...own, ...trace };
  const variables: Record<string, string> = {};
  for (const name of Object.keys(headers).sort()) {
    const value = headers[name];
    const variable = `RESPOOL_HEADER_${name.toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')}`;
    // A variable cannot contain NUL.
    if (value === undefined || value.includes('\0') || Object.hasOwn(variables, variable)) continue;
    variables[variable] = value;
  }
  return variables;
}

// The options, checked when `exec()` is called.

/** What an exit code means for the message. */
type ExitMeaning = 'transient' | 'permanent' | 'hold';

/** Command and options, checked and with defaults. */
interface ExecSettings {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string>>;
  readonly inherit: readonly string[];
  readonly timeoutMs: number;
  readonly killAfterMs: number;
  readonly exits: ReadonlyMap<number, ExitMeaning>;
}

/** Default of `inherit`: what programs need, and nothing that contains secrets. */
const INHERITED: readonly string[] = (
  'PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_ALL LC_CTYPE TZ TMPDIR TEMP TMP ' +
  'SYSTEMROOT SystemRoot PATHEXT COMSPEC'
).split(' ');

/** Exit codes of sysexits with a meaning of their own. */
const DEFAULT_EXITS: readonly (readonly [number, ExitMeaning])[] = [
  [64, 'permanent'],
  [65, 'permanent'],
  [66, 'permanent'],
  [67, 'permanent'],
  [68, 'permanent'],
  [75, 'transient'],
  [77, 'permanent'],
  [78, 'permanent'],
];

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
const COMMAND_ALLOWED =
  "a list such as ['./send.sh', '--fast'], or the name of a program without blanks; " +
  'there is no shell in between';
const EXIT_ALLOWED = 'a list of exit codes 1 to 255';

/** Checks all options, so that mistakes show at the start and not with the first message. */
function checkExecOptions(command: unknown, options: ExecOptions): ExecSettings {
  if (typeof options !== 'object' || options === null) {
    throw invalidOption('options of exec()', options, "an object such as { timeout: '5m' }");
  }
  const { timeoutMs, killAfterMs } = readOptions({ what: 'exec()' }, options, EXEC);
  const { cwd } = options;
  if (cwd !== undefined && !isPlain(cwd)) throw invalidOption('cwd', cwd, 'the path of a folder');
  return {
    ...checkCommand(command),
    cwd,
    env: checkEnvironment(options.env ?? {}),
    inherit: checkTexts('inherit', options.inherit ?? INHERITED, 'names of variables', isVariable),
    timeoutMs,
    killAfterMs,
    exits: checkExits(options),
  };
}

function checkCommand(command: unknown): Pick<ExecSettings, 'program' | 'args'> {
  const isName = typeof command === 'string';
  // "program argument" in one string is meant for a shell, which we do not use.
  if (isName && /\s/.test(command)) throw invalidOption('command', command, COMMAND_ALLOWED);
  const list = checkOptionList('command', isName ? [command] : command, COMMAND_ALLOWED);
  const wrong = list.findIndex((part, at) => !(isPlain(part) || (part === '' && at > 0)));
  if (list.length === 0 || wrong >= 0) throw invalidOption('command', command, COMMAND_ALLOWED);
  const [program = '', ...args] = list as readonly string[];
  return { program, args };
}

function checkEnvironment(env: unknown): Readonly<Record<string, string>> {
  const pairs = checkStringRecord('env', env, 'an object of names to texts');
  for (const [name, value] of pairs) {
    if (!isVariable(name) || name.startsWith('RESPOOL_')) {
      throw invalidOption('env', name, 'names of A-Z a-z 0-9 _ that do not begin with RESPOOL_');
    }
    // The value is not shown: it may be a secret.
    if (value.includes('\0')) throw invalidOption(`env.${name}`, '…', 'a text without NUL');
  }
  return Object.fromEntries(pairs);
}

function checkExits(options: ExecOptions): ReadonlyMap<number, ExitMeaning> {
  const own = new Map<number, ExitMeaning>();
  for (const meaning of ['transient', 'permanent', 'hold'] as const) {
    for (const code of checkOptionList(meaning, options[meaning] ?? [], EXIT_ALLOWED)) {
      if (typeof code !== 'number' || !Number.isInteger(code) || code < 1 || code > 255) {
        throw invalidOption(meaning, code, EXIT_ALLOWED);
      }
      if ((own.get(code) ?? meaning) !== meaning) {
        throw invalidOption(
          meaning,
          code,
          `an exit code that is not in "${own.get(code)}" as well`,
        );
      }
      own.set(code, meaning);
    }
  }
  return new Map([...DEFAULT_EXITS, ...own]);
}

function isPlain(text: unknown): text is string {
  return typeof text === 'string' && text !== '' && !text.includes('\0');
}

function isVariable(name: string): boolean {
  return VARIABLE.test(name);
}

/** The settings for display, without secrets. */
function describeExec(settings: ExecSettings): Readonly<Record<string, unknown>> {
  const { program, args, cwd, exits } = settings;
  const withMeaning = (exitMeaning: ExitMeaning) =>
    [...exits].filter(([, meaning]) => meaning === exitMeaning).map(([code]) => code);
  return {
    kind: 'exec',
    command: [program, ...hideArguments(args)],
    ...(cwd === undefined ? {} : { cwd }),
    env: hideValues(settings.env),
    inherit: settings.inherit,
    timeoutMs: settings.timeoutMs,
    killAfterMs: settings.killAfterMs,
    transient: withMeaning('transient'),
    permanent: withMeaning('permanent'),
    hold: withMeaning('hold'),
  };
}
