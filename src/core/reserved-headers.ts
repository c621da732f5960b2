/**
 * reserved-headers — headers and notes that Respool itself writes and reads: those of replays and
 * kept copies, of canaries, and of sealed entries.
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

/** Why a kept copy is archived. */
export const KEPT_CODE = 'letter.kept';
/** The reason of a copy begins so where its message was removed; others were changed. */
export const REMOVED_FROM = 'removed from';

// The mark on a canary of a replay, and the line about its end in the log of the replay.
//
// A delivered message is removed by default, so its absence proves nothing: it may have been
// removed by an operator, or forgotten after it bounced. The process that settles a canary appends
// this line before the write that ends it, and the replay counts nothing else as a delivery.

/** On a canary: the replay it is one of. Counts only beside the same id in `respool-replay`. */
export const CANARY_HEADER = 'respool-canary';
/** The map of replays, by id. */
export const REPLAYS_KIND = 'dlq.replays';

/** How a canary ended. */
export interface CanaryEnd {
  readonly kind: 'canary';
  readonly at: Millis;
  readonly id: string;
  readonly result: 'delivered' | 'bounced';
  readonly code?: string;
  readonly reason?: string;
}

/** The log of one replay. */
export function logKindOf(replay: string): string {
  return `dlq.replay.${replay}`;
}

/** The replay that waits to hear how this message ends; undefined: none does. */
export function canaryOf({ envelope, status }: Entry): string | undefined {
  const { headers } = envelope;
  if (!Object.hasOwn(headers, CANARY_HEADER)) return undefined;
  const replay = headers[CANARY_HEADER] ?? '';
  // n.b. A producer can write headers; only an operator can raise the counter of replays.
  const isSent = replay === headers[REPLAY_HEADER] && status.replays > 0;
  return isSent && status.lane === 'delivery' && ID_PATTERN.test(replay) ? replay : undefined;
}

/** The line for a verdict; undefined while its attempts have not ended. */
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
/** The note that says: `because` is newer than what is sealed, and in the clear. */
export const SEALED_HERE_NAME = '$held';

/** Why a sealed entry is held where there is no seal: a handler would get it without headers. */
export const SEAL_MISSING: Because = {
  code: 'transform.missing',
  text:
    'the message was stored under a seal, and this spool has none: its headers cannot be read; ' +
    'wrap the entry store in seal(), or set "seal" in the configuration, then release it',
  by: 'engine',
};

/** Whether a seal wrote any part of it. */
export function isSealed({ envelope, status }: Entry): boolean {
  return Object.hasOwn(envelope.headers, SEALED_NAME) || Object.hasOwn(status.notes, SEALED_NAME);
}

/** A held status whose reason is still shown once its sealed half can be read. */
export function markSealedHere(status: Status): Status {
  if (!Object.hasOwn(status.notes, SEALED_NAME)) return status;
  return { ...status, notes: { ...status.notes, [SEALED_HERE_NAME]: '' } };
}
