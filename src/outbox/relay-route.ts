/**
 * relay-route — a handler as the target of a relay, behind the valve of that.
 *
 * A route may lead to many places, so each message is judged by itself: one place that is gone must
 * not hold up what goes elsewhere. But where the target is known to be gone as a whole, all that
 * wait would only spend their attempts: the valve is told, and shuts.
 */

import { classify, type Failure, failure } from '../core/failure.ts';
import { failed, isOutcome } from '../core/outcome.ts';
import type { Delivery, Handler } from '../ports/handler.ts';
import type { Parcel, Sink } from '../ports/sink.ts';
import type { Valve } from './relay-breaker.ts';

/** A handler that says so speaks of the whole target. */
const GONE = 'broker.unavailable';
/** The same, of a request that has one address for all messages. */
const UNREACHABLE = 'http.unreachable';

const NO_BODY: Uint8Array = new Uint8Array();

type Said = Awaited<ReturnType<Handler>>;

/** The same handler; the valve hears of its outcomes. */
export function behind(valve: Valve, deliver: Handler): Handler {
  const codes = hasOneAddress(deliver) ? [GONE, UNREACHABLE] : [GONE];
  return async (delivery) => {
    let said: Said = undefined;
    let thrown: { readonly error: unknown } | undefined;
    try {
      said = await deliver(delivery);
    } catch (error) {
      thrown = { error };
    }
    const found = thrown === undefined ? failureIn(said) : classify(thrown.error);
    const isGone = found?.permanence === 'transient' && codes.includes(found.code);
    if (isGone) {
      // As sent without an answer: the valve then knows one message from a place that is gone.
      const silence = failure('transient', 'sink.unanswered', found.reason);
      await tell(valve, delivery, silence);
      const judged = valve.judge(delivery.id, failed(silence));
      if (judged.kind !== 'failed') return judged;
    } else await tell(valve, delivery, 'confirmed');
    if (thrown !== undefined) throw thrown.error;
    return said;
  };
}

/** Whether it is `http({ url })`, as it tells itself; with `urls` there are several. */
function hasOneAddress(deliver: Handler): boolean {
  const { describe } = deliver as { describe?: unknown };
  if (typeof describe !== 'function') return false;
  try {
    const { kind, url } = Object(describe.call(deliver)) as Readonly<Record<string, unknown>>;
    return kind === 'http' && typeof url === 'string';
  } catch {
    // What a handler cannot tell about itself must not keep it from delivering.
    return false;
  }
}

/** An outcome that is none is the business of the engine. */
function failureIn(said: Said): Failure | undefined {
  try {
    return isOutcome(said) && said.kind === 'failed' ? said.failure : undefined;
  } catch {
    return undefined;
  }
}

/** Afterwards, so that a handler may take as long as it likes. */
async function tell(
  valve: Valve,
  { id, topic, headers, envelope }: Delivery,
  answer: 'confirmed' | Failure,
): Promise<void> {
  const parcel: Parcel = {
    id,
    topic,
    headers,
    body: NO_BODY,
    enqueuedAt: envelope.enqueuedAt,
  };
  const heard: Sink = {
    name: 'a route',
    send: () => Promise.resolve([answer]),
    close: () => Promise.resolve(),
  };
  await valve.before(heard).send([parcel]);
}
