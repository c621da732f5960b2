/**
 * dump — everything of some plans as the broker has it, as data and as text for a ticket.
 *
 * Promise: no message is taken, and no body or header of one is in it.
 */

import { formatDuration } from '../../core/duration.ts';
import { systemClock } from '../../system/clock.ts';
import { passiveExchanges, type AmqpTable, versionOf } from '../connection/amqp.ts';
import { isSameBinding, type Snapshot, takeSnapshot } from '../topology/broker-state.ts';
import { extraBindings } from '../topology/apply-plan.ts';
import { mergeTopologies, plannedQueues, type Topology } from '../topology/model.ts';
import { checkLook, queueStats } from './stats.ts';
import { amqpOf } from '../connection/connection.ts';
import type {
  DumpedBinding,
  DumpedExchange,
  DumpedQueue,
  BrokerLookOptions,
  TopologyDump,
} from './reports.ts';

/** The topology of the plans, and the state of its queues. */
export async function dumpTopology(options: BrokerLookOptions): Promise<TopologyDump> {
  checkLook('the topology', options);
  const { management, plans, clock = systemClock } = options;
  const topology = mergeTopologies(plans);
  const connection = options.connection && (await amqpOf(options.connection));
  const snapshot = management && (await takeSnapshot(management, topology));
  const stats = await queueStats({ connection, management, plans, clock });
  const there =
    snapshot === undefined && connection !== undefined
      ? await passiveExchanges(connection, namesOf(topology))
      : undefined;
  const specs = new Map(plannedQueues(plans).map(({ spec }) => [spec.name, spec]));
  return {
    at: stats.at,
    version: versionOf(connection) ?? snapshot?.version,
    note: stats.note,
    exchanges: topology.exchanges.map(({ name, type }): DumpedExchange => {
      const found = snapshot?.exchanges.get(name);
      const answer = there?.get(name);
      const isSeen =
        answer !== undefined && 'found' in answer ? answer.found !== undefined : undefined;
      return {
        name,
        type: found?.type ?? type,
        isThere: snapshot === undefined ? isSeen : found !== undefined,
        arguments: found?.arguments,
        policy: found?.policy,
      };
    }),
    queues: stats.queues.map((queue): DumpedQueue => {
      const found = snapshot?.queues.get(queue.name);
      return {
        ...queue,
        planned: specs.get(queue.name)?.arguments ?? {},
        arguments: found?.arguments,
        policy: found?.policy,
        operatorPolicy: found?.operatorPolicy,
        policyDefinition: found?.policyDefinition,
        state: found?.state,
        node: found?.node,
      };
    }),
    bindings: bindingsOf(topology, snapshot),
    policies: policiesOf(topology, snapshot),
    hints: stats.hints,
  };
}

function namesOf({ exchanges }: Topology): string[] {
  return exchanges.map(({ name }) => name);
}

/** Planned objects, and unplanned ones that exist at the broker. */
function bindingsOf(topology: Topology, snapshot: Snapshot | undefined): DumpedBinding[] {
  const planned = topology.bindings.map((one): DumpedBinding => {
    const isThere = snapshot?.bindings.some((have) => isSameBinding(one, have));
    return { ...one, isPlanned: true, isThere };
  });
  const others = extraBindings(topology, snapshot?.bindings ?? []);
  return [
    ...planned,
    ...others.map(
      ({ exchange, destination, key, arguments: args }): DumpedBinding => ({
        exchange,
        queue: destination,
        key,
        arguments: args,
        isPlanned: false,
        isThere: true,
      }),
    ),
  ];
}

/** Those that apply to one of the queues, or are planned to. */
function policiesOf(
  { queues, policies }: Topology,
  snapshot: Snapshot | undefined,
): TopologyDump['policies'] {
  const wanted = new Set(policies.map(({ name }) => name));
  const applied = new Set(queues.map(({ name }) => snapshot?.queues.get(name)?.policy));
  return [...(snapshot?.policies.values() ?? [])]
    .filter(({ name }) => wanted.has(name) || applied.has(name))
    .map(({ name, pattern, definition, priority }) => ({ name, pattern, definition, priority }));
}

/** A dump as text: one line each for exchanges, queues, bindings, policies and hints. */
export function dumpText(dump: TopologyDump): string {
  const { version = 'of unknown version', note } = dump;
  const lines = [
    `RabbitMQ ${version} at ${new Date(dump.at).toISOString()}`,
    ...(note === undefined ? [] : [`n.b. ${note}`]),
    '',
    ...dump.exchanges.map(({ name, type, isThere, arguments: args }) =>
      line('exchange', name, type, thereText(isThere), tableText(args)),
    ),
    ...dump.queues.map(queueText),
    ...dump.bindings.map(({ exchange, queue, key, arguments: args, isPlanned, isThere }) => {
      const text = `${exchange} -> ${queue} by ${JSON.stringify(key)}`;
      return line('binding', text, isPlanned ? thereText(isThere) : 'NOT PLANNED', tableText(args));
    }),
    ...dump.policies.map(({ name, pattern, priority, definition }) =>
      line('policy', name, `pattern ${pattern} priority ${priority}`, tableText(definition)),
    ),
    ...dump.hints.map(({ level, text }) => `${level}: ${text}`),
  ];
  return `${lines.join('\n')}\n`;
}

function queueText(queue: DumpedQueue): string {
  const { role, name, waitMs, type = '', isThere } = queue;
  const counts = [
    `ready ${countText(queue.ready)}`,
    `unacked ${countText(queue.unacked)}`,
    `dead-lettering ${countText(queue.deadLettering)}`,
    `consumers ${countText(queue.consumers)}`,
  ];
  const policies = [queue.policy, queue.operatorPolicy].filter((one) => one !== undefined);
  return line(
    `${role} queue`,
    name,
    waitMs === undefined ? '' : formatDuration(waitMs),
    type,
    isThere ? counts.join(', ') : thereText(isThere),
    policies.length === 0 ? '' : `policies ${policies.join(' and ')}`,
    tableText(queue.arguments ?? queue.planned),
  );
}

function line(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join(' ');
}

function countText(count: number | undefined): string {
  return count === undefined ? '?' : String(count);
}

function thereText(isThere: boolean | undefined): string {
  if (isThere === undefined) return '(not looked at)';
  return isThere ? '' : 'MISSING';
}

function tableText(table: AmqpTable | undefined): string {
  if (table === undefined || Object.keys(table).length === 0) return '';
  return JSON.stringify(table);
}
