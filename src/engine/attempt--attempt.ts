/**
 * attempt--attempt — run one handler once and turn whatever happens into an Outcome. Nothing
 * escapes from here.
 */

import { type Outcome, delivered, failed, held, isOutcome } from '../core/outcome.ts';
import { classify, failure } from '../core/failure.ts';
import { formatDuration } from '../core/duration.ts';
import { BodyInvalid, type EngineDelivery } from './delivery.ts';
import type { Route } from './routes.ts';

/** After an outage of what a body is read from, the wait before the message is tried again. */
export const OUTAGE_WAIT_MS = 10_000;

/** Runs the route's middleware and handler over the delivery. */
export async function runAttempt(route: Route, delivery: EngineDelivery): Promise<Outcome> {
  let outcome: Outcome;
  try {
    // The answer is known, except when it throws (see routes.ts).
    route.picks?.(delivery.envelope);
    if (route.schema !== undefined) await delivery.fit(route.schema);
    outcome =
      route.middleware.length === 0
        ? outcomeOf(await route.handler(delivery))
        : await throughMiddleware(route, delivery);
  } catch (thrown) {
    const misfit = misfitOf(thrown);
    outcome = misfit === undefined ? failed(classify(thrown)) : held(misfit.message, misfit.code);
  }
  return despiteTrouble(delivery, outcome);
}

/** A body that cannot be read is nobody's success, whatever the handler made of the error. */
function despiteTrouble({ trouble, outage }: EngineDelivery, outcome: Outcome): Outcome {
  if (trouble !== undefined) return held(trouble.message, trouble.code);
  if (outage === undefined) return outcome;
  const { message: reason, code } = outage;
  return { kind: 'postponed', delayMs: OUTAGE_WAIT_MS, reason, code };
}

function misfitOf(thrown: unknown): BodyInvalid | undefined {
  try {
    return thrown instanceof BodyInvalid ? thrown : undefined;
  } catch {
    // What is thrown may be a proxy that does not even say what it is an instance of.
    return undefined;
  }
}

/** The outcome of an attempt that took longer than its time limit. */
export function timedOut(timeoutMs: number, delivery: EngineDelivery): Outcome {
  const text = `the handler did not finish within ${formatDuration(timeoutMs)}`;
  return despiteTrouble(delivery, failed(failure('transient', 'timeout', text)));
}

/** What a handler's return value means: nothing, or an outcome. */
function outcomeOf(answer: unknown): Outcome {
  if (isOutcome(answer)) return answer;
  // Anything else a function happens to return (a response, a number) says no more than "done".
  return delivered();
}

async function throughMiddleware(route: Route, delivery: EngineDelivery): Promise<Outcome> {
  const { middleware, handler } = route;
  const step = async (at: number): Promise<Outcome> => {
    const wrap = middleware[at];
    if (wrap === undefined) return outcomeOf(await handler(delivery));
    let isCalled = false;
    return outcomeOf(
      await wrap(delivery, () => {
        if (isCalled) throw new Error('a middleware called next() twice');
        isCalled = true;
        return step(at + 1);
      }),
    );
  };
  return step(0);
}
