/**
 * generated-id — ids for messages of others that came without one. Each copy of such a message gets
 * another, so nobody can tell by it that a message came twice; a header says so, and goes with the
 * message through its retries.
 */

import type { AmqpMessage } from '../connection/amqp.ts';

const HEADER = 'respool-made-up-id';

/** An id for this copy of a message; the message is marked. */
export function generatedId({ properties }: AmqpMessage, makeId: () => string): string {
  const id = makeId();
  Object.assign(properties, { headers: { ...properties.headers, [HEADER]: id } });
  return id;
}

/** Whether the id of a delivery was made up here; never of one that is not from a queue. */
export function hasGeneratedId(delivery: {
  readonly id: string;
  readonly envelope: object;
}): boolean {
  const { message } = delivery.envelope as { readonly message?: AmqpMessage };
  return message?.properties?.headers?.[HEADER] === delivery.id;
}
