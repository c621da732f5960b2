/**
 * verify — whether everything of a topology is at the broker, without changing anything: for users
 * who may not configure, and for the caller that wants to be sure.
 *
 * AMQP only tells what exists; the management API tells arguments, bindings, policies and what
 * holds when they are taken together.
 */

import { show } from '../../core/errors.ts';
import { checkNames } from '../../core/limits.ts';
import { type AmqpConnection, onParallelChannels, refusalCode } from '../connection/amqp.ts';
import * as compare from './broker-state.ts';
import { type ApplyOptions, TOPOLOGY_OPTIONS } from './declare.ts';
import { appliedPolicy, hazardOf, overruledSettings } from './effective.ts';
import { type Difference, describeDifference, explainRefusal, inFull } from './explain.ts';
import type { BindingSpec, QueueSpec, Topology } from './model.ts';
import { type Snapshot, takeSnapshot } from './broker-state.ts';

/** One thing that is not as the topology needs it. */
export interface Problem {
  readonly kind: ProblemKind;
  readonly name: string;
  readonly text: string;
  readonly todo: string;
}

/** `overruled`: by a policy of the broker. `unsafe`: messages can be lost. */
type ProblemKind =
  | 'exchange.missing'
  | 'exchange.refused'
  | 'exchange.different'
  | 'queue.missing'
  | 'queue.refused'
  | 'queue.different'
  | 'queue.overruled'
  | 'queue.unsafe'
  | 'binding.missing'
  | 'policy.missing'
  | 'policy.different';

/** The problems of a topology, none: it can be used. Throws where the broker cannot be asked. */
export async function verifyTopology(
  connection: AmqpConnection,
  topology: Topology,
  options: ApplyOptions = {},
): Promise<readonly Problem[]> {
  checkNames('verifyTopology', options, Object.keys(TOPOLOGY_OPTIONS));
  const problems = await checkExistence(connection, topology);
  const { management } = options;
  if (management === undefined) return problems;
  const snapshot = await takeSnapshot(management, topology);
  return [...problems, ...compareAll(topology, snapshot)];
}

interface Thing {
  readonly what: 'exchange' | 'queue';
  readonly name: string;
}

async function checkExistence(
  connection: AmqpConnection,
  { exchanges, queues, bindings }: Topology,
): Promise<Problem[]> {
  // Exchanges of other systems are only named by bindings.
  const names = new Set([...exchanges.map(({ name }) => name), ...bindings.map(exchangeOf)]);
  // The default exchange is always there, and cannot be asked for.
  names.delete('');
  const things: Thing[] = [
    ...[...names].map((name) => ({ what: 'exchange' as const, name })),
    ...queues.map(({ name }) => ({ what: 'queue' as const, name })),
  ];
  const found = new Map<Thing, Problem>();
  await onParallelChannels(
    connection,
    things,
    async (channel, { what, name }) => {
      await (what === 'queue' ? channel.checkQueue(name) : channel.checkExchange(name));
    },
    (error, thing) => found.set(thing, existenceProblem(error, thing)),
  );
  // In the order of the topology, whichever answer came first.
  return things.flatMap((thing) => found.get(thing) ?? []);
}

function existenceProblem(error: unknown, { what, name }: Thing): Problem {
  const code = refusalCode(error);
  if (code === 404) {
    const text = `there is no ${what} ${inFull(name)}`;
    return { kind: `${what}.missing`, name, text, todo: CREATE };
  }
  const explained = explainRefusal(error, { act: 'check', what, name });
  // Not an answer to this question: the connection is gone.
  if (code === undefined || explained.code === 'broker.unavailable') throw explained;
  return { kind: `${what}.refused`, name, text: explained.message, todo: LET_LOOK };
}

const CREATE = 'create it: respool rabbit topology apply';
const LET_LOOK = 'give this user access, or see who else holds it';
const MOVE =
  'set it as it is there, use another name or style, or move: respool rabbit topology migrate';
const SET = 'set our policy, and see that no other has a higher priority';
const CLEAR = 'take that setting out of the policy, or keep its pattern off this queue';

function compareAll(topology: Topology, snapshot: Snapshot): Problem[] {
  return [
    ...compareExchanges(topology, snapshot),
    ...topology.queues.flatMap((queue) => compareQueue(queue, topology, snapshot)),
    ...topology.bindings.flatMap((binding) => compareBinding(binding, snapshot)),
    ...comparePolicies(topology, snapshot),
  ];
}

function compareExchanges({ exchanges }: Topology, snapshot: Snapshot): Problem[] {
  return exchanges.flatMap((want) => {
    const have = snapshot.exchanges.get(want.name);
    if (have === undefined || want.name === '') return [];
    const differences = compare.exchangeDifferences(want, have);
    return different('exchange', want.name, differences, MOVE);
  });
}

function compareQueue(want: QueueSpec, topology: Topology, snapshot: Snapshot): Problem[] {
  const { name } = want;
  const have = snapshot.queues.get(name);
  if (have === undefined) return [];
  const { policies, operatorPolicies, version } = snapshot;
  const applied = appliedPolicy(have, [...policies.values()], operatorPolicies);
  const by = applied.names.length === 0 ? 'no policy' : applied.names.map(inFull).join(' and ');
  const hazard = hazardOf(have, applied, version);
  return [
    ...different('queue', name, compare.queueDifferences(want, have), MOVE),
    ...overruledSettings(want, topology.policies, have, applied).map(
      (one): Problem => ({
        kind: 'queue.overruled',
        name,
        text:
          `for the queue ${inFull(name)} "${one.setting}" is ${shown(one.have)}, ` +
          `needed is ${shown(one.want)} (applied: ${by})`,
        todo: one.have === undefined ? SET : CLEAR,
      }),
    ),
    ...(hazard === undefined
      ? []
      : [
          {
            kind: 'queue.unsafe' as const,
            name,
            text: `the queue ${inFull(name)} can lose messages: ${hazard}`,
            todo: 'correct its arguments or its policy',
          },
        ]),
  ];
}

function compareBinding(want: BindingSpec, snapshot: Snapshot): Problem[] {
  const { queue, exchange, key } = want;
  if (exchange === '') return [];
  if (snapshot.bindings.some((have) => compare.isSameBinding(want, have))) return [];
  const args =
    Object.keys(want.arguments).length === 0 ? '' : ` and ${JSON.stringify(want.arguments)}`;
  const text =
    `the queue ${inFull(queue)} is not bound to the exchange ${inFull(exchange)} by the key ` +
    `${inFull(key)}${args}`;
  return [
    { kind: 'binding.missing', name: queue, text, todo: 'bind it: respool rabbit topology apply' },
  ];
}

function comparePolicies({ policies }: Topology, snapshot: Snapshot): Problem[] {
  return policies.flatMap((want): Problem[] => {
    const { name } = want;
    const have = snapshot.policies.get(name);
    if (have !== undefined) {
      const todo = 'empty the wait queues, clear the policy (rabbitmqctl clear_policy), apply';
      return different('policy', name, compare.policyDifferences(want, have), todo);
    }
    return [
      {
        kind: 'policy.missing',
        name,
        text: `there is no policy ${inFull(name)}`,
        todo: 'set it: respool rabbit topology apply, with the management API',
      },
    ];
  });
}

function different(
  what: 'exchange' | 'queue' | 'policy',
  name: string,
  differences: readonly Difference[],
  todo: string,
): Problem[] {
  if (differences.length === 0) return [];
  const said = differences.map(describeDifference).join(', ');
  return [
    {
      kind: `${what}.different`,
      name,
      text: `the ${what} ${inFull(name)} differs: ${said}`,
      todo,
    },
  ];
}

function shown(value: unknown): string {
  return value === undefined ? 'not set' : show(value);
}

function exchangeOf({ exchange }: BindingSpec): string {
  return exchange;
}
