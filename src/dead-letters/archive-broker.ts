/**
 * archive-broker — a kept copy says at which broker its queue is: names of queues are not unique.
 */

import { BROKER_HEADER } from '../core/reserved-headers.ts';
import type { KeptCopy } from '../ports/dead-letters.ts';
import type { ReplaySource } from '../spool/operator/replays.ts';

/** The copy with the address of its broker, which has neither user nor password in it. */
export function withBrokerHeader(copy: KeptCopy, source: ReplaySource): KeptCopy {
  if (source.kind === 'spool') return copy;
  return { ...copy, headers: { ...copy.headers, [BROKER_HEADER]: source.broker } };
}
