/** patience — a goodbye that the other side may never answer. */

import type { Clock } from '../ports/clock.ts';
import type { AmqpChannel } from './amqp.ts';

/** How long a broker may take to say goodbye. */
export const GOODBYE_MS = 3_000;

/** Waits for the work, whatever becomes of it, but no longer than so; false: it took longer. */
export function atMost(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = clock.after(ms, () => resolve(false));
    const done = (): void => {
      cancel();
      resolve(true);
    };
    work.then(done, done);
  });
}

/**
 * Closes a channel. n.b. The promise of amqplib never settles when the connection ends before the
 * broker's answer; the channel itself tells.
 */
export function closeChannel(channel: AmqpChannel): Promise<void> {
  return new Promise((resolve) => {
    channel.on('close', () => resolve());
    try {
      channel.close().then(resolve, () => resolve());
    } catch {
      // It is closed already.
      resolve();
    }
  });
}
