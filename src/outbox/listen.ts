/**
 * listen — a consumer of messages that an outbox sent: a queue bound to its exchange. Failed
 * messages are tried again after a list of delays and then go to a dead queue; a handler that
 * throws `Reject` sends one there at once.
 *
 *   exchange ─binding key─▶ {queue} ─fails─▶ {queue}.delay_2s ─▶ {queue} … ─▶ {queue}.dlq
 */

import type { Duration } from '../core/duration.ts';
import { RespoolError, show } from '../core/errors.ts';
import { PermanentError } from '../core/failure.ts';
import { checkNames } from '../core/limits.ts';
import { ladder } from '../core/policy.ts';
import { outbox as outboxCompat } from '../rabbit/compat/outbox.ts';
import { type Consumer, createConsumer } from '../rabbit/consume/consumer.ts';
import { CONSUMER_OPTIONS, type ConsumerOptions } from '../rabbit/consume/options.ts';
import type { RabbitHandler } from '../rabbit/consume/delivery.ts';
import type { UserBinding } from '../rabbit/topology/model.ts';
import type { Option } from '../core/option-table.ts';
import { perDelay } from '../rabbit/topology/styles.ts';
import { describeType } from './types.ts';
import { tracking, trackingOf } from './tracking.ts';

/** Which queue listens where, and how often it is tried. */
export interface ListenOptions<Body = unknown>
  extends Omit<
    ConsumerOptions<Body>,
    'bindings' | 'topology' | 'policy' | 'policies' | 'backoffs'
  > {
  // Written by `npm run options`: edit the table of options instead.
  /** Where the relay sends to. */
  readonly exchange: string;
  /** Declares the exchange; `false` assumes that it exists. Default `topic`. */
  readonly exchangeType?: UserBinding['type'];
  /**
   * The wait after each failure; there is one attempt more. `'0'` tries again at once, `[]` sends
   * to the dead queue after the first failure. Default `['1s', '10s', '1m', '5m']`.
   */
  readonly retryDelays?: readonly Duration[];
}

const DELAYS_DEFAULT: readonly Duration[] = ['1s', '10s', '1m', '5m'];

/** What `listen` takes beside the options of a consumer. */
export const LISTEN_OPTIONS: Readonly<Record<'exchange' | 'exchangeType' | 'retryDelays', Option>> =
  {
    exchange: {
      kind: 'text',
      type: 'a name',
      required: true,
      about: 'where the relay sends to',
    },
    exchangeType: {
      kind: 'choice',
      choices: ['topic', 'direct', 'fanout', 'headers', false],
      ts: "UserBinding['type']",
      default: 'topic',
      about: 'declares the exchange; `false` assumes that it exists',
    },
    retryDelays: {
      kind: 'data',
      type: 'a list of durations',
      ts: 'readonly Duration[]',
      defaultText: `\`[${DELAYS_DEFAULT.map((delay) => `'${delay}'`).join(', ')}]\``,
      about:
        "the wait after each failure; there is one attempt more. `'0'` tries again at once, `[]` " +
        'sends to the dead queue after the first failure',
    },
  };

/**
 * Options of consumers that `listen` sets itself, and what to give instead. The same names are in
 * the `Omit` of ListenOptions, and in docs/reference/outbox.md.
 */
const FOREIGN: Readonly<Record<string, string>> = {
  bindings: 'give the binding keys first, and "exchange" and "exchangeType"',
  topology: 'it is perDelay(), or that of "compat"',
  policy: 'give "retryDelays"',
  policies: 'give "retryDelays"',
  backoffs: 'give "retryDelays"',
};

const NAMES: readonly string[] = [
  ...Object.keys(CONSUMER_OPTIONS).filter((name) => !(name in FOREIGN)),
  ...Object.keys(LISTEN_OPTIONS),
];

/**
 * A consumer of the messages whose routing key fits; nothing happens before its `start()`. What the
 * handler emits carries on the tracking ids of its message.
 */
export function listen<Body = unknown>(
  bindingKey: string | readonly string[],
  options: ListenOptions<Body>,
  handler: RabbitHandler<Body>,
): Consumer {
  if (typeof handler !== 'function') {
    throw new RespoolError('config.invalid', 'cannot listen: a handler is a function');
  }
  if (typeof options !== 'object' || options === null) {
    const given = describeType(options);
    const text = `cannot listen with ${given}: allowed is { url, exchange, queue, … }`;
    throw new RespoolError('config.invalid', text);
  }
  refuseForeign(options);
  checkNames('listen', options, NAMES);
  const { exchange, exchangeType, retryDelays = DELAYS_DEFAULT, compat, ...rest } = options;
  if (typeof exchange !== 'string' || exchange === '') {
    const text = `cannot listen to ${show(exchange)} as "exchange": allowed is the name of one`;
    throw new RespoolError('config.invalid', text);
  }
  const type = exchangeType === undefined ? {} : { type: exchangeType };
  const bindings = keysOf(bindingKey).map((key) => ({ exchange, key, ...type }));
  return createConsumer<Body>(
    {
      ...rest,
      bindings,
      policy: ladder(retryDelays),
      ...(compat === undefined
        ? { topology: perDelay() }
        : { compat: compat === 'outbox' ? outboxCompat({ exchange }) : compat }),
    },
    (delivery) => tracking(trackingOf(delivery.headers), () => handler(delivery)),
  );
}

/** Refuses options of consumers that would be ignored here. */
function refuseForeign(options: object): void {
  const name = Object.keys(options).find((value) => Object.hasOwn(FOREIGN, value));
  if (name === undefined) return;
  throw new RespoolError(
    'config.invalid',
    `there is no option "${name}" of listen: ${FOREIGN[name]}; createConsumer() of ` +
      'respool/rabbit takes it',
  );
}

function keysOf(bindingKey: unknown): readonly string[] {
  const keys: readonly unknown[] = Array.isArray(bindingKey) ? bindingKey : [bindingKey];
  const areTexts = keys.every((key) => typeof key === 'string' && key !== '');
  if (keys.length > 0 && areTexts) return keys as readonly string[];
  throw new RespoolError(
    'config.invalid',
    `cannot listen to ${show(bindingKey)}: allowed is a binding key such as 'order.*', or a list`,
  );
}

/** Thrown by a handler: the message goes to the dead queue at once, without further attempts. */
export class Reject extends PermanentError {
  override readonly name: string = 'Reject';

  constructor(
    reason: string,
    { code = 'rejected', ...options }: { readonly code?: string; readonly cause?: unknown } = {},
  ) {
    super(code, reason, options);
  }
}
