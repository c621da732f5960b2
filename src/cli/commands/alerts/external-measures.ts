/**
 * external-measures — what alerts measure outside the spool (disk, RabbitMQ queues, outbox) and
 * where they report to: the receivers of a configuration. Connected on first use, closed with the
 * rest.
 */

import path from 'node:path';
import type { EffectiveAlerts } from '../../../config/load/alerts.ts';
import { type Broker, brokerAt, brokersOf, tlsOfRabbit } from '../../../config/load/brokers.ts';
import { inSection } from '../../../config/load/config-errors.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { closeHandlers } from '../../../config/open/handlers.ts';
import type { ConfiguredOutbox } from '../../../config/open/open-outbox.ts';
import type { StorePlace } from '../../../config/open/stores.ts';
import type {
  ExternalMeasures,
  QueueDepth,
  DiskSpace,
} from '../../../observe/alerts/external-measures.ts';
import type { Notice } from '../../../observe/alerts/notice.ts';
import type { Receivers } from '../../../observe/alerts/receivers.ts';
import { askOutbox, backlogOf } from '../../../observe/metrics/outbox.ts';
import { RespoolError, show } from '../../../core/errors.ts';
import type { Handler } from '../../../ports/handler.ts';
import type { RabbitConnection } from '../../../rabbit/connection/connection.ts';
import { statfs } from 'node:fs/promises';

/** What surroundings are made of. */
interface ExternalMeasureOptions {
  readonly loaded: LoadedConfig;
  readonly place: StorePlace;
  /** Closes what was connected. */
  readonly atEnd: (close: () => Promise<void> | void) => void;
}

/** Who can be asked, as the configuration goes. */
export function externalMeasuresOf({
  loaded,
  place,
  atEnd,
}: ExternalMeasureOptions): ExternalMeasures {
  const { config } = loaded;
  const { consumers, rabbit } = config;
  const [named] = brokersOf(consumers, rabbit);
  const broker = named ?? (rabbit.url === undefined ? undefined : brokerAt(rabbit.url, [], rabbit));
  const lines = linesOf(loaded, atEnd);
  const { path: folder } = place;
  return {
    ...(folder === undefined ? {} : { disk: () => spaceAt(folder) }),
    ...(broker === undefined
      ? {}
      : { queueDepth: async (queue) => depthOf(await lines(broker), queue) }),
    ...(consumers.length === 0
      ? {}
      : { deadQueues: () => deadQueuesOf(brokersOf(consumers, rabbit), lines) }),
    ...(config.outbox === undefined ? {} : { outbox: outboxLook(loaded, atEnd) }),
  };
}

type Lines = (broker: Broker) => Promise<RabbitConnection>;

/** One connection for each broker, kept from round to round. */
function linesOf(loaded: LoadedConfig, atEnd: ExternalMeasureOptions['atEnd']): Lines {
  const open = new Map<string, Promise<RabbitConnection>>();
  const connect = async ({ url }: Broker): Promise<RabbitConnection> => {
    const { createConnection } = await import('../../../rabbit/connection/connection.ts');
    const tls = await tlsOfRabbit(loaded.config.rabbit);
    const connection = createConnection({
      url,
      name: 'respool alerts',
      ...(tls === undefined ? {} : { tls }),
    });
    atEnd(() => connection.close());
    return connection;
  };
  return (broker) => {
    const found = open.get(broker.url);
    if (found !== undefined) return found;
    // Retried after a failure: a certificate may be added later.
    const made = connect(broker).catch((error: unknown) => {
      open.delete(broker.url);
      throw error;
    });
    open.set(broker.url, made);
    return made;
  };
}

async function deadQueuesOf(brokers: readonly Broker[], lines: Lines): Promise<QueueDepth[]> {
  const depths: QueueDepth[] = [];
  for (const broker of brokers) {
    const dead = broker.topology.queues.filter(({ role }) => role === 'dead');
    const names = dead.map(({ name }) => name);
    const found = await depthsOf(await lines(broker), names);
    // Made with the first letter, by some: one that is not there holds none.
    for (const queue of names) depths.push({ queue, depth: found.get(queue) ?? 0 });
  }
  return depths;
}

async function depthOf(connection: RabbitConnection, queue: string): Promise<number> {
  const depth = (await depthsOf(connection, [queue])).get(queue);
  if (depth !== undefined) return depth;
  throw new RespoolError('broker.unavailable', `there is no queue ${show(queue)}`);
}

/** The number of ready messages of each queue, over AMQP; undefined: it is not there. */
async function depthsOf(
  connection: RabbitConnection,
  queues: readonly string[],
): Promise<ReadonlyMap<string, number | undefined>> {
  const { passiveQueues } = await import('../../../rabbit/connection/amqp.ts');
  const answers = await passiveQueues(await connection.consuming.tryConnect(), queues);
  const depths = new Map<string, number | undefined>();
  for (const [queue, answer] of answers) {
    if ('problem' in answer) throw new RespoolError('broker.unavailable', answer.problem);
    depths.set(queue, answer.found?.messageCount);
  }
  return depths;
}

function outboxLook(
  loaded: LoadedConfig,
  atEnd: ExternalMeasureOptions['atEnd'],
): NonNullable<ExternalMeasures['outbox']> {
  let open: Promise<ConfiguredOutbox> | undefined;
  const connect = async (): Promise<ConfiguredOutbox> => {
    const { createConfiguredOutbox } = await import('../../../config/open/open-outbox.ts');
    const { outbox } = loaded.config;
    if (outbox === undefined) throw new Error('the configuration has no outbox');
    const made = await createConfiguredOutbox(loaded, outbox);
    atEnd(() => made.close());
    return made;
  };
  return async () => {
    // Retried after a failure: a SQLite file may be created later.
    open ??= connect().catch((error: unknown) => {
      open = undefined;
      throw error;
    });
    const { counts, lagMs } = await askOutbox((await open).outbox);
    return { backlog: backlogOf(counts), lagMs };
  };
}

/** Prints a notification. */
type WarnOf = (level: 'error' | 'warn' | 'info', text: string, notice: Notice) => void;

/** Receivers that can be notified, until they are closed. */
interface OpenReceivers {
  readonly byName: Receivers;
  readonly close: () => Promise<void>;
}

/** Makes the receivers; what a handler misses is said here. */
export function receiversOf({ to }: EffectiveAlerts, say: WarnOf): OpenReceivers {
  const delivering = Object.values(to).filter(({ deliver }) => deliver !== undefined);
  for (const [name, { deliver }] of Object.entries(to)) {
    if (deliver === undefined || !('check' in deliver)) continue;
    inSection(`alerts.to.${name}`, () => deliver.check?.());
  }
  const pairs = Object.entries(to).map(([name, { deliver, level = 'warn' }]) => {
    const print: Handler = async (delivery) => {
      const notice = (await delivery.json()) as Notice;
      say(level, `alert ${notice.phase}: ${notice.text}`, notice);
    };
    return [name, deliver ?? print] as const;
  });
  return { byName: new Map(pairs), close: () => closeHandlers(delivering) };
}

// The free disk space of a store.

/** What is free there; some file systems have no size, and look full. */
export async function freeBytesAt(place: string): Promise<number> {
  const { freeBytes, totalBytes } = await spaceAt(place);
  if (!(totalBytes > 0)) throw new Error(`the size of the disk of "${place}" is unknown`);
  return freeBytes;
}

/** The space of the disk that this is on, or will be on. */
async function spaceAt(place: string): Promise<DiskSpace> {
  try {
    const { bavail, blocks, bsize } = await statfs(place);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch (error) {
    const above = path.dirname(place);
    if ((error as { readonly code?: unknown }).code !== 'ENOENT' || above === place) throw error;
    return spaceAt(above);
  }
}
