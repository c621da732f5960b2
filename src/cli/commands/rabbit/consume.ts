/**
 * consume — the consumers of a configuration: beside a service, and by themselves until a signal.
 * They start as soon as their broker answers, and are stopped together.
 *
 *   waiting ─start()─▶ running ─stop()─▶ ended
 *      └─ away: waits longer each time, and tries again
 *
 * What no waiting fixes ends the command; beside a service it is tried again, too. Once started a
 * consumer comes back by itself.
 */

import { logLevelOf, createServeLog } from '../serve/serve-log.ts';
import { listenForTheEnd } from '../../lifetime.ts';
import { closeHandlers } from '../../../config/open/handlers.ts';
import {
  createConfiguredConsumers,
  type ConfiguredConsumer,
  type ConsumerInfo,
} from '../../../config/open/open-consumers.ts';
import { durationMs } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { EXIT, type ExitCode, exitCodeOf } from '../../exit-codes.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseConsumers, readRabbitConfig, WRITE_DOWN } from './queues.ts';
import { serializeEvent } from '../../../spool/operator/spool-operator.ts';
import { endsWithin } from '../../../system/wait.ts';
import { type RetriedStartOptions, startWhenPossible } from '../serve/start-when-possible.ts';

/** Consumes until SIGTERM or SIGINT, or until something that no waiting fixes. */
export async function consumeUntilSignal(context: CommandContext): Promise<ExitCode> {
  const { io, out, atEnd } = context;
  const ending = listenForTheEnd(context);
  const loaded = await readRabbitConfig(context, 'consumers');
  const { config, hide } = loaded;
  const log = createServeLog(io, out, {
    format: config.log.format,
    level: logLevelOf(context, config.log.level),
    hide,
    redact: config.log.redact,
  });
  const chosen = chooseConsumers(context, loaded, WRITE_DOWN);
  atEnd(() => closeHandlers(config.consumers));
  const { clock } = io;
  const made = await createConfiguredConsumers(loaded, { consumers: chosen, clock });
  const refused = Promise.withResolvers<{ kind: 'refused'; error: unknown }>();
  const onRefused = (error: unknown): void => refused.resolve({ kind: 'refused', error });
  const life = startConsumers(made, { clock, log, onRefused });
  atEnd(() => life.stop(0));
  const end = await Promise.race([ending, refused.promise]);
  const { stopWithin } = config.serve;
  if (end.kind === 'signal') {
    const { signal } = end;
    log.say('info', `stopping after ${signal}, within ${String(stopWithin)}`, { signal });
  } else log.say('error', `stopping: ${textOf(end.error)}`);
  await life.stop(durationMs(stopWithin, 'serve.stopWithin'));
  log.say('info', 'stopped');
  if (end.kind === 'refused') out.error(end.error);
  return end.kind === 'signal' ? EXIT.done : exitCodeOf(end.error);
}

/** Consumers that run, or wait for their broker. */
export interface ConsumersService {
  /** How many are connected now, of how many. */
  readonly health: () => { readonly connected: number; readonly all: number };
  /** Each of them. */
  readonly each: () => readonly { readonly queue: string; readonly isConnected: boolean }[];
  /** Takes nothing new, and waits for running handlers, at most this long. */
  readonly stop: (withinMs: number) => Promise<void>;
}

/** Starts them all, each by itself: one whose broker is away keeps no other back. */
export function startConsumers(
  consumers: readonly ConfiguredConsumer[],
  parts: RetriedStartOptions,
): ConsumersService {
  const over = new AbortController();
  const starts = consumers.map(async (one) => {
    const own = `queue:${one.consumer.queue}` as const;
    const source = parts.isBesideSpool === true ? own : undefined;
    one.consumer.on('*', (event) => parts.log.event(serializeEvent(event), source));
    await startOne(one, parts, over.signal);
  });
  return {
    health: () => ({
      connected: consumers.filter(({ consumer }) => consumer.isConnected).length,
      all: consumers.length,
    }),
    each: () =>
      consumers.map(({ consumer, info }) => ({
        queue: info.queue,
        isConnected: consumer.isConnected,
      })),
    stop: async (withinMs) => {
      over.abort();
      const { clock } = parts;
      const endsAt = clock.monotonic() + withinMs;
      await Promise.all(
        consumers.map(async ({ consumer }, at) => {
          // A start that is on its way ends first, unless it takes too long: a broker may hang.
          const isOver = await endsWithin(clock, withinMs, starts[at] ?? Promise.resolve());
          const stopping = consumer.stop({ within: Math.max(0, endsAt - clock.monotonic()) });
          if (isOver) await stopping;
          // It has taken no message yet: nothing has to be waited for.
          else stopping.catch((error: unknown) => parts.log.say('warn', textOf(error)));
        }),
      );
    },
  };
}

async function startOne(
  { consumer, info }: ConfiguredConsumer,
  parts: RetriedStartOptions,
  signal: AbortSignal,
): Promise<void> {
  const { queue, broker } = info;
  const isStarted = await startWhenPossible(
    {
      start: () => consumer.start(),
      doing: `consume ${queue}`,
      awayCode: 'broker.unavailable',
      fields: { queue, broker },
    },
    parts,
    signal,
  );
  if (isStarted) parts.log.say('info', consumesText(info), { consumer: info });
}

function consumesText({ queue, broker, deliver, policy, concurrency }: ConsumerInfo): string {
  const { kind = 'handler', url, urls, command, handler } = deliver;
  const to = [url ?? urls ?? command ?? handler].flat().map(shown).join(' ');
  return (
    `consumes ${queue} at ${broker} by ${shown(kind)} ${to} ` +
    `(policy ${policy}, ${concurrency} at once)`
  );
}

function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
