/**
 * targets — where a relay sends to, made ready: the handler, and what has to be closed with it.
 */

import type { Duration } from '../core/duration.ts';
import { RespoolError } from '../core/errors.ts';
import { checkNames } from '../core/limits.ts';
import type { ForwardOptions } from '../engine/forward.ts';
import type { Clock, Dice } from '../ports/clock.ts';
import type { Handler } from '../ports/handler.ts';
import type { Sink } from '../ports/sink.ts';
import type { Tracer } from '../ports/tracer.ts';
import { rabbitSink } from '../rabbit/publish/sink.ts';
import type { RelayBreaker } from './relay-breaker.ts';
import { typeOf } from './shape.ts';
import type { RelayTarget } from './types.ts';

/** A target, ready to be sent to. */
export interface Target {
  readonly name: string;
  /** Whether it can be gone as a whole: then one message asks before more are sent. */
  readonly isProbed: boolean;
  /** A handler that sends to it, behind the breaker. */
  handlerWith(breaker: RelayBreaker): Handler;
  /** Asks it once without a message; an error says why nothing can be sent. */
  reach?(): Promise<void>;
  /** Lets go of what was opened here. */
  close(): Promise<void>;
}

/** What the sends of a target depend on. */
export interface TargetSettings {
  readonly batch: number;
  readonly concurrency: number;
  readonly clock: Clock;
  readonly dice: Dice;
  readonly tracer?: Tracer | undefined;
}

/** A broker that is away for longer is left alone; what waits for it goes back to the table. */
const AWAY_AFTER: Duration = '1s';
const SENDS_MAX = 100;

/** Checks a target. Nothing is connected before it is asked for. */
export function targetOf(to: RelayTarget, settings: TargetSettings): Target {
  if (typeof to === 'object' && to !== null) {
    if ('amqp' in to) return exchangeTarget(to, settings);
    if ('deliver' in to) return routeTarget(to);
    if (typeof (to as Partial<Sink>).send === 'function') {
      return sinkTarget(to, { batchMax: settings.batch });
    }
  }
  // n.b. Never what it says: it may be the address of a broker, with its password.
  const given = isSpool(to) ? 'a spool' : typeOf(to);
  throw new RespoolError(
    'config.invalid',
    `cannot use ${given} as "to" of a relay: allowed is { amqp: 'amqp://…', exchange: '…' }, ` +
      'spoolSink(spool) or another sink, or { deliver: handler }',
  );
}

function isSpool(to: unknown): boolean {
  return to instanceof Object && typeof Reflect.get(to, 'enqueue') === 'function';
}

function exchangeTarget(
  to: Extract<RelayTarget, { readonly amqp: string }>,
  { clock, dice, batch, concurrency, tracer }: TargetSettings,
): Target {
  checkNames('to', to, ['amqp', 'exchange', 'tls']);
  const { amqp: url, exchange, tls } = to;
  const secure = tls === undefined ? {} : { tls };
  const tracing = tracer === undefined ? {} : { tracing: tracer };
  const more = { ...secure, ...tracing };
  const sink = rabbitSink({ url, exchange, clock, dice, awayAfter: AWAY_AFTER, ...more });
  // Several sends keep their order: they go over one channel, one after the other.
  const sendsMax = Math.min(SENDS_MAX, Math.ceil(concurrency / batch));
  const target = sinkTarget(sink, { batchMax: batch, sendsMax });
  const close = async (): Promise<void> => {
    await target.close();
    // Anything unanswered by now was given back and is no longer awaited.
    await sink.close({ waits: false });
  };
  return { ...target, name: `exchange "${exchange}"`, reach: () => sink.reach(), close };
}

/** The caller that made the sink closes it. */
function sinkTarget(sink: Sink, options: ForwardOptions): Target {
  let unlisten = (): void => undefined;
  return {
    name: `sink "${sink.name}"`,
    isProbed: true,
    handlerWith(breaker) {
      unlisten = sink.onBack?.(() => breaker.call()) ?? unlisten;
      return breaker.sendTo(sink, options);
    },
    close: () => {
      unlisten();
      return Promise.resolve();
    },
  };
}

/**
 * It does not begin with a probe: a handler may take long, and each message is judged by itself.
 */
function routeTarget(to: { readonly deliver: Handler }): Target {
  checkNames('to', to, ['deliver']);
  const { deliver } = to;
  if (typeof deliver !== 'function') {
    throw new RespoolError(
      'config.invalid',
      `cannot use ${typeOf(deliver)} as "to.deliver" of a relay: a handler is a function`,
    );
  }
  return {
    name: 'a route',
    isProbed: false,
    handlerWith: (breaker) => breaker.routeTo(deliver),
    close: () => Promise.resolve(),
  };
}
