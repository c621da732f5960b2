/**
 * spring — sharing queues with Spring consumers that retry through shared wait queues.
 *
 *   {queue} ─fails─▶ wait exchange (headers: wait-for) ─▶ {prefix}{ms}
 *      ▲                                                    │ x-message-ttl
 *      └─ return exchange (headers: return-to) ◀────────────┘
 *
 * `x-message-retries` is the number of attempts that failed; a queue with a limit of n retries
 * makes n + 1 attempts. The routing key stays as it was on the whole way round; the exchange does
 * not, and they write it nowhere: before a first retry of ours it is not known.
 *
 * Not reproduced: an acknowledgement before the successor is confirmed and routed.
 */

import { checkNames } from '../../core/limits.ts';
import type { OptionTable } from '../../core/option-table.ts';
import type { AmqpMessage, Properties, AmqpTable } from '../connection/amqp.ts';
import {
  type Past,
  readPast,
  respoolWire,
  type Successor,
  asInt32Numbers,
  type HistoryWire,
} from '../message-history.ts';
import { checkPlanRequest, type TopologyRoute } from '../topology/styles.ts';
import {
  checkName,
  type PolicySpec,
  type QueuePlanRequest,
  type QueuePlan,
} from '../topology/model.ts';
import * as parts from '../topology/parts.ts';
import * as compat from './shared.ts';

const SPRING = {
  waitExchange: {
    kind: 'text',
    type: 'a name',
    default: 'wait',
    about: 'the headers exchange before the wait queues',
  },
  returnExchange: {
    kind: 'text',
    type: 'a name',
    default: 'return',
    about: 'the headers exchange behind them',
  },
  waitQueuePrefix: {
    kind: 'text',
    type: 'a name',
    default: 'wait.',
    about: 'what names of the wait queues begin with; the delay in milliseconds follows',
  },
  deadLetterExchange: {
    kind: 'data',
    type: 'a name or `false`',
    ts: 'string | false',
    schema: 'nameOrFalse',
    default: 'dead-letter',
    about:
      '`x-dead-letter-exchange` of the queue; `false`: it has none. It is not declared: that ' +
      'belongs to those who know its type',
  },
  deadQueue: {
    kind: 'text',
    type: 'a name',
    defaultText: 'a queue of ours, `{queue}.dlq`',
    about: 'their queue behind it, for our dead messages too; it is not declared',
  },
  waitArguments: {
    kind: 'data',
    type: 'a table',
    ts: 'AmqpTable',
    schema: 'anyObject',
    about: 'arguments of their wait queues beyond TTL and dead-letter exchange',
  },
} as const satisfies OptionTable;

/** The options of `spring`. */
export const SPRING_OPTIONS: OptionTable = SPRING;

/** How things are called in their code, where nothing says what these names have to be. */
export interface SpringOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** The headers exchange before the wait queues. Default `wait`. */
  readonly waitExchange?: string;
  /** The headers exchange behind them. Default `return`. */
  readonly returnExchange?: string;
  /**
   * What names of the wait queues begin with; the delay in milliseconds follows. Default `wait.`.
   */
  readonly waitQueuePrefix?: string;
  /**
   * `x-dead-letter-exchange` of the queue; `false`: it has none. It is not declared: that belongs
   * to those who know its type. Default dead-letter.
   */
  readonly deadLetterExchange?: string | false;
  /**
   * Their queue behind it, for our dead messages too; it is not declared. Default a queue of ours,
   * `{queue}.dlq`.
   */
  readonly deadQueue?: string;
  /** Arguments of their wait queues beyond TTL and dead-letter exchange. */
  readonly waitArguments?: AmqpTable;
}

const COUNT = 'x-message-retries';
const WAIT_FOR = 'wait-for';
const RETURN_TO = 'return-to';

/**
 * Shares queues with Spring consumers. The policy's attempts are their retries plus one.
 *
 * @example
 * import { createConsumer, spring } from 'respool/rabbit';
 * createConsumer({ connection, queue: 'orders', compat: spring() }, async () => {});
 */
export function spring(options: SpringOptions = {}): compat.Compat {
  const names = namesOf(options);
  return {
    name: 'spring',
    wire: {
      name: 'spring',
      read: (message) => read(message, names.returnExchange),
      write,
    } satisfies HistoryWire,
    style: { name: 'spring', plan: (request) => plan(request, names) },
    unsafe: UNSAFE,
  };
}

type Names = Omit<Required<SpringOptions>, 'deadQueue'> & Pick<SpringOptions, 'deadQueue'>;

function namesOf(options: SpringOptions): Names {
  const names: Names = {
    waitExchange: SPRING.waitExchange.default,
    returnExchange: SPRING.returnExchange.default,
    waitQueuePrefix: SPRING.waitQueuePrefix.default,
    deadLetterExchange: SPRING.deadLetterExchange.default,
    waitArguments: {},
    ...options,
  };
  checkNames('spring()', options, Object.keys(SPRING));
  for (const what of ['waitExchange', 'returnExchange', 'waitQueuePrefix'] as const) {
    checkName(what, names[what]);
  }
  if (names.deadLetterExchange !== false) checkName('deadLetterExchange', names.deadLetterExchange);
  if (names.deadQueue !== undefined) checkName('deadQueue', names.deadQueue);
  return names;
}

const UNSAFE: readonly string[] = [
  'Queue and wait queues are classic and have one copy, unless their arguments say quorum: ' +
    'a lost disk loses what is in them.',
  'Classic wait queues dead-letter at most once: a broker that dies at that moment can lose a ' +
    'retry.',
  'The return exchange has no alternate exchange: a message whose queue is not bound there any ' +
    'more is lost when its wait is over.',
  'The Spring side acknowledges before its retry is confirmed: a delay that has no wait queue, ' +
    'or a broker that fails, loses the message. Give both sides the same delays.',
  'What the Spring side rejects goes to the dead-letter exchange with its routing key: without a ' +
    'queue bound there it is lost.',
  'Everyone who may publish to the wait exchange can send messages to every queue bound to the ' +
    'return exchange.',
];

function read(message: AmqpMessage, returnExchange: string): Past {
  const { properties, fields } = message;
  // Through the return exchange it came back, it was not published there.
  const exchange = fields.exchange === returnExchange ? '' : undefined;
  return compat.continuedHeaders(readPast(message), {
    attempts: compat.highest(properties.headers?.[COUNT]),
    ...compat.originOf(message, { exchange, routingKey: undefined }),
  });
}

function write(message: AmqpMessage, successor: Successor): Properties {
  const properties = respoolWire.write(message, successor);
  const headers = { ...properties.headers, [COUNT]: successor.past.attempts };
  return { ...properties, headers: asInt32Numbers(headers) };
}

function plan(request: QueuePlanRequest, names: Names): QueuePlan {
  checkPlanRequest(request);
  const { queue } = request;
  const { waitExchange, returnExchange, deadLetterExchange, deadQueue } = names;
  const waits = parts.waitsOf(request);
  const nameOf = (waitMs: number): string => `${names.waitQueuePrefix}${waitMs}`;
  const foreign: parts.TopologyPart = {
    exchanges: [parts.exchange(waitExchange, 'headers'), parts.exchange(returnExchange, 'headers')],
    queues: waits.map((waitMs) =>
      compat.queueOf(nameOf(waitMs), 'wait', {
        'x-message-ttl': waitMs,
        'x-dead-letter-exchange': returnExchange,
        ...names.waitArguments,
      }),
    ),
    bindings: [
      // n.b. Strings: a number in the binding would not match the text in the message.
      ...waits.map((waitMs) =>
        parts.binding(nameOf(waitMs), waitExchange, '', { [WAIT_FOR]: String(waitMs) }),
      ),
      parts.binding(queue, returnExchange, '', { [RETURN_TO]: queue }),
    ],
  };
  const routes = waits.map(
    (waitMs): TopologyRoute => ({
      waitMs,
      route: ({ routingKey }) => ({
        exchange: waitExchange,
        key: routingKey,
        headers: { [WAIT_FOR]: String(waitMs), [RETURN_TO]: queue },
      }),
    }),
  );
  return compat.planShared({
    request,
    mainArguments:
      deadLetterExchange === false ? {} : { 'x-dead-letter-exchange': deadLetterExchange },
    foreign,
    routes,
    policies: policiesOf(request, names),
    deadQueue,
  });
}

/** Only quorum queues can be made safer from outside. */
function policiesOf({ queue, queueArguments }: QueuePlanRequest, names: Names): PolicySpec[] {
  const { waitQueuePrefix: prefix, waitArguments, deadLetterExchange } = names;
  const isQuorum = (args: AmqpTable): boolean => args['x-queue-type'] === 'quorum';
  const policies: PolicySpec[] = [];
  if (isQuorum(waitArguments)) {
    const pattern = String.raw`^${compat.literal(prefix)}\d+$`;
    policies.push(compat.compatPolicyOf(`${prefix}*`, pattern, compat.KEEPS_ALL));
  }
  if (isQuorum(queueArguments) && deadLetterExchange !== false) {
    policies.push(compat.compatPolicyOf(queue, `^${compat.literal(queue)}$`, compat.KEEPS_ALL));
  }
  return policies;
}
