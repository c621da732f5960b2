/**
 * diagnose — what a NATS server and a bucket are like for a spool: version, replicas, when writes
 * are on a disk, what would remove messages behind our back. The doctor asks it.
 *
 * Promise: only reads; a bucket that is not there is not made.
 */

import { isRespoolError, show } from '../../core/errors.ts';
import { danger, type Diagnosis, fine, type StoreFinding, noteFinding } from '../shared/finding.ts';
import {
  checkReplicas,
  CLUSTER_SAFE,
  connectServer,
  durabilityOf,
  isBefore,
  type JudgedBucket,
  readSync,
  SYNC_KNOWN,
} from './schema.ts';
import {
  type NatsBodyOptions,
  type NatsEntryOptions,
  readBodyOptions,
  readEntryOptions,
  type Settings,
} from './options.ts';
import { Stream, type StreamInfo } from './stream.ts';

/** Older ones have known ways to lose what they acknowledged. */
const RECOMMENDED = CLUSTER_SAFE;
/**
 * The largest entry: headers of 32 KiB (core/limits.ts), an inline body of 16 KiB (entry-store.ts),
 * and what we keep beside them. Also in docs/reference/stores/nats.md.
 */
const PAYLOAD_MIN_BYTES: number = 128 * 1_024;
/**
 * From here on a bucket with a limit is nearly full; inserts are refused at FILL_MAX. Also in
 * docs/reference/stores/nats.md.
 */
const FILL_NOTE = 0.7;

/** Looks at the server of a store, and at its stream. */
export async function diagnoseNats(
  options: NatsEntryOptions & NatsBodyOptions,
  holds: 'entries' | 'bodies',
): Promise<Diagnosis> {
  const settings = holds === 'entries' ? readEntryOptions(options) : readBodyOptions(options);
  const { line, server, close } = await connectServer(settings);
  try {
    const name = `${holds === 'entries' ? 'KV' : 'OBJ'}_${settings.bucket}`;
    const info = await new Stream(line, name).info();
    const { version, cluster = '', max_payload: maxPayload } = server;
    const judged: JudgedBucket = {
      version,
      replicas: Number(info?.config['num_replicas'] ?? settings.replicas ?? 1),
      isClustered: cluster !== '',
      syncsAlways: await readSync(settings),
      storage: info?.config['storage'] ?? 'file',
    };
    const findings = [
      examineVersion(judged),
      examineReplicas(judged),
      examineSync(judged, settings),
      examinePayload(maxPayload),
      ...(info === undefined ? [notThere(name)] : examineStream(name, info)),
    ];
    return { durability: durabilityOf(judged), isThere: info !== undefined, findings };
  } finally {
    await close();
  }
}

/** Whether there is a bucket of entries; makes none. */
export async function hasEntries(options: NatsEntryOptions): Promise<boolean> {
  const settings = readEntryOptions(options);
  const { line, close } = await connectServer(settings);
  try {
    return (await new Stream(line, `KV_${settings.bucket}`).info()) !== undefined;
  } finally {
    await close();
  }
}

function notThere(name: string): StoreFinding {
  return noteFinding('stream', `there is no stream "${name}" yet; it is made when a store opens`);
}

function examineVersion({ version, isClustered }: JudgedBucket): StoreFinding {
  const id = 'version';
  const text = `NATS ${version}${isClustered ? ', in a cluster' : ''}`;
  if (!isBefore(version, RECOMMENDED)) return fine(id, text);
  const todo = `update the server to ${RECOMMENDED.join('.')} or newer`;
  if (!isClustered) return noteFinding(id, `${text}, an old one`, todo);
  return danger(id, `${text}: it can lose a whole stream when its processes are killed`, todo);
}

function examineReplicas({ version, replicas }: JudgedBucket): StoreFinding {
  const id = 'replicas';
  try {
    checkReplicas(version, replicas);
  } catch (error) {
    if (!isRespoolError(error)) throw error;
    return danger(id, error.message, 'update the server, or use a bucket with 1 replica');
  }
  if (replicas === 1) {
    return fine(id, '1 replica: compare-and-swap is safe, and a machine that is lost takes all');
  }
  return fine(id, `${replicas} replicas, and compare-and-swap is safe on this version`);
}

const NOTICE_TODO = 'with "journal" a process that is started later at least notices it';

function examineSync(judged: JudgedBucket, { monitoringUrl }: Settings): StoreFinding {
  const id = 'sync';
  const { version, replicas, syncsAlways } = judged;
  if (syncsAlways) return fine(id, 'sync_interval is always: what is acknowledged is on the disk');
  if (isBefore(version, SYNC_KNOWN)) {
    return noteFinding(
      id,
      `NATS ${version} writes to its disk within a minute and cannot be configured to do it at ` +
        `once: a ` +
        'power cut takes what it acknowledged since, and a kill on a busy machine may',
      `update the server to ${RECOMMENDED.join('.')} or newer, and set sync_interval: always; ` +
        NOTICE_TODO,
    );
  }
  if (monitoringUrl === undefined) {
    return noteFinding(
      id,
      'whether the server syncs before it acknowledges is not known; taken as if it did not',
      'give "monitoringUrl", such as http://host:8222',
    );
  }
  const window = replicas > 1 ? 'of all its servers at once ' : '';
  return noteFinding(
    id,
    `sync_interval is not always: a power cut ${window}takes what was acknowledged within its ` +
      'interval, 2 minutes by default',
    `set sync_interval: always in the jetstream block of the server; ${NOTICE_TODO}`,
  );
}

function examinePayload(bytes: number): StoreFinding {
  const id = 'payload';
  const text = `a message may have ${bytes.toLocaleString('en')} bytes`;
  if (bytes >= PAYLOAD_MIN_BYTES) return fine(id, text);
  const todo = `set max_payload of the server to ${PAYLOAD_MIN_BYTES} or more`;
  return danger(id, `${text}: entries with many headers do not fit`, todo);
}

/** What a stream may be set to that removes or does not keep what was acknowledged. */
export function examineStream(name: string, { config, state }: StreamInfo): StoreFinding[] {
  const todo = 'let Respool make a bucket of another name, and move to it';
  const what = `stream "${name}"`;
  const { max_age: maxAge = 0, max_msgs: maxMessages = -1, max_bytes: maxBytes = -1 } = config;
  const findings: StoreFinding[] = [];
  if (config['persist_mode'] === 'async') {
    const text = `${what} has persist_mode async: it acknowledges what it has not written`;
    findings.push(danger('persist-mode', text, todo));
  }
  if (config['storage'] !== 'file') {
    findings.push(danger('storage', `${what} is in memory: a restart empties it`, todo));
  }
  if (Number(maxAge) > 0) {
    const text = `${what} has max_age: messages vanish when they are that old`;
    findings.push(danger('max-age', text, `nats stream edit ${name} --max-age=0`));
  }
  const { retention = 'limits', max_msgs_per_subject: perSubject = -1 } = config;
  if (retention !== 'limits') {
    const text =
      `${what} has retention ${show(retention)}: it keeps only what consumers have not ` +
      'acknowledged';
    findings.push(danger('retention', text, todo));
  }
  // A bucket of bodies: body-store.ts names its stream so.
  if (name.startsWith('OBJ_') && Number(perSubject) > 0) {
    const text = `${what} keeps ${Number(perSubject)} messages per subject: large bodies are cut`;
    findings.push(danger('per-subject', text, todo));
  }
  const isLimited = Number(maxMessages) > 0 || Number(maxBytes) > 0;
  if (isLimited && config['discard'] !== 'new') {
    const text = `${what} is limited and discards the oldest: a full one loses messages`;
    findings.push(danger('discard', text, `nats stream edit ${name} --discard=new`));
  }
  const held = `${what}: ${state.messages.toLocaleString('en')} messages, ${size(state.bytes)}`;
  if (Number(maxBytes) > 0 && state.bytes > Number(maxBytes) * FILL_NOTE) {
    const text = `${held} of ${size(Number(maxBytes))}; inserts are refused at nine tenths`;
    findings.push(noteFinding('stream', text, 'raise max_bytes of the stream, and "maxBytes"'));
  } else findings.push(fine('stream', held));
  return findings;
}

function size(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
