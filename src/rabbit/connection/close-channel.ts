/** close-channel — closing what the other side may never answer to. */

import type { AmqpChannel } from './amqp.ts';

/** How long a broker may take to answer a close. */
export const CLOSE_TIMEOUT_MS = 3_000;

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
