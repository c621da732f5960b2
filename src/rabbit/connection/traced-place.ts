/** traced-place — how spans name an exchange and a queue, by the conventions for RabbitMQ. */

import type { Claim } from '../../ports/source.ts';
import type { TracedPlace } from '../../ports/tracer.ts';
import type { RabbitClaim } from '../consume/delivery.ts';

/** Where a message is published to. */
export function exchangePlace(
  exchange: string,
  routingKey: string,
  correlationId?: string,
): TracedPlace {
  const named = [exchange, routingKey].filter((name) => name !== '').join(':');
  // n.b. The conventions call the exchange without a name so.
  const destination = named === '' ? 'amq.default' : named;
  return { system: 'rabbitmq', destination, routingKey, ...conversation(correlationId) };
}

/** Where a message comes from. */
export function queuePlace(claim: Claim): TracedPlace {
  const { envelope, past, message } = claim as RabbitClaim;
  return {
    system: 'rabbitmq',
    destination: envelope.queue,
    routingKey: past.routingKey,
    ...conversation(message.properties.correlationId),
  };
}

function conversation(id: unknown): Pick<TracedPlace, 'conversationId'> {
  return typeof id === 'string' ? { conversationId: id } : {};
}
