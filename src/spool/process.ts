/** process — one message, now, with a handler of the moment; outside the engine's own round. */

import { RespoolError } from '../core/errors.ts';
import { isSealed, SEAL_MISSING } from '../core/reserved-headers.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Handler } from '../ports/handler.ts';
import { act, audit, isKnown, throwUnlessDone } from './actions.ts';
import { SpoolClaim } from './source.ts';
import { routeOf } from './handle.ts';
import { whyNotGiven } from './order-keys.ts';
import type { Runtime } from './runtime.ts';

/** Claims the message by its id, runs the handler once and settles the verdict. */
export async function processOne(
  runtime: Runtime,
  id: string,
  handler: Handler,
  by: string,
): Promise<Verdict> {
  const { entries, source, engine, settings } = runtime;
  const entry = await isKnown(runtime, id);
  if (isSealed(entry)) {
    const text = `cannot process message "${id}": ${SEAL_MISSING.text}`;
    throw new RespoolError('transform.missing', text);
  }
  await audit(runtime, { by, action: 'process', ids: [id] });
  const { state, dueAt } = entry.status;
  // n.b. What is incoming is not due where the clock was set back since.
  const now = state === 'incoming' ? source.now() : source.earliest();
  const isReady = (state === 'incoming' || state === 'deferred') && dueAt !== null && dueAt <= now;
  if (!isReady) {
    // The engine is not told that it is due: it would be there first.
    const quiet = {
      now: () => source.now(),
      noteDue: () => undefined,
      alarm: () => undefined,
    };
    const { reaper, events, retention } = runtime;
    const announces = (topic: string): boolean => runtime.announces(topic);
    const parts = { entries, reaper, events, retention, announces, source: quiet };
    throwUnlessDone((await act(parts, [id], { kind: 'retry' }, by))[0]);
  }
  const route = routeOf('delivery', entry.envelope.topic, handler, {}, settings);
  const verdict = await engine.runOne(async () => {
    const claimedAt = source.now();
    const [claimed] = await entries.claim({
      lane: 'delivery',
      states: ['incoming', 'deferred'],
      ids: [id],
      max: 1,
      now: claimedAt,
      leaseMs: source.leaseFrom(claimedAt),
      holder: source.holder(),
    });
    return claimed === undefined ? undefined : new SpoolClaim(claimed);
  }, route);
  if (verdict !== undefined) return verdict;
  const why = await whyNotGiven(entries, id);
  throw new RespoolError('move.refused', `cannot process message "${id}": ${why}`);
}
