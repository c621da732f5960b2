/**
 * exec — delivers a message by running a command over it: body on its input, envelope in its
 * environment, its exit code is the answer.
 *
 * Promise: no shell, exit code 0 is delivered, what is not positively final is tried again.
 */

import path from 'node:path';
import { formatDuration } from '../../core/duration.ts';
import { textOf } from '../../core/errors.ts';
import { failure } from '../../core/failure.ts';
import { delivered, failed, held, type Outcome } from '../../core/outcome.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Delivery } from '../../ports/handler.ts';
import { systemClock } from '../../system/clock.ts';
import { TimeLimit } from '../../system/wait.ts';
import { plainText } from '../plain-text.ts';
import type { ReadyHandler } from '../ready-handler.ts';
import { checkExecOptions, describeExec, type ExecOptions, type ExecSettings } from './options.ts';
import { type Command, OUTPUT_KEPT_BYTES, runCommand, type RunResult, StartError } from './run.ts';

const REASON_LINE_MAX_CHARS = 200;
/** The operator's mistake, which waiting does not fix. */
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

/** What tests put in the place of the real thing. */
interface ExecParts {
  readonly clock?: Clock;
}

/** `exec()` with its parts. */
export function makeExec(
  command: readonly string[] | string,
  options: ExecOptions,
  parts: ExecParts,
): ReadyHandler {
  const { clock = systemClock } = parts;
  const settings = checkExecOptions(command, options);
  const deliver = async (delivery: Delivery): Promise<Outcome> => {
    const limit = new TimeLimit(clock, settings.timeoutMs, delivery.signal);
    try {
      const result = await runCommand(commandOf(delivery, settings), delivery.stream(), {
        clock,
        signal: limit.signal,
      });
      note(delivery, result);
      return concluded(result, settings, limit);
    } catch (error) {
      // Anything else is an error of the body, and the engine knows what that means.
      if (error instanceof StartError) return notStarted(error, settings);
      throw error;
    } finally {
      limit.stop();
    }
  };
  return Object.assign(deliver, {
    describe: () => describeExec(settings),
    from: (folder: string) =>
      makeExec(command, { ...options, cwd: path.resolve(folder, options.cwd ?? '.') }, parts),
  });
}

function commandOf(delivery: Delivery, settings: ExecSettings): Command {
  const { program, args, killAfterMs } = settings;
  const cwd = path.resolve(settings.cwd ?? '.');
  return {
    // A bare name is looked for along PATH, everything else from the folder of the command.
    program: /[/\\]/.test(program) ? path.resolve(cwd, program) : program,
    args,
    cwd,
    env: environmentOf(delivery, settings, process.env),
    killAfterMs,
  };
}

function note(delivery: Delivery, { exitCode, output, errors }: RunResult): void {
  if (exitCode !== null) delivery.note('exec-exit', String(exitCode));
  const said = plainText(output, OUTPUT_KEPT_BYTES);
  const complained = plainText(errors, OUTPUT_KEPT_BYTES);
  if (said !== '') delivery.note('exec-output', said);
  if (complained !== '') delivery.note('exec-errors', complained);
}

function concluded(result: RunResult, settings: ExecSettings, limit: TimeLimit): Outcome {
  const { program, timeoutMs, exits } = settings;
  const { exitCode, endSignal } = result;
  const why = lastLine(result.errorsEnd);
  const transient = (code: string, text: string): Outcome =>
    failed(failure('transient', code, `"${program}" ${text}${why === '' ? '' : `: ${why}`}`));
  // Whatever it made of being told to end: it was not done by then.
  if (limit.isOver) {
    return transient('exec.timeout', `did not finish within ${formatDuration(timeoutMs)}`);
  }
  if (limit.signal.aborted) return transient('exec.aborted', 'was called off');
  if (exitCode === null) return transient('exec.signal', `was ended by signal ${endSignal}`);
  if (exitCode === 0) return delivered();
  const code = `exec.${exitCode}`;
  const reason = `"${program}" ended with exit code ${exitCode}${why === '' ? '' : `: ${why}`}`;
  const meaning = exits.get(exitCode) ?? 'transient';
  if (meaning === 'hold') return held(reason, code);
  return failed(failure(meaning, code, reason));
}

/** The last line with something in it: that is where programs say what stopped them. */
function lastLine(bytes: Uint8Array): string {
  const lines = new TextDecoder().decode(bytes).split(/[\r\n]+/);
  return plainText(lines.findLast((line) => line.trim() !== '') ?? '', REASON_LINE_MAX_CHARS);
}

function notStarted(error: StartError, { program, cwd }: ExecSettings): Outcome {
  const where = cwd === undefined ? '' : ` in "${cwd}"`;
  const reason = `cannot start "${program}"${where}: ${textOf(error)}`;
  if (CANNOT_START.has(error.code)) return held(reason, 'exec.missing');
  return failed(failure('transient', 'exec.start', reason));
}

// What a command knows about its message, as environment variables.
//
// Promise: nothing of a message gets a name outside RESPOOL_, so that no header can be taken for
// PATH or LD_PRELOAD; and nothing of ours is passed on that is not named.

/** The whole environment of the command. */
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
    // A variable cannot carry NUL; our messages have none.
    if (value === undefined || value.includes('\0') || Object.hasOwn(variables, variable)) continue;
    variables[variable] = value;
  }
  return variables;
}
