/**
 * pausing — an operator pauses topics, or ends a pause: audited, durable, and told to the engine.
 */

import { checkTopicPattern } from '../core/limits.ts';
import { printable } from '../core/printable.ts';
import { audit } from './actions.ts';
import type { Runtime } from './runtime.ts';

/** Does it; resolves when every process that looks will obey. */
export async function pausing(
  runtime: Runtime,
  action: 'pause' | 'resume',
  topic: string,
  by: string,
): Promise<void> {
  const pattern = checkTopicPattern(topic);
  await runtime.ready();
  await audit(runtime, { by, action, ids: [], details: { topic: pattern } });
  const at = runtime.source.now();
  if (action === 'pause') await runtime.pauses.pause(pattern, printable(by), at);
  else await runtime.pauses.resume(pattern);
  runtime.events.emit({ at, kind: action === 'pause' ? 'paused' : 'resumed', topic: pattern });
  runtime.engine.poke();
  runtime.source.alarm();
}
