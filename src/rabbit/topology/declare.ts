/**
 * declare — makes a topology exist: exchanges, policies, queues, bindings, in this order.
 *
 * Declaring twice changes nothing. The first object that exists with other arguments stops
 * it, explained; nothing is ever deleted or overwritten to make room.
 */

import { RespoolError } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import type { Option } from '../../core/option-table.ts';
import { type AmqpConnection, onParallelChannels } from '../connection/amqp.ts';
import type { Management } from '../management/management.ts';
import { policyDifferences } from './broker-state.ts';
import { describeDifference, explainRefusal, inFull } from './explain.ts';
import type { BindingSpec, ExchangeSpec, PolicySpec, QueueSpec, Topology } from './model.ts';

/** What `planTopology`, `applyTopology` and `verifyTopology` take. */
export const TOPOLOGY_OPTIONS: Readonly<Record<keyof ApplyOptions, Option>> = {
  management: {
    kind: 'code',
    type: 'the result of `createManagement`',
    ts: 'Management | undefined',
    about:
      'sees and sets policies, and sees what is there beyond the topology; without it that stays ' +
      'unknown, or is reported as not applied',
  },
};

/** Options of `applyTopology`. */
export interface ApplyOptions {
  // Written by `npm run options`: edit the table of options instead.
  /**
   * Sees and sets policies, and sees what is there beyond the topology; without it that stays
   * unknown, or is reported as not applied.
   */
  readonly management?: Management | undefined;
}

/** What is at the broker now. */
export interface ApplyResult {
  readonly exchanges: number;
  readonly queues: number;
  readonly bindings: number;
  /** Policies that are there as they should be. */
  readonly policies: readonly string[];
  /** Policies that could not be set without the management API. */
  readonly policiesNotApplied: readonly string[];
}

/** Declares everything of a topology; needs the permission to configure. */
export async function applyTopology(
  connection: AmqpConnection,
  topology: Topology,
  options: ApplyOptions = {},
): Promise<ApplyResult> {
  checkNames('applyTopology', options, Object.keys(TOPOLOGY_OPTIONS));
  const { management } = options;
  const { exchanges, queues, bindings, policies } = topology;
  await declareExchanges(connection, exchanges);
  // Before the queues: a policy that comes later does not reach messages that are there already.
  if (management !== undefined) await setPolicies(management, policies);
  await declareQueues(connection, queues);
  await bind(connection, bindings);
  // Anyone who looks now shall not see what was there before.
  management?.forget();
  const names = policies.map(({ name }) => name);
  return {
    exchanges: exchanges.length,
    queues: queues.length,
    bindings: bindings.length,
    policies: management === undefined ? [] : names,
    policiesNotApplied: management === undefined ? names : [],
  };
}

async function declareExchanges(
  connection: AmqpConnection,
  exchanges: readonly ExchangeSpec[],
): Promise<void> {
  // The default exchange always exists, and cannot be declared.
  const named = exchanges.filter(({ name }) => name !== '');
  await onParallelChannels(
    connection,
    named,
    async (channel, { name, type, durable, autoDelete, internal, arguments: args }) => {
      const settings = { durable, autoDelete, internal, arguments: args };
      await channel.assertExchange(name, type, settings);
    },
    (error, { name }) => {
      throw explainRefusal(error, { act: 'declare', what: 'exchange', name });
    },
  );
}

async function declareQueues(
  connection: AmqpConnection,
  queues: readonly QueueSpec[],
): Promise<void> {
  await onParallelChannels(
    connection,
    queues,
    async (channel, { name, durable, exclusive, autoDelete, arguments: args }) => {
      const settings = { durable, exclusive, autoDelete, arguments: args };
      await channel.assertQueue(name, settings);
    },
    (error, { name }) => {
      throw explainRefusal(error, { act: 'declare', what: 'queue', name });
    },
  );
}

async function bind(connection: AmqpConnection, bindings: readonly BindingSpec[]): Promise<void> {
  // The broker binds every queue to the default exchange by its name; clients cannot.
  const named = bindings.filter(({ exchange }) => exchange !== '');
  await onParallelChannels(
    connection,
    named,
    async (channel, { queue, exchange, key, arguments: args }) => {
      await channel.bindQueue(queue, exchange, key, args);
    },
    (error, { queue, exchange }) => {
      throw explainRefusal(error, { act: 'bind', what: 'queue', name: queue, exchange });
    },
  );
}

async function setPolicies(management: Management, policies: readonly PolicySpec[]): Promise<void> {
  if (policies.length === 0) return;
  management.forget();
  const there = new Map((await management.policies()).map((policy) => [policy.name, policy]));
  for (const policy of policies) {
    const found = there.get(policy.name);
    if (found === undefined) {
      await management.putPolicy(policy);
      continue;
    }
    const [first] = policyDifferences(policy, found);
    if (first !== undefined) throw policyClash(policy, describeDifference(first));
  }
}

/** n.b. What a queue is dead-lettering when its policy is cleared is lost, on 3.10 to 4.3. */
function policyClash({ name }: PolicySpec, difference: string): RespoolError {
  return new RespoolError(
    'topology.mismatch',
    `cannot set the policy ${inFull(name)}: it is there already and differs: ${difference}. ` +
      'It is not overwritten, since messages that are on their way out of a queue can be lost ' +
      'with its policy; stop the consumers, see that the wait queues are empty, clear the policy ' +
      '(rabbitmqctl clear_policy) and apply again',
  );
}
