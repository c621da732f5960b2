/** outbox-ours — our side of the outbox bench: emit, relay, listen. */

import { Pool } from 'pg';
import { createOutbox, listen } from 'respool/outbox';
import {
  bodyOf,
  type ConsumerOrder,
  now,
  type Place,
  type RelayOrder,
  ROUTING_KEY,
  type Writer,
} from './outbox-words.ts';

/** Emits many in one transaction, over one connection. */
export async function ourWriter({ url, schema }: Place, bodyBytes: number): Promise<Writer> {
  const pool = new Pool({ connectionString: url });
  const outbox = createOutbox({ pool, schema });
  await outbox.migrate();
  const body = bodyOf(bodyBytes);
  return {
    async write(count) {
      const messages = Array.from({ length: count }, () => ({ routingKey: ROUTING_KEY, body }));
      let at = 0;
      const emitted = await outbox.transaction(async (tx) => {
        const answers = await outbox.emitMany(tx, messages);
        at = now();
        return answers;
      });
      return { ids: emitted.map(({ id }) => id), at };
    },
    async close() {
      await outbox.close();
      await pool.end();
    },
  };
}

/** Relays until it is stopped. */
export async function ourRelay(order: RelayOrder): Promise<() => Promise<void>> {
  const { url, schema, amqp, exchange, batch, inFlight } = order;
  const outbox = createOutbox({ url, schema, listenUrl: url });
  const relay = outbox.relay({ to: { amqp, exchange }, batch, concurrency: inFlight });
  await relay.start();
  return async () => {
    await relay.stop();
    await outbox.close();
  };
}

/** Tells of every message; resolves when it listens. */
export async function ourConsumer(
  { amqp, exchange, queue, prefetch }: ConsumerOrder,
  saw: (id: string) => void,
): Promise<() => Promise<void>> {
  const listener = listen(
    ROUTING_KEY,
    { url: amqp, exchange, queue, retryDelays: [], prefetch, concurrency: prefetch },
    ({ id }) => saw(id),
  );
  await listener.start();
  return () => listener.stop();
}
