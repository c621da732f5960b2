/**
 * other-consumers — whether other clients hold messages of a queue. Such messages cannot be seen:
 * they are neither delivered to us nor gone.
 *
 * The broker reports consumers at once. Messages that are held without a consumer are shown by the
 * management API only, up to 5 s late; until then it may still count what we held ourselves.
 */

import type { Clock } from '../../ports/clock.ts';
import { sleep } from '../../system/wait.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import type { Management } from '../admin/management/index.ts';
import { passiveQueues } from '../admin/inspect-broker.ts';

/** What the management API tells is no older than this, with some room. */
const TOLD_LATE_MS = 6_000;
const TOLD_WITHIN_MS: number = 2 * TOLD_LATE_MS;
const ASK_EVERY_MS = 500;

interface AloneParts {
  readonly queue: string;
  readonly connection: AmqpConnection;
  readonly management: Management | undefined;
  readonly clock: Clock;
}

/** Asked when we hold nothing ourselves. */
export async function hasNoOtherConsumer({
  queue,
  connection,
  management,
  clock,
}: AloneParts): Promise<boolean> {
  const found = (await passiveQueues(connection, [queue])).get(queue);
  const state = found !== undefined && 'found' in found ? found.found : undefined;
  if (state === undefined || state.consumerCount > 0) return false;
  if (management === undefined) return true;
  const deadline = clock.monotonic() + TOLD_WITHIN_MS;
  await sleep(clock, TOLD_LATE_MS);
  for (;;) {
    management.forget();
    const told = await management.queue(queue);
    if ((told?.unacked ?? 0) === 0) return told !== undefined;
    if (clock.monotonic() >= deadline) return false;
    await sleep(clock, ASK_EVERY_MS);
  }
}
