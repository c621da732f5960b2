/**
 * canary — the mark on a canary of a replay, and the line about its end in the log of the replay.
 *
 * A delivered message is removed by default, so its absence proves nothing: it may have been
 * removed by an operator, or forgotten after it bounced. The process that settles a canary appends
 * this line before the write that ends it, and the replay counts nothing else as a delivery.
 */

import type { Millis } from './duration.ts';
import type { Entry } from './entry.ts';
import { ID_PATTERN } from './limits.ts';
import { REPLAY_HEADER } from './letter-headers.ts';
import type { Verdict } from './verdict.ts';

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
