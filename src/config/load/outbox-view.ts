/**
 * outbox-view — how the target of a relay is shown. Apart from outbox.ts, which is loaded only for
 * configurations that have an outbox.
 */

import { shownUrl } from '../../rabbit/connection/client.ts';
import type { EffectiveTarget } from './outbox.ts';
import { describeHandler } from './routes.ts';

/** Where a relay sends to, as it may be shown. */
export function describeTarget(to: EffectiveTarget): Readonly<Record<string, unknown>> {
  if (to.kind === 'amqp') return { amqp: shownUrl(to.url), exchange: to.exchange };
  if (to.kind === 'spool') return { spool: true };
  return to.kind === 'sink' ? { sink: to.sink.name } : describeHandler(to.deliver);
}
