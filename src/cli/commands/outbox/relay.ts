/**
 * relay — the relay of an outbox: beside a service, and by itself until a signal. It starts as soon
 * as its database answers, and is stopped with the rest.
 *
 *   waiting ─start()─▶ sending ─stop()─▶ ended
 *      └─ the database is down: waits longer each time, and tries again
 *
 * What no waiting fixes ends the command; beside a service it is tried again, too. A target that is
 * down needs no waiting here: the relay itself retries it.
 */

import { listenForTheEnd } from '../../lifetime.ts';
import {
  createConfiguredRelay,
  type ConfiguredRelay,
  type RelayInfo,
} from '../../../config/open/open-outbox.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { durationMs, SECOND_MS } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { internalsOf } from '../../../spool/internals.ts';
import type { Spool } from '../../../spool/spool.ts';
import { EXIT, type ExitCode, exitCodeOf } from '../../exit-codes.ts';
import { numberText, safe } from '../../../observe/logs/safe-text.ts';
import { createServeLog } from '../serve/serve-log.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseRelay, placeText } from './choose.ts';
import { serializeEvent } from '../../../spool/operator/spool-operator.ts';
import type { SpoolEvent } from '../../../core/event.ts';
import { levelOf } from '../../../engine/events.ts';
import type { RelayLoad } from '../../../outbox/relay.ts';
import { EVERYTHING } from '../../../spool/pauses.ts';
import { endsWithin } from '../../../system/wait.ts';
import { type RetriedStartOptions, startWhenPossible } from '../serve/start-when-possible.ts';

/** Sends until SIGTERM or SIGINT, or until something that no waiting fixes. */
export async function relayUntilSignal(context: CommandContext): Promise<ExitCode> {
  const { io, out, atEnd } = context;
  const ending = listenForTheEnd(context);
  const { loaded } = await chooseRelay(context);
  const { config, hide } = loaded;
  const { format, redact } = config.log;
  // What is printed is chosen below: every message or none, whatever the level of a service is.
  const level = out.quiet ? 'warn' : 'debug';
  const log = createServeLog(io, out, { format, level, hide, redact });
  const spool = (): Promise<Spool> => openSpool(context, loaded);
  const configured = await createConfiguredRelay(loaded, { spool });
  const { clock } = io;
  const refused = Promise.withResolvers<{ kind: 'refused'; error: unknown }>();
  const onRefused = (error: unknown): void => refused.resolve({ kind: 'refused', error });
  const life = startRelay(configured, { clock, log, onRefused, isVerbose: out.verbose });
  atEnd(() => life.stop(0));
  const end = await Promise.race([ending, refused.promise]);
  const { stopWithin } = config.serve;
  if (end.kind === 'signal') {
    const { signal } = end;
    log.say('info', `stopping after ${signal}, within ${String(stopWithin)}`, { signal });
  } else if (end.kind === 'error') log.say('error', `stopping: ${textOf(end.error)}`);
  // What was refused is said below, where every command says it.
  await life.stop(durationMs(stopWithin, 'serve.stopWithin'));
  log.say('info', `stopped, sent ${numberText(life.sent())}`, { sent: life.sent() });
  if (end.kind === 'refused') out.error(end.error);
  return end.kind === 'signal' ? EXIT.done : exitCodeOf(end.error);
}

/** The spool of the configuration, to send into; nothing is delivered here. */
async function openSpool({ atEnd }: CommandContext, loaded: LoadedConfig): Promise<Spool> {
  const { createConfiguredSpool } = await import('../../../config/open/open-spool.ts');
  const { spool } = await createConfiguredSpool(loaded, { deliver: false });
  atEnd(() => spool.stop({ within: 0 }));
  // A store that another process owns is refused here.
  await internalsOf(spool).open();
  return spool;
}

/** What runs a relay. */
interface RelayServiceOptions extends RetriedStartOptions {
  /** Whether each message is logged; default: only failures, and changes of the relay's state. */
  readonly isVerbose?: boolean;
}

/** A relay that runs, or waits for its database. */
export interface RelayService {
  /** What it is doing, and whether its target answers. */
  readonly health: () => RelayHealth;
  /** How many were sent since the start. */
  readonly sent: () => number;
  /** Takes nothing new, and waits for messages in flight, with a timeout. */
  readonly stop: (withinMs: number) => Promise<void>;
}

/** Its state for a health check, as the service shows it. */
interface RelayHealth {
  readonly state: 'waiting' | 'sending' | 'stopped';
  readonly target: RelayLoad['target'];
  readonly downSince?: number;
}

/** Starts it. */
export function startRelay(configured: ConfiguredRelay, parts: RelayServiceOptions): RelayService {
  const { relay, info } = configured;
  const { clock, log } = parts;
  const over = new AbortController();
  const source = parts.isBesideSpool === true ? 'relay' : undefined;
  let sent = 0;
  let state: RelayHealth['state'] = 'waiting';
  relay.on('*', (event) => {
    if (event.kind === 'delivered') sent += 1;
    if (parts.isVerbose === true || isOfAll(event)) log.event(serializeEvent(event), source);
  });
  tellChanges(configured, parts);
  const starting = startWhenPossible(
    {
      start: () => relay.start(),
      doing: `relay ${placeText(info)}`,
      awayCode: 'store.unavailable',
      fields: { relay: info },
    },
    parts,
    over.signal,
  ).then((isStarted) => {
    if (!isStarted) return;
    if (!over.signal.aborted) state = 'sending';
    log.say('info', relaysText(info), { relay: info });
    if (!over.signal.aborted) tellPauses(configured, parts, over.signal);
  });
  const endAll = async (withinMs: number): Promise<void> => {
    try {
      await relay.stop({ within: withinMs });
    } finally {
      await configured.close();
    }
  };
  const stop = async (withinMs: number): Promise<void> => {
    over.abort();
    state = 'stopped';
    const endsAt = clock.monotonic() + withinMs;
    // A start that is on its way ends first, unless it takes too long: a server may hang.
    const isOver = await endsWithin(clock, withinMs, starting);
    const ending = endAll(Math.max(0, endsAt - clock.monotonic()));
    if (isOver) await ending;
    // It has taken no message yet: nothing has to be waited for.
    else ending.catch((error: unknown) => log.say('warn', textOf(error)));
  };
  let stopping: Promise<void> | undefined;
  const health = (): RelayHealth => {
    const { target, downSince } = relay.load;
    return { state, target, ...(downSince === undefined ? {} : { downSince }) };
  };
  return { health, sent: () => sent, stop: (withinMs) => (stopping ??= stop(withinMs)) };
}

/** What is not about one message, or is wrong with it. */
function isOfAll(event: SpoolEvent): boolean {
  // Said below in more words.
  if (event.kind === 'engine-started' || event.kind === 'engine-stopped') return false;
  if (event.kind === 'relay') return false;
  // The message itself failed. Waiting for an unreachable target is logged once, elsewhere.
  if (event.kind === 'deferred') return event.failure !== undefined;
  const level = levelOf(event);
  return level === 'error' || level === 'warn' || !('id' in event);
}

/** How the relay's text about an unreachable target begins. */
const SENDING = 'sending to ';

/** An unreachable target is an event of the relay; that it is back shows in the first send. */
function tellChanges({ relay, info }: ConfiguredRelay, { log }: RelayServiceOptions): void {
  let isGone = false;
  relay.on('*', (event) => {
    if (event.kind === 'trouble' && event.doing.startsWith(SENDING)) isGone = true;
    if (!isGone || event.kind !== 'delivered') return;
    isGone = false;
    log.say('info', `${targetText(info)} answers again`, { to: info.to });
  });
}

/** Pauses of other processes are no events of this one; the relay itself looks for them, too. */
const PAUSES_EVERY_MS: number = 2 * SECOND_MS;

/** Logged because a paused relay would otherwise look idle. */
function tellPauses(
  { relay }: ConfiguredRelay,
  { clock, log }: RelayServiceOptions,
  signal: AbortSignal,
): void {
  let before: readonly string[] = [];
  let callOff = (): void => undefined;
  const look = (): void => {
    const { paused } = relay.load;
    for (const topic of paused.filter((one) => !before.includes(one))) {
      const [what, how] = pauseWords(topic);
      log.say('warn', `paused: ${what} waits until ${how}`, { paused: topic });
    }
    for (const topic of before.filter((one) => !paused.includes(one))) {
      log.say('info', `resumed: ${pauseWords(topic)[0]}`, { resumed: topic });
    }
    before = paused;
    callOff = clock.after(PAUSES_EVERY_MS, look);
  };
  look();
  signal.addEventListener('abort', () => callOff());
}

/** What is paused, and the command that ends it. */
function pauseWords(topic: string): readonly [string, string] {
  const resume = 'respool outbox resume';
  return topic === EVERYTHING
    ? ['everything', `${resume} ALL`]
    : [safe(topic), `${resume} ${safe(topic)}`];
}

function targetText({ to }: RelayInfo): string {
  const { amqp, exchange, spool, sink, kind = 'handler', url, urls, command, handler } = to;
  if (amqp !== undefined) return safe(`exchange ${shown(exchange)} at ${shown(amqp)}`);
  if (spool === true) return 'the spool';
  if (sink !== undefined) return safe(`sink ${shown(sink)}`);
  const where = [url ?? urls ?? command ?? handler].flat().map(shown).join(' ');
  return safe(`${shown(kind)} ${where}`);
}

function relaysText(info: RelayInfo): string {
  const { batch, concurrency, cleanUp, topics } = info;
  const kept = typeof cleanUp === 'object' ? `kept ${shown(cleanUp.keep)} in parts` : cleanUp;
  const only = topics.length === 1 && topics[0] === '#' ? '' : ` ${topics.join(' ')}`;
  return (
    `relays${only} from ${placeText(info)} to ${targetText(info)} (batch ${numberText(batch)}, ` +
    `${numberText(concurrency)} at once, clean-up ${shown(kept)})`
  );
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
