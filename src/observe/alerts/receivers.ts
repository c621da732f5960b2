/**
 * receivers — where notifications go: as messages of the spool, or directly without it.
 *
 *   notice ─▶ message `respool.alert.<receiver>` ─▶ route ─▶ http, exec, log       retried
 *      └─ the store is the trouble, or this is a test: straight to http, exec, log
 */

import { textOf } from '../../core/errors.ts';
import { exponential, type RetryPolicy } from '../../core/policy.ts';
import { EngineDelivery, runHandler } from '../../engine/attempt.ts';
import type { HandlerRoute } from '../../engine/handler-slots.ts';
import type { Handler } from '../../ports/handler.ts';
import type { Claim, Source } from '../../ports/source.ts';
import type { Message } from '../../spool/message.ts';
import type { Spool } from '../../spool/spool.ts';
import { type Notice, noticeId, topicOf } from './notice.ts';

/** The receivers by name. */
export type Receivers = ReadonlyMap<string, Handler>;

/** How long one attempt may take. */
const ATTEMPT_TIMEOUT_MS = 60_000;
/** Notifications for one receiver that are on their way at once. */
const CONCURRENCY = 4;
/** The first to be claimed. */
const PRIORITY = 0;
const CONTENT_TYPE = 'application/json';

/**
 * Tried for three days: the receiver may be down for as long as what it is about. Also in
 * docs/reference/alerts.md.
 */
const ALERT_POLICY: RetryPolicy = exponential({
  first: '5s',
  factor: 2,
  max: '5m',
  attempts: 900,
  maxAge: '3d',
});

/** Registers who delivers notifications; before other routes, which may take all topics. */
export function registerReceivers(spool: Spool, receivers: Receivers): () => void {
  const undo = [...receivers].map(([name, handler]) =>
    spool.handle(topicOf(name), handler, {
      policy: ALERT_POLICY,
      timeout: ATTEMPT_TIMEOUT_MS,
      concurrency: CONCURRENCY,
    }),
  );
  return () => {
    for (const one of undo) one();
  };
}

/** The message that carries a notice to a receiver. */
export function messageOf(notice: Notice, receiver: string): Message {
  const id = noticeId(notice, receiver);
  return {
    topic: topicOf(receiver),
    id,
    // The id alone would be forgotten with the message where a store keeps none of those delivered.
    dedupeKey: id,
    priority: PRIORITY,
    headers: { 'content-type': CONTENT_TYPE },
    body: JSON.stringify(notice),
  };
}

/** The result of notifying without the spool. */
type ReceiverResult =
  | { readonly result: 'notified' }
  | { readonly result: 'failed'; readonly why: string };

/** Notifies at once, without a store; never throws. */
export async function notifyDirectly(
  handler: Handler,
  notice: Notice,
  receiver: string,
  now: number,
): Promise<ReceiverResult> {
  const body = Buffer.from(JSON.stringify(notice));
  const { claim, source } = looseMessage(notice, receiver, body, now);
  const route = { handler, middleware: [], schema: undefined, picks: undefined };
  try {
    const delivery = new EngineDelivery(claim, source);
    const outcome = await runHandler(route as unknown as HandlerRoute, delivery);
    if (outcome.kind === 'delivered') return { result: 'notified' };
    const why = outcome.kind === 'failed' ? outcome.failure.reason : outcome.reason;
    return { result: 'failed', why };
  } catch (error) {
    return { result: 'failed', why: textOf(error) };
  }
}

/** A message that is not stored: to handlers it looks like any other. */
function looseMessage(
  notice: Notice,
  receiver: string,
  body: Uint8Array,
  now: number,
): { claim: Claim; source: Source } {
  const id = noticeId(notice, receiver);
  const envelope = {
    id,
    topic: topicOf(receiver),
    headers: { 'content-type': CONTENT_TYPE },
    enqueuedAt: now,
    priority: PRIORITY,
    body: {
      ref: '',
      place: 'inline' as const,
      size: body.byteLength,
      storedSize: body.byteLength,
      digest: '',
      encodings: [],
    },
  };
  const claim = { id, envelope, lane: 'delivery', attempt: 1, notes: {}, fence: `${id}-1` };
  const source = {
    bytes: () => body,
    body: async function* pieces() {
      yield body;
    },
  };
  return { claim: claim as unknown as Claim, source: source as unknown as Source };
}
