/** setup — what the tests of middleware share: deliveries without an engine, and what is refused. */
import { type Delivery, delivered, isRespoolError, type Middleware, type Outcome } from 'respool';

/** A delivery as far as a middleware looks at it. */
function makeDelivery(of: Partial<Delivery> & { destination?: string } = {}): Delivery {
  const { destination, ...rest } = of;
  const topic = of.topic ?? 'a';
  const envelope = {
    id: 'm1',
    topic,
    headers: {},
    ...(destination === undefined ? {} : { destination }),
  };
  return {
    id: 'm1',
    topic,
    envelope,
    headers: {},
    lane: 'delivery',
    attempt: 1,
    fence: 'm1/1',
    notes: {},
    signal: new AbortController().signal,
    note: () => undefined,
    ...rest,
  } as unknown as Delivery;
}

/** Runs a middleware around a handler that delivers, or does this. */
export function pass(
  middleware: Middleware,
  delivery: Partial<Delivery> & { destination?: string } = {},
  next: () => Promise<Outcome> = async () => delivered(),
): Promise<Outcome> {
  return middleware(makeDelivery(delivery), next);
}

/** The text of the `config.invalid` that this is refused with. */
export function refusal(make: () => unknown): string {
  try {
    make();
  } catch (error) {
    if (isRespoolError(error, 'config.invalid')) return error.message;
    throw error;
  }
  throw new Error('it was expected to be refused, and was not');
}
