/** swept — the copy of a message that goes to the queue for what is given up. Pure. */

import type { AmqpMessage, Outgoing } from '../connection/amqp.ts';
import { H } from '../consume/message-history.ts';
import { copyOf, likelyOwner, sureOwner } from '../admin/owner-queue.ts';
import { digestOf } from './letter.ts';
import { deathsTold } from './x-death.ts';

/** Where from, where to, and why. */
export interface SweptTo {
  readonly queue: string;
  readonly target: string;
  readonly deaths: number;
  readonly now: number;
}

/**
 * The message with its past and how it ended, persistent, without what the broker would act upon
 * in its new place: neither a time to live nor a user id.
 */
export function sweptCopy(message: AmqpMessage, { queue, target, deaths, now }: SweptTo): Outgoing {
  const headers = message.properties.headers ?? {};
  const owner = [sureOwner(message), likelyOwner(message)].find(
    (said) => said !== undefined && said !== queue,
  );
  const copy = copyOf(message, {
    to: { exchange: '', key: target },
    owner: owner ?? queue,
    id: message.properties.messageId ?? digestOf(message),
    keepsEnding: true,
  });
  const { properties } = copy;
  // What nobody knows is not said: a replay would take the dead queue for its home.
  const home = headers[H.routingKey] === undefined ? beginningOf(message, queue) : {};
  return {
    ...copy,
    properties: {
      ...properties,
      headers: {
        ...properties.headers,
        ...home,
        [H.queue]: owner,
        [H.sweptFrom]: queue,
        [H.sweptAt]: now,
        [H.sweptDeaths]: deaths,
      },
    },
  };
}

/** n.b. The delivery itself tells only how it came into the dead queue; its oldest death, more. */
function beginningOf({ properties }: AmqpMessage, queue: string): Record<string, unknown> {
  const oldest = deathsTold(properties.headers ?? {})
    .filter((death) => death.queue !== queue)
    .at(-1);
  return { [H.exchange]: oldest?.exchange, [H.routingKey]: oldest?.keys[0] };
}
