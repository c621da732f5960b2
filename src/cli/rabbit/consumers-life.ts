/**
 * consumers-life — consumers that start as soon as their broker answers, and are stopped together.
 *
 *   waiting ─start()─▶ running ─stop()─▶ ended
 *      └─ refused: waits longer each time, and tries again
 *
 * Once started a consumer comes back by itself.
 */

import type { ConfiguredConsumer, ConsumerInfo } from '../../connect/open-consumers.ts';
import { told } from '../../control/told-events.ts';
import { SECOND_MS } from '../../core/duration.ts';
import { isRespoolError, textOf } from '../../core/errors.ts';
import type { Clock } from '../../ports/clock.ts';
import type { ServeLog } from '../serve-log.ts';
import { span } from '../times.ts';

/** The wait before the next start doubles between these. */
const AGAIN_MIN_MS: number = SECOND_MS;
const AGAIN_MAX_MS: number = 30 * SECOND_MS;

/** What runs them. */
export interface LifeParts {
  readonly clock: Clock;
  readonly log: ServeLog;
  /** Hears of what no waiting mends, such as a queue with other arguments; then it ends there. */
  readonly onRefused?: (error: unknown) => void;
}

/** Consumers that run, or wait for their broker. */
export interface ConsumersLife {
  /** How many are connected now, of how many. */
  readonly health: () => { readonly connected: number; readonly all: number };
  /** Takes nothing new, and waits for what runs, so long at the most. */
  readonly stop: (withinMs: number) => Promise<void>;
}

/** Starts them all, each by itself: one whose broker is away keeps no other back. */
export function startConsumers(
  consumers: readonly ConfiguredConsumer[],
  parts: LifeParts,
): ConsumersLife {
  const over = new AbortController();
  const starts = consumers.map(async (one) => {
    one.consumer.on('*', (event) => parts.log.event(told(event)));
    await startWhenPossible(one, parts, over.signal);
  });
  return {
    health: () => ({
      connected: consumers.filter(({ consumer }) => consumer.isConnected).length,
      all: consumers.length,
    }),
    stop: async (withinMs) => {
      over.abort();
      const { clock } = parts;
      const endsAt = clock.monotonic() + withinMs;
      await Promise.all(
        consumers.map(async ({ consumer }, at) => {
          // A start that is on its way ends first, unless it takes too long: a broker may hang.
          const isOver = await endsWithin(starts[at], withinMs, clock);
          const stopping = consumer.stop({ within: Math.max(0, endsAt - clock.monotonic()) });
          if (isOver) await stopping;
          // It has taken no message yet: nothing has to be waited for.
          else stopping.catch((error: unknown) => parts.log.say('warn', textOf(error)));
        }),
      );
    },
  };
}

async function startWhenPossible(
  { consumer, info }: ConfiguredConsumer,
  { clock, log, onRefused }: LifeParts,
  signal: AbortSignal,
): Promise<void> {
  const { queue, broker } = info;
  for (let waitMs = AGAIN_MIN_MS; !signal.aborted; waitMs = Math.min(2 * waitMs, AGAIN_MAX_MS)) {
    try {
      await consumer.start();
      log.say('info', consumesText(info), { consumer: info });
      return;
    } catch (error) {
      if (signal.aborted) return;
      const isAway = isRespoolError(error) && error.code === 'broker.unavailable';
      if (!isAway && onRefused !== undefined) {
        onRefused(error);
        return;
      }
      const text = `cannot consume ${queue}: ${textOf(error)}; trying again in ${span(waitMs)}`;
      log.say(isAway ? 'warn' : 'error', text, { queue, broker });
      await pause(clock, waitMs, signal);
    }
  }
}

/** Whether it ended in time. */
async function endsWithin(
  end: Promise<void> | undefined,
  ms: number,
  clock: Clock,
): Promise<boolean> {
  const { promise: late, resolve } = Promise.withResolvers<boolean>();
  const callOff = clock.after(ms, () => resolve(false));
  const isOver = await Promise.race([(end ?? Promise.resolve()).then(() => true), late]);
  callOff();
  return isOver;
}

async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const callOff = clock.after(ms, end);
    function end(): void {
      callOff();
      signal.removeEventListener('abort', end);
      resolve();
    }
    signal.addEventListener('abort', end);
  });
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
