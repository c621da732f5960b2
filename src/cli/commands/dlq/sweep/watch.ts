/**
 * watch — tells once when a dead queue holds more than it may, and once when it no longer does.
 *
 *   quiet ─depth > above, notified─▶ fired ─depth ≤ above, notified─▶ quiet
 *
 * A notification is remembered in the records `dlq.watch` of the store once the hook has accepted
 * it: a restart repeats none, a hook that failed is called again at the next round. Only a process
 * that ends between the two can notify a second time: what the store did not take is written again
 * at the next round. No message is ever looked at.
 *
 * It is no rule of alerts: each queue that matches has a state of its own, and the hook is called
 * in the round itself. Shared with alerts is how the depth of queues is asked.
 *
 * Why: docs/decisions/0043-an-alert-is-a-record-and-a-message.md
 */

import { type ReachedOnce, reachOnce } from '../../rabbit/reach.ts';
import { inRounds, listenForTheEnd } from '../../../lifetime.ts';
import { createHash } from 'node:crypto';
import type { Broker } from '../../../../config/load/brokers.ts';
import type { LoadedConfig } from '../../../../config/load/load-config.ts';
import {
  DAY_MS,
  durationMs,
  formatDuration,
  MINUTE_MS,
  SECOND_MS,
} from '../../../../core/duration.ts';
import { asError, RespoolError, show, textOf } from '../../../../core/errors.ts';
import { compileGlob, type Glob } from '../../../../core/glob.ts';
import { runCommand } from '../../../../deliver/exec/run.ts';
import { safe } from '../../../../observe/logs/safe-text.ts';
import type { Operator } from '../../../../spool/operator/operator.ts';
import type { Clock } from '../../../../ports/clock.ts';
import { passiveQueues } from '../../../../rabbit/connection/amqp.ts';
import { isLockName } from '../../../../rabbit/queues/lock.ts';
import { TimeLimit } from '../../../../system/wait.ts';
import { CommandError, EXIT, type ExitCode } from '../../../exit-codes.ts';
import { usageOf, COUNT_RANGE } from '../../../options.ts';
import type { CommandContext } from '../../../spec.ts';
import { exact } from '../../../ui/times.ts';
import { type UrlWithHeaders, urlWithHeaders } from '../../../session.ts';
import { atLetters } from '../letter-places.ts';
import { chooseBroker } from './broker.ts';

/** The kind of the records that remember what was notified. */
const WATCH_KIND = 'dlq.watch';
const EVERY_DEFAULT = '30s';
const EVERY = { minMs: SECOND_MS, maxMs: DAY_MS };
/** Maximum number of queues that are watched. */
const QUEUES_MAX = 1_000;

/** Where dead letters are, in numbers. */
interface Depth {
  readonly queue: string;
  /** undefined: unknown now. */
  readonly depth: number | undefined;
  /** The largest group of failures, asked for when a notification is sent. */
  readonly group?: () => Promise<string | undefined>;
}

/** Somewhere to look. */
interface Watched {
  readonly place: string;
  /** Whether a queue is one of those; another watch may have notified of others. */
  fits(queue: string): boolean;
  look(): Promise<readonly Depth[]>;
  close(): Promise<void>;
}

interface Watch {
  readonly context: CommandContext;
  readonly watched: Watched;
  readonly operator: Operator;
  readonly above: number;
  readonly hook: Hook | undefined;
  /** How deep each was at the last look. */
  readonly before: Map<string, number>;
  /** The queue of what was fired and not resolved yet, by its key. */
  readonly fired: Map<string, string>;
  /** What was notified and is not on record yet, by its key. */
  readonly unsaved: Map<string, Alert>;
}

/** Watches until SIGTERM or SIGINT. */
export async function watchDeadQueues(commandContext: CommandContext): Promise<ExitCode> {
  const { io, options, out } = commandContext;
  const every = options.span('every') ?? EVERY_DEFAULT;
  const everyMs = usageOf(() => durationMs(every, '--every', EVERY));
  const above = options.number('above', COUNT_RANGE) ?? 0;
  const hook = hookOf(commandContext);
  const globs = options.texts('queue').map((one) => usageOf(() => compileGlob(one)));
  const context = atLetters(commandContext, globs.length === 0 ? { routes: false } : {});
  const chosen = globs.length === 0 ? undefined : brokerOf(commandContext, await context.config());
  const { operator } = await context.session();
  const watched =
    chosen === undefined ? spoolWatched(operator) : queuesWatched(context, globs, chosen);
  const fired = await firedBefore(operator);
  const empty = { before: new Map<string, number>(), unsaved: new Map<string, Alert>() };
  const watch: Watch = { context, watched, operator, above, hook, fired, ...empty };
  const over = new AbortController();
  const ending = listenForTheEnd(commandContext).then((end) => {
    over.abort();
    return end;
  });
  out.note(`watching ${safe(watched.place)} every ${every}, above ${above}`);
  try {
    await inRounds({ clock: io.clock, everyMs, signal: over.signal }, () =>
      round(watch, over.signal),
    );
  } finally {
    await watched.close();
  }
  const end = await ending;
  if (end.kind === 'error') throw end.error;
  return EXIT.done;
}

function brokerOf(
  { options }: CommandContext,
  loaded: LoadedConfig,
): { readonly broker: Broker; readonly loaded: LoadedConfig } {
  const chosen = chooseBroker({
    old: {},
    hasOldDefaults: false,
    url: undefined,
    managementUrl: options.filled('managementUrl'),
    loaded,
    hasOldFile: false,
  });
  if (chosen !== undefined) return chosen;
  throw new CommandError(
    'usage.invalid',
    'name the broker: --url amqp://host, or "rabbit.url"; without --queue the spool is watched',
  );
}

async function firedBefore({ records }: Operator): Promise<Map<string, string>> {
  const known = await records.list(WATCH_KIND);
  return new Map(known.map(({ key, value }) => [key, (value as { queue: string }).queue]));
}

/** One look. What cannot be looked at now is tried at the next round. */
async function round(watch: Watch, signal: AbortSignal): Promise<void> {
  const { context, watched, above, before } = watch;
  for (const [key, alert] of watch.unsaved) await remember(watch, key, alert);
  let depths: readonly Depth[];
  try {
    depths = await watched.look();
  } catch (error) {
    context.out.warn(`cannot look at ${watched.place}: ${textOf(error)}; trying again`);
    return;
  }
  for (const one of [...depths, ...goneOf(watch, depths)]) {
    const { queue, depth } = one;
    // Each hook may take a while: a stop does not wait for all of them.
    if (signal.aborted) return;
    if (depth === undefined) continue;
    const key = keyOf(watch, queue);
    const isFired = watch.fired.has(key);
    if (depth > above !== isFired) await notify(watch, { ...one, depth }, key);
    before.set(queue, depth);
  }
}

/** A queue that is no longer there holds nothing. */
function goneOf(watch: Watch, depths: readonly Depth[]): readonly Depth[] {
  const there = new Set(depths.map(({ queue }) => queue));
  return [...watch.fired]
    .filter(([, queue]) => !there.has(queue) && watch.watched.fits(queue))
    .filter(([key, queue]) => key === keyOf(watch, queue))
    .map(([, queue]) => ({ queue, depth: 0 }));
}

/** Each watch with another threshold or another hook tells on its own. Stored: keep its parts. */
function keyOf({ watched: { place }, above, hook }: Watch, queue: string): string {
  const parts = [place, queue, String(above), hook?.name ?? ''];
  return createHash('sha256').update(parts.join('\n')).digest('hex');
}

async function notify(
  watch: Watch,
  { queue, depth, group }: Depth & { readonly depth: number },
  key: string,
): Promise<void> {
  const { context, watched, above, hook, before, fired } = watch;
  const { io, out } = context;
  const last = before.get(queue);
  const alert: Alert = {
    event: depth > above ? 'fired' : 'resolved',
    at: exact(io.clock.now()),
    place: watched.place,
    queue,
    depth,
    above,
    growth: last === undefined ? null : depth - last,
    group: await groupOf(group),
  };
  try {
    await hook?.tell(alert);
  } catch (error) {
    out.warn(`cannot notify that ${queue} ${alert.event}: ${textOf(error)}; trying again`);
    return;
  }
  if (alert.event === 'fired') fired.set(key, queue);
  else fired.delete(key);
  await remember(watch, key, alert);
  if (out.json) await out.object(alert);
  else await out.line(lineOf(alert));
}

/** Puts on record what was notified; what fails is tried again at the next round. */
async function remember(
  { context, operator: { records }, unsaved }: Watch,
  key: string,
  alert: Alert,
): Promise<void> {
  const { event, queue, place, above, at } = alert;
  try {
    if (event === 'fired') await records.put(WATCH_KIND, key, { queue, place, above, at });
    else await records.remove(WATCH_KIND, key);
    unsaved.delete(key);
  } catch (error) {
    unsaved.set(key, alert);
    const what = `cannot record that ${queue} ${event}, which was notified`;
    context.out.warn(`${what}: ${textOf(error)}; trying again`);
  }
}

/** An alert without its group is better than none. */
async function groupOf(group: Depth['group']): Promise<string | null> {
  try {
    return (await group?.()) ?? null;
  } catch {
    return null;
  }
}

function lineOf({ event, at, queue, depth, above, growth, group }: Alert): string {
  const parts = [
    `${at} ${event} ${safe(queue)} depth=${depth} above=${above}`,
    ...(growth === null ? [] : [`growth=${growth > 0 ? '+' : ''}${growth}`]),
    ...(group === null ? [] : [`group=${safe(group)}`]),
  ];
  return parts.join(' ');
}

/** What bounced is dead, what is held is parked. */
function spoolWatched(operator: Operator): Watched {
  const top = async (state: 'bounce' | 'hold'): Promise<string | undefined> => {
    const rows = await operator.tally('fingerprint', { state: [state] });
    return rows.toSorted((one, other) => other.count - one.count)[0]?.key;
  };
  return {
    place: 'spool',
    fits: () => true,
    look: async () => {
      const { bounce, hold } = await operator.count();
      return [
        { queue: 'dead', depth: bounce, group: () => top('bounce') },
        { queue: 'parked', depth: hold, group: () => top('hold') },
      ];
    },
    close: () => Promise.resolve(),
  };
}

/** Queues by name or pattern; the connection is kept from round to round while it lasts. */
function queuesWatched(
  context: CommandContext,
  globs: readonly Glob[],
  chosen: { readonly broker: Broker; readonly loaded: LoadedConfig },
): Watched {
  let reached: ReachedOnce | undefined;
  const close = async (): Promise<void> => {
    const last = reached;
    reached = undefined;
    await last?.leave();
  };
  const look = async (): Promise<readonly Depth[]> => {
    reached ??= await reachOnce(context, chosen);
    const names = await namesOf(globs, reached);
    const told = await passiveQueues(await reached.connection.consuming.tryConnect(), names);
    return depthsOf(names, told, (text) => context.out.warn(text));
  };
  return {
    place: chosen.broker.address,
    fits: (queue) => globs.some((glob) => glob.match(queue) !== undefined),
    look: async () => {
      try {
        return await look();
      } catch (error) {
        // A connection that broke is not asked again.
        await close();
        throw error;
      }
    },
    close,
  };
}

/** One queue that cannot be asked for stops no other; if none can, something else is wrong. */
function depthsOf(
  names: readonly string[],
  answers: Awaited<ReturnType<typeof passiveQueues>>,
  warn: (text: string) => void,
): readonly Depth[] {
  const problems: string[] = [];
  const depths = names.map((queue) => {
    const answer = answers.get(queue);
    if (answer !== undefined && 'found' in answer) {
      return { queue, depth: answer.found?.messageCount ?? 0 };
    }
    const why = answer?.problem ?? 'no answer';
    problems.push(`cannot ask for the depth of ${show(queue)}: ${why}`);
    return { queue, depth: undefined };
  });
  const [first] = problems;
  if (first !== undefined && problems.length === names.length) {
    throw new RespoolError('broker.unavailable', first);
  }
  for (const text of problems) warn(`${text}; trying again`);
  return depths;
}

async function namesOf(
  globs: readonly Glob[],
  { management }: ReachedOnce,
): Promise<readonly string[]> {
  const literal = globs.filter(({ isLiteral }) => isLiteral).map(({ pattern }) => pattern);
  if (literal.length === globs.length) return [...new Set(literal)];
  if (management === undefined) {
    throw new RespoolError(
      'broker.unavailable',
      'patterns need the management API, and it does not answer: name it with ' +
        '--management-url, or the queues by their whole names',
    );
  }
  management.forget();
  // n.b. An exclusive queue, such as the lock of a sweep, is invisible to other connections.
  const there = (await management.queues({ detail: 'totals' }))
    .filter(({ name, exclusive }) => !exclusive && !isLockName(name))
    .map(({ name }) => name);
  const fitting = there.filter((name) => globs.some((glob) => glob.match(name) !== undefined));
  const names = [...new Set([...literal, ...fitting])].toSorted();
  if (names.length <= QUEUES_MAX) return names;
  throw new RespoolError(
    'limit.exceeded',
    `${names.length} queues match, but at most ${QUEUES_MAX} can be watched: name fewer`,
  );
}

// How `respool dlq watch` notifies: a command, a webhook, or only its own output.
//
// Promise: a hook that fails throws, and is called again. A queue's name never becomes
// part of a command line: it goes in as JSON on stdin, and in the environment.

/** What a notification says about a dead queue. */
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
  /** The largest group of failures; null where it is not known without reading messages. */
  readonly group: string | null;
}

/** Sends a notification. */
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
  const target = urlWithHeaders(address);
  return { name: `webhook ${url}`, tell: (alert) => post(target, alert, io.clock) };
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

async function post({ url, headers }: UrlWithHeaders, alert: Alert, clock: Clock): Promise<void> {
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
