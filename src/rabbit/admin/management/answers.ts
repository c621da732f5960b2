/**
 * answers — what the management API tells, in our words. What it does not tell is undefined: other
 * releases, other queue types and `columns` leave things out.
 */

import type { Table } from '../../connection/amqp.ts';

type Told = Readonly<Record<string, unknown>>;

/** A queue, as far as the broker tells. Counts are up to 5 s old. */
export interface QueueInfo {
  readonly name: string;
  /** `classic`, `quorum`, `stream`. */
  readonly type: string | undefined;
  readonly durable: boolean;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  readonly arguments: Table;
  readonly state: string | undefined;
  readonly node: string | undefined;
  /** Names of the policies that apply to it. */
  readonly policy: string | undefined;
  readonly operatorPolicy: string | undefined;
  /** What those policies say together; told only some seconds after a queue was declared. */
  readonly policyDefinition: Table;
  readonly consumers: number | undefined;
  readonly messages: number | undefined;
  readonly ready: number | undefined;
  readonly unacked: number | undefined;
  /** Dead-lettered and not yet confirmed by their target; only at-least-once queues have them. */
  readonly deadLettering: number | undefined;
  /** Held back by the broker itself; RabbitMQ 4.3 and later. */
  readonly delayed: number | undefined;
  readonly bytes: number | undefined;
  /** Messages per second, over the last seconds. */
  readonly publishRate: number | undefined;
  readonly deliverRate: number | undefined;
  readonly ackRate: number | undefined;
  /** When the message at the head was published, in milliseconds, where the broker knows. */
  readonly headAt: number | undefined;
  /** Everything that was told, under the names of the broker. */
  readonly raw: Told;
}

export interface ExchangeInfo {
  readonly name: string;
  readonly type: string;
  readonly durable: boolean;
  readonly autoDelete: boolean;
  readonly internal: boolean;
  readonly arguments: Table;
  readonly policy: string | undefined;
}

/** A binding of a queue, or of an exchange, to an exchange; `''` is the default exchange. */
export interface BindingInfo {
  readonly exchange: string;
  readonly destination: string;
  readonly to: 'queue' | 'exchange';
  readonly key: string;
  readonly arguments: Table;
}

export interface PolicyInfo {
  readonly name: string;
  readonly pattern: string;
  /** `all`, `queues`, `classic_queues`, `quorum_queues`, `exchanges`, … */
  readonly applyTo: string;
  readonly definition: Table;
  readonly priority: number;
}

export interface NodeInfo {
  readonly name: string;
  readonly isRunning: boolean;
  readonly hasMemoryAlarm: boolean;
  readonly hasDiskAlarm: boolean;
}

export interface Overview {
  /** Of RabbitMQ, such as `3.10.8`. */
  readonly version: string;
  readonly clusterName: string | undefined;
  readonly node: string | undefined;
  /** Whether the broker was told to keep no statistics: then there are no rates and counts. */
  readonly isWithoutStats: boolean;
  readonly raw: Told;
}

export function queueInfo(told: unknown): QueueInfo {
  const raw = record(told);
  const rates = record(raw['message_stats']);
  const args = record(raw['arguments']);
  const headAt = number(raw['head_message_timestamp']);
  return {
    name: text(raw['name']) ?? '',
    type: text(raw['type']) ?? text(args['x-queue-type']),
    durable: raw['durable'] === true,
    exclusive: raw['exclusive'] === true,
    autoDelete: raw['auto_delete'] === true,
    arguments: args,
    state: text(raw['state']),
    node: text(raw['node']),
    policy: text(raw['policy']),
    operatorPolicy: text(raw['operator_policy']),
    policyDefinition: record(raw['effective_policy_definition']),
    consumers: number(raw['consumers']),
    messages: number(raw['messages']),
    ready: number(raw['messages_ready']),
    unacked: number(raw['messages_unacknowledged']),
    deadLettering: number(raw['messages_dlx']),
    delayed: number(raw['messages_delayed']),
    bytes: number(raw['message_bytes']),
    publishRate: rate(rates['publish_details']),
    deliverRate: rate(rates['deliver_get_details']),
    ackRate: rate(rates['ack_details']),
    headAt: headAt === undefined ? undefined : headAt * 1_000,
    raw,
  };
}

export function exchangeInfo(told: unknown): ExchangeInfo {
  const raw = record(told);
  return {
    name: text(raw['name']) ?? '',
    type: text(raw['type']) ?? '',
    durable: raw['durable'] === true,
    autoDelete: raw['auto_delete'] === true,
    internal: raw['internal'] === true,
    arguments: record(raw['arguments']),
    policy: text(raw['policy']),
  };
}

export function bindingInfo(told: unknown): BindingInfo {
  const raw = record(told);
  return {
    exchange: text(raw['source']) ?? '',
    destination: text(raw['destination']) ?? '',
    to: raw['destination_type'] === 'exchange' ? 'exchange' : 'queue',
    key: text(raw['routing_key']) ?? '',
    arguments: record(raw['arguments']),
  };
}

export function policyInfo(told: unknown): PolicyInfo {
  const raw = record(told);
  return {
    name: text(raw['name']) ?? '',
    pattern: text(raw['pattern']) ?? '',
    applyTo: text(raw['apply-to']) ?? 'all',
    definition: record(raw['definition']),
    priority: number(raw['priority']) ?? 0,
  };
}

export function nodeInfo(told: unknown): NodeInfo {
  const raw = record(told);
  return {
    name: text(raw['name']) ?? '',
    isRunning: raw['running'] === true,
    hasMemoryAlarm: raw['mem_alarm'] === true,
    hasDiskAlarm: raw['disk_free_alarm'] === true,
  };
}

export function overviewOf(told: unknown): Overview {
  const raw = record(told);
  return {
    version: text(raw['rabbitmq_version']) ?? '',
    clusterName: text(raw['cluster_name']),
    node: text(raw['node']),
    isWithoutStats: raw['disable_stats'] === true,
    raw,
  };
}

/** n.b. The broker writes an empty table as a list in some places. */
export function record(value: unknown): Told {
  const isRecord = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isRecord ? (value as Told) : {};
}

export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function text(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

export function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}

function rate(details: unknown): number | undefined {
  return number(record(details)['rate']);
}
