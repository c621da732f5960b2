/**
 * definitions — a topology in the JSON that the management API of RabbitMQ imports and exports.
 */

import { RespoolError, show } from '../../core/errors.ts';
import type { AmqpTable } from '../connection/amqp.ts';
import type { ExchangeSpec, Topology } from './model.ts';

/** A value that JSON can hold. */
export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json };

export type JsonTable = Readonly<Record<string, Json>>;

/** What `POST /api/definitions` takes. */
export interface Definitions {
  readonly exchanges: readonly {
    readonly name: string;
    readonly vhost: string;
    readonly type: ExchangeSpec['type'];
    readonly durable: boolean;
    readonly auto_delete: boolean;
    readonly internal: boolean;
    readonly arguments: JsonTable;
  }[];
  readonly queues: readonly {
    readonly name: string;
    readonly vhost: string;
    readonly durable: boolean;
    readonly auto_delete: boolean;
    readonly arguments: JsonTable;
  }[];
  readonly bindings: readonly {
    readonly source: string;
    readonly vhost: string;
    readonly destination: string;
    readonly destination_type: 'queue';
    readonly routing_key: string;
    readonly arguments: JsonTable;
  }[];
  readonly policies: readonly {
    readonly name: string;
    readonly vhost: string;
    readonly pattern: string;
    readonly 'apply-to': 'queues';
    readonly definition: JsonTable;
    readonly priority: number;
  }[];
}

/** Where the topology is to be. */
export interface ExportOptions {
  /** Default `/`. */
  readonly vhost?: string;
}

/**
 * The topology as definitions of RabbitMQ; a queue that is exclusive is refused.
 *
 * @example
 * import { mergeTopologies, toDefinitions, toTerraform } from 'respool/rabbit';
 * const topology = mergeTopologies([consumer.plan]);
 * console.log(JSON.stringify(toDefinitions(topology, { vhost: '/' })));
 * console.log(toTerraform(topology));
 */
export function toDefinitions(
  topology: Topology,
  { vhost = '/' }: ExportOptions = {},
): Definitions {
  return {
    exchanges: topology.exchanges.map((one) => ({
      name: one.name,
      vhost,
      type: one.type,
      durable: one.durable,
      auto_delete: one.autoDelete,
      internal: one.internal,
      arguments: plainTable(one.arguments, `exchange ${show(one.name)}`),
    })),
    queues: topology.queues.map((one) => {
      if (one.exclusive) throw notForExport(one.name);
      return {
        name: one.name,
        vhost,
        durable: one.durable,
        auto_delete: one.autoDelete,
        arguments: plainTable(one.arguments, `queue ${show(one.name)}`),
      };
    }),
    bindings: topology.bindings.map((one) => ({
      source: one.exchange,
      vhost,
      destination: one.queue,
      destination_type: 'queue',
      routing_key: one.key,
      arguments: plainTable(one.arguments, `a binding of queue ${show(one.queue)}`),
    })),
    policies: topology.policies.map((one) => ({
      name: one.name,
      vhost,
      pattern: one.pattern,
      'apply-to': 'queues',
      definition: plainTable(one.definition, `policy ${show(one.name)}`),
      priority: one.priority,
    })),
  };
}

function notForExport(name: string): RespoolError {
  return new RespoolError(
    'config.invalid',
    `cannot export queue ${show(name)}: it is exclusive, so it lives and dies with the ` +
      'connection of its consumer; make it not exclusive, or leave it out',
  );
}

function plainTable(table: AmqpTable, owner: string): JsonTable {
  // What is undefined is not sent to the broker either.
  const set = Object.entries(table).filter(([, value]) => value !== undefined);
  return Object.fromEntries(
    set.map(([key, value]) => [key, plain(value, `argument ${show(key)} of ${owner}`)]),
  );
}

function plain(value: unknown, what: string): Json {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'number':
      if (Number.isFinite(value)) return value;
      break;
    case 'object':
      if (value === null) return null;
      if (Array.isArray(value)) return value.map((part) => plain(part, what));
      if (Object.getPrototypeOf(value) === Object.prototype) return plainObject(value, what);
      break;
    default:
  }
  throw new RespoolError(
    'config.invalid',
    `cannot export ${what}: ${show(value)} has no place in JSON; use a string or a number`,
  );
}

function plainObject(value: object, what: string): Json {
  // How amqplib gets the type of a number; in JSON it is just the number.
  if ('!' in value && 'value' in value) return plain(value.value, what);
  return plainTable({ ...value }, what);
}
