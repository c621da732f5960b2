/**
 * schema — the stream of a bucket as it has to be: made or checked, on a server that is judged.
 *
 * What is unsafe is refused here, before anything is written; what is weaker than it looks is
 * reported.
 */

import { RespoolError, show, textOf } from '../../core/errors.ts';
import type { Durability } from '../../ports/entry-store.ts';
import { TimeLimit } from '../../system/wait.ts';
import { connectTo, loadNats, type NatsConnection, ServerConnection } from './connection.ts';
import type { Settings } from './options.ts';
import { Stream, type StreamInfo } from './stream.ts';

/**
 * The oldest server whose compare-and-swap holds with several replicas. Also in docs/guarantees.md,
 * docs/reference/stores/nats.md and test/stores/nats/cluster.ts.
 */
const REPLICAS_SAFE = [2, 9, 21] as const;
/**
 * The oldest server that can sync every write. Also in docs/guarantees.md and
 * docs/reference/stores/nats.md.
 */
export const SYNC_KNOWN = [2, 10, 0] as const;
/**
 * Older ones may lose a whole stream of a cluster when processes are killed. Also in
 * docs/guarantees.md and docs/reference/stores/nats.md.
 */
export const CLUSTER_SAFE = [2, 10, 23] as const;
/**
 * This many replicas survive the loss of a machine. Also in docs/guarantees.md and
 * docs/reference/stores/nats.md.
 */
const NODE_LOSS_REPLICAS = 3;
const NAME_TAKEN = 10_058;
const MONITORING_TIMEOUT_MS = 5_000;

/** A stream that is ready to be used. */
export interface Bucket {
  readonly stream: Stream;
  readonly durability: Durability;
  readonly maxPayload: number;
  readonly maxBytes: number;
  readonly replicas: number;
  readonly isClustered: boolean;
  /** Also closes the connection, if it is ours. */
  close(): Promise<void>;
}

/** Which stream, and what it has to be like. */
interface WantedBucket {
  readonly name: string;
  readonly subjects: readonly string[];
  /** What a new stream is made with, and an existing one must have. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** Opens the stream of a bucket. */
export async function openBucket(settings: Settings, bucket: WantedBucket): Promise<Bucket> {
  const { line, server, close } = await connectServer(settings);
  try {
    const { version, cluster, max_payload: maxPayload } = server;
    if ((settings.replicas ?? 1) > 1) checkReplicas(version, settings.replicas ?? 1);
    const stream = new Stream(line, bucket.name);
    const info = await makeOrCheck(stream, settings, bucket);
    const replicas = Number(info.config['num_replicas'] ?? 1);
    checkReplicas(version, replicas);
    stream.restartsForget = replicas === 1;
    stream.readsLeader = replicas > 1 || info.config['allow_direct'] !== true;
    const isClustered = cluster !== undefined && cluster !== '';
    const syncsAlways = await readSync(settings);
    const judged = { version, replicas, isClustered, syncsAlways, storage: info.config['storage'] };
    const durability = durabilityOf(judged);
    tell(settings, { ...judged, durability }, bucket.name);
    const maxBytes = Number(info.config['max_bytes'] ?? -1);
    return { stream, durability, maxPayload, maxBytes, replicas, isClustered, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A server that is connected, and what it said of itself. */
interface ConnectedServer {
  readonly line: ServerConnection;
  readonly server: NonNullable<NatsConnection['info']>;
  /** Also closes the connection, if it is ours. */
  readonly close: () => Promise<void>;
}

/** Connects, or takes the connection that was given. */
export async function connectServer(settings: Settings): Promise<ConnectedServer> {
  const nats = await loadNats();
  const { url, clock, timeoutMs } = settings;
  const connection = settings.connection ?? (await connectTo(nats, url ?? '', settings.connect));
  const server = infoOf(connection);
  const line = new ServerConnection({
    connection,
    makeHeaders: () => nats.headers(),
    clock,
    timeoutMs,
  });
  const close = async (): Promise<void> => {
    line.close();
    if (settings.connection === undefined) await connection.close();
  };
  return { line, server, close };
}

/** What is known of a server and a stream. */
export interface JudgedBucket {
  readonly version: string;
  readonly replicas: number;
  readonly isClustered: boolean;
  readonly syncsAlways: boolean;
  readonly storage: unknown;
}

/** What a stream survives on such a server. */
export function durabilityOf(judged: JudgedBucket): Durability {
  const { version, replicas, isClustered, syncsAlways, storage } = judged;
  if (storage !== 'file') return 'process';
  // Reported to lose what they had acknowledged when they are killed; a cluster whole streams.
  if (isBefore(version, SYNC_KNOWN)) return 'process';
  if (isClustered && isBefore(version, CLUSTER_SAFE)) return 'process';
  if (replicas >= NODE_LOSS_REPLICAS) return 'node-loss';
  return syncsAlways ? 'power-loss' : 'server';
}

/** Refuses replicas where two claims of one revision could both succeed. */
export function checkReplicas(version: string, replicas: number): void {
  if (replicas <= 1 || !isBefore(version, REPLICAS_SAFE)) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use ${replicas} replicas with NATS ${version}: before ${REPLICAS_SAFE.join('.')} two ` +
      'processes can claim the same message there; update the server, or use 1 replica',
  );
}

function tell(
  { logger }: Settings,
  judged: JudgedBucket & { readonly durability: Durability },
  stream: string,
): void {
  const { version, isClustered } = judged;
  logger?.info(
    { stream, ...judged },
    `NATS ${version}: what is acknowledged survives a ${WORDS[judged.durability]}`,
  );
  if (!isClustered && isBefore(version, SYNC_KNOWN)) {
    logger?.warn(
      { stream, version },
      `NATS ${version} can lose what it acknowledged when it is killed on a busy machine; ` +
        'use 2.10 or newer with sync_interval: always',
    );
  }
  if (!isClustered || !isBefore(version, CLUSTER_SAFE)) return;
  logger?.warn(
    { stream, version },
    `NATS ${version} in a cluster can lose a whole stream when its processes are killed; ` +
      `use ${CLUSTER_SAFE.join('.')} or newer`,
  );
}

const WORDS: Readonly<Record<Durability, string>> = {
  none: 'nothing',
  process: 'kill of this process, and not surely one of the server',
  server: 'kill of the server',
  'power-loss': 'power cut',
  'node-loss': 'loss of a machine',
};

async function makeOrCheck(
  stream: Stream,
  { replicas, maxBytes, description }: Settings,
  { name, subjects, config }: WantedBucket,
): Promise<StreamInfo> {
  let info = await stream.info();
  if (info === undefined) {
    const made = await stream.api(
      'STREAM.CREATE',
      {
        name,
        subjects,
        retention: 'limits',
        discard: 'new',
        storage: 'file',
        ...(description === undefined ? {} : { description }),
        num_replicas: replicas ?? 1,
        max_bytes: maxBytes ?? -1,
        max_msgs: -1,
        max_age: 0,
        max_consumers: -1,
        allow_direct: true,
        ...config,
      },
      // Another process was quicker.
      ({ err_code: number }) => number === NAME_TAKEN,
    );
    info = made === undefined ? await stream.info() : (made as StreamInfo);
  }
  if (info === undefined) {
    throw new RespoolError('store.unavailable', `cannot make stream "${name}": it is not there`);
  }
  checkConfig(name, info.config, {
    ...config,
    storage: info.config['storage'],
    ...(replicas === undefined ? {} : { num_replicas: replicas }),
    ...(maxBytes === undefined ? {} : { max_bytes: maxBytes }),
  });
  return info;
}

function checkConfig(
  name: string,
  byName: Readonly<Record<string, unknown>>,
  target: Readonly<Record<string, unknown>>,
): void {
  if (byName['persist_mode'] === 'async') {
    throw new RespoolError(
      'config.invalid',
      `cannot use stream "${name}": its persist_mode is async, so the server acknowledges what ` +
        'it has not written; make another bucket',
    );
  }
  checkForgets(name, byName);
  for (const [option, value] of Object.entries(target)) {
    // A server leaves out what is false or zero.
    const there = byName[option] ?? (typeof value === 'boolean' ? false : 0);
    if (there === value) continue;
    throw new RespoolError(
      'config.invalid',
      `cannot use stream "${name}": its ${option} is ${show(there)}, not ${show(value)}; ` +
        'give what it has, or let Respool make a bucket of another name',
    );
  }
}

/** Refuses a stream that takes messages away by itself. */
function checkForgets(name: string, config: Readonly<Record<string, unknown>>): void {
  const { retention = 'limits', discard = 'old', max_age: maxAge = 0 } = config;
  const { max_msgs: maxMessages = -1, max_bytes: maxBytes = -1 } = config;
  const isLimited = Number(maxMessages) > 0 || Number(maxBytes) > 0;
  const reasons = [
    ...(Number(maxAge) > 0 ? ['has max_age, so messages that wait would vanish'] : []),
    ...(retention === 'limits' ? [] : [`has retention ${show(retention)}, not "limits"`]),
    ...(isLimited && discard !== 'new' ? ['drops the oldest messages when it is full'] : []),
  ];
  if (reasons.length === 0) return;
  throw new RespoolError(
    'config.invalid',
    `cannot use stream "${name}": it ${reasons.join(', and ')}; change that with ` +
      '"nats stream edit", or let Respool make a bucket of another name',
  );
}

/**
 * Whether a server syncs before it acknowledges, as far as its monitoring address tells. Of several
 * addresses all have to say so: which of the servers keeps a stream may change.
 */
export async function readSync(settings: Settings): Promise<boolean> {
  const { monitoringUrl } = settings;
  if (monitoringUrl === undefined) return false;
  const answers = monitoringUrl
    .split(',')
    .map((url) => readSyncAt(new URL('/varz', url), settings));
  return (await Promise.all(answers)).every(Boolean);
}

async function readSyncAt(address: URL, { logger, clock }: Settings): Promise<boolean> {
  const limit = new TimeLimit(clock, MONITORING_TIMEOUT_MS);
  try {
    const response = await fetch(address, { signal: limit.signal });
    const varz = (await response.json()) as {
      readonly jetstream?: { readonly config?: { readonly sync_always?: boolean } };
    };
    return varz.jetstream?.config?.sync_always === true;
  } catch (error) {
    logger?.warn(
      { address: address.href },
      `cannot ask NATS how it syncs: ${textOf(error)}; taken as if it did not before it answers`,
    );
    return false;
  } finally {
    limit.stop();
  }
}

function infoOf(connection: NatsConnection): NonNullable<NatsConnection['info']> {
  if (connection.info !== undefined) return connection.info;
  throw new RespoolError('store.unavailable', 'cannot use the NATS connection: it is closed');
}

/** Whether a version is older than another. */
export function isBefore(version: string, min: readonly number[]): boolean {
  const parts = version.split(/[.+-]/).map(Number);
  for (const [at, wanted] of min.entries()) {
    const part = parts[at] ?? 0;
    if (part !== wanted) return !(part > wanted);
  }
  return false;
}
