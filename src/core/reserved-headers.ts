/**
 * reserved-headers — the names of headers and notes that Respool itself writes or reads: those of
 * replays, kept copies, policies, chains, canaries and sealed entries. Also how a canary's end is
 * recorded, and how a sealed entry is recognised. The names are stored: they must not change.
 */

import type { Millis } from './duration.ts';
import type { Because, Entry, Status } from './entry.ts';
import { ID_PATTERN } from './limits.ts';
import type { Verdict } from './verdict.ts';

/** The replay that sent the message last. */
export const REPLAY_HEADER = 'respool-replay';
/** On a copy that was kept: the id of the message it is a copy of. */
export const ORIGINAL_HEADER = 'respool-original-of';
/** On a copy of a message of a broker: what is needed to put it back there. */
export const AMQP_HEADER = 'respool-amqp';
/** On a copy of a message of a broker: which broker, without user and password. */
export const BROKER_HEADER = 'respool-amqp-broker';

/** Names a policy, for those who cannot pass an option; read by the spool and by consumers. */
export const POLICY_HEADER = 'x-retry-policy';
/** The chain of an outbox: a JSON list of ids, the oldest first. Other systems read it. */
export const TRACKING_HEADER = 'x-outbox-tracking-ids';

/** Why a kept copy is archived. */
export const KEPT_COPY_CODE = 'letter.kept';
/** The reason of a kept copy begins with this if its message was removed, and not changed. */
export const REMOVED_REASON_PREFIX = 'removed from';

// The mark on a canary of a replay, and the line about its end in the log of the replay.
//
// A delivered message is removed by default, so its absence proves nothing: it may have been
// removed by an operator, or forgotten after it bounced. The process that settles a canary appends
// this line before the write that ends it, and the replay counts nothing else as a delivery.

/** On a canary: the replay it is one of. Counts only beside the same id in `respool-replay`. */
export const CANARY_HEADER = 'respool-canary';
/** The kind of the records of replays, by id. */
export const REPLAYS_RECORD_KIND = 'dlq.replays';

/** How a canary ended. */
export interface CanaryEnd {
  readonly kind: 'canary';
  readonly at: Millis;
  readonly id: string;
  readonly result: 'delivered' | 'bounced';
  readonly code?: string;
  readonly reason?: string;
}

/** The kind of the log of one replay. */
export function replayLogKind(replay: string): string {
  return `dlq.replay.${replay}`;
}

/** The replay that this message is a canary of; undefined: of none. */
export function replayOfCanary({ envelope, status }: Entry): string | undefined {
  const { headers } = envelope;
  if (!Object.hasOwn(headers, CANARY_HEADER)) return undefined;
  const replay = headers[CANARY_HEADER] ?? '';
  // n.b. A producer can write headers; only an operator can raise the counter of replays.
  const isSent = replay === headers[REPLAY_HEADER] && status.replays > 0;
  return isSent && status.lane === 'delivery' && ID_PATTERN.test(replay) ? replay : undefined;
}

/** The log line for the verdict on a canary; undefined while its attempts have not ended. */
export function canaryEnd(id: string, verdict: Verdict, at: Millis): CanaryEnd | undefined {
  if (verdict.kind === 'ack') return { kind: 'canary', at, id, result: 'delivered' };
  if (verdict.kind !== 'bounce') return undefined;
  const { because, failure = { code: because.code, reason: because.text } } = verdict;
  const { code, reason } = failure;
  return { kind: 'canary', at, id, result: 'bounced', code, reason };
}

// How to recognise an entry that is stored under a seal. `$` is not allowed in the name of a
// header or note, so no other header is taken for one of these.

/** The header and the note that hold what is sealed. */
export const SEALED_NAME = '$sealed';
/** The note that says: `because` is newer than the sealed part, and not encrypted. */
export const REASON_UNSEALED_NAME = '$held';

/** Why a sealed entry is held where there is no seal: a handler would get it without headers. */
export const SEAL_MISSING: Because = {
  code: 'transform.missing',
  text:
    'the message was stored under a seal, and this spool has none: its headers cannot be read; ' +
    'wrap the entry store in seal(), or set "seal" in the configuration, then release it',
  by: 'engine',
};

/** Whether any part of an entry is sealed. */
export function isSealed({ envelope, status }: Entry): boolean {
  return Object.hasOwn(envelope.headers, SEALED_NAME) || Object.hasOwn(status.notes, SEALED_NAME);
}

/** A held status that keeps showing its reason once its sealed part can be read. */
export function markReasonUnsealed(status: Status): Status {
  if (!Object.hasOwn(status.notes, SEALED_NAME)) return status;
  return { ...status, notes: { ...status.notes, [REASON_UNSEALED_NAME]: '' } };
}
