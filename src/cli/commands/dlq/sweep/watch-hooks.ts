/**
 * watch-hooks — how `respool dlq watch` tells: a command, a webhook, or nobody but its own lines.
 *
 * Promise: a hook that fails throws; what it was told is told again. A queue's name never becomes
 * part of a command line: it goes in as JSON on stdin, and in the environment.
 */

import { formatDuration, MINUTE_MS } from '../../../../core/duration.ts';
import { asError, textOf } from '../../../../core/errors.ts';
import { runCommand } from '../../../../deliver/exec/run.ts';
import type { Clock } from '../../../../ports/clock.ts';
import { TimeLimit } from '../../../../system/wait.ts';
import { CommandError } from '../../../exit-codes.ts';
import type { CommandContext } from '../../../spec.ts';
import { type Road, roadOf } from '../../../url-user.ts';

/** What is told of a dead queue. */
export interface Alert {
  readonly event: 'fired' | 'resolved';
  /** An ISO time. */
  readonly at: string;
  /** The broker, or `spool`. */
  readonly place: string;
  readonly queue: string;
  readonly depth: number;
  readonly above: number;
  /** More than at the look before; null at the first look. */
  readonly growth: number | null;
  /** The largest group of failures; null where it cannot be told without looking at messages. */
  readonly group: string | null;
}

/** Tells somebody. */
export interface Hook {
  /** What makes it another one than others. */
  readonly name: string;
  tell(alert: Alert): Promise<void>;
}

const TOLD_WITHIN_MS: number = MINUTE_MS / 2;
const KILL_AFTER_MS = 2_000;

/** The hook of the options; undefined: only lines are printed. */
export function hookOf({ options, io }: CommandContext): Hook | undefined {
  const command = options.filled('exec');
  const url = options.filled('webhook');
  if (command !== undefined && url !== undefined) {
    throw new CommandError('usage.invalid', 'use --exec or --webhook, not both');
  }
  if (command !== undefined) {
    return { name: `exec ${command}`, tell: (alert) => runHook(command, alert, io) };
  }
  if (url === undefined) return undefined;
  const address = URL.parse(url);
  if (address === null || !/^https?:$/.test(address.protocol)) {
    // n.b. Not shown: it may hold a secret.
    throw new CommandError(
      'usage.invalid',
      'cannot use what was given as --webhook: allowed is a URL like https://host/path',
    );
  }
  const road = roadOf(address);
  return { name: `webhook ${url}`, tell: (alert) => post(road, alert, io.clock) };
}

/** Runs work that is called off when it takes too long. */
async function inTime<T>(clock: Clock, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const limit = new TimeLimit(clock, TOLD_WITHIN_MS);
  try {
    const result = await work(limit.signal);
    if (!limit.isOver) return result;
  } catch (error) {
    if (!limit.isOver) throw error;
  } finally {
    limit.stop();
  }
  throw new Error(`it took longer than ${formatDuration(TOLD_WITHIN_MS)}`);
}

async function runHook(command: string, alert: Alert, io: CommandContext['io']): Promise<void> {
  const { clock, cwd, env } = io;
  const known = Object.entries(env).filter((one): one is [string, string] => one[1] !== undefined);
  const told = {
    DLQ_EVENT: alert.event,
    DLQ_QUEUE: alert.queue,
    DLQ_DEPTH: String(alert.depth),
  };
  const order = {
    program: '/bin/sh',
    args: ['-c', command],
    cwd,
    env: { ...Object.fromEntries(known), ...told },
    killAfterMs: KILL_AFTER_MS,
  };
  const result = await inTime(clock, (signal) =>
    runCommand(order, bodyOf(alert), { clock, signal }),
  );
  if (result.exitCode === 0) return;
  const said = new TextDecoder().decode(result.errors).trim();
  const how = result.exitCode === null ? `by ${result.endSignal}` : `with ${result.exitCode}`;
  throw new Error(`the command ended ${how}${said === '' ? '' : `: ${said}`}`);
}

async function* bodyOf(alert: Alert): AsyncGenerator<Uint8Array> {
  yield Buffer.from(`${JSON.stringify(alert)}\n`);
}

async function post({ url, headers }: Road, alert: Alert, clock: Clock): Promise<void> {
  const order = {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(alert),
  };
  const answer = await inTime(clock, (signal) => fetch(url, { ...order, signal })).catch(
    (error: unknown) => {
      const { cause = error } = asError(error);
      throw new Error(`the webhook did not answer: ${textOf(cause)}`, { cause });
    },
  );
  await answer.body?.cancel();
  if (!answer.ok) throw new Error(`the webhook answered ${answer.status}`);
}
