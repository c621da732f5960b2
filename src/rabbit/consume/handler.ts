/** handler — a user's handler as the engine calls it: a delivery with more to it. */

import { textOf } from '../../core/errors.ts';
import { PermanentError } from '../../core/failure.ts';
import type { Outcome } from '../../core/outcome.ts';
import type { Delivery, Handler } from '../../ports/handler.ts';
import type { StandardSchema } from '../../ports/schema.ts';
import type { RabbitEnvelope } from './claim.ts';
import type { Decode } from '../publish/codecs.ts';
import { RabbitDelivery } from './delivery.ts';

/** A handler of messages of a queue. */
export type RabbitHandler<Body = unknown> = (
  delivery: RabbitDelivery<Body>,
) => Outcome | void | Promise<Outcome | void>;

/** The handler as the engine calls it; its own word counts as soon as it is said. */
export function handlerOf(
  handler: RabbitHandler,
  schema: StandardSchema | undefined,
  decode: Decode,
): Handler {
  return async (delivery: Delivery) => {
    const rabbit = new RabbitDelivery(delivery, decode);
    const { misfit } = delivery.envelope as RabbitEnvelope;
    if (misfit !== undefined) throw new PermanentError('body.invalid', textOf(misfit));
    try {
      if (schema !== undefined) await fit(rabbit, schema);
      const working = handler(rabbit);
      if (!(working instanceof Promise)) return rabbit.decision ?? working;
      // A decision is carried out at once: a timeout or a stop afterwards must not change it.
      const outcome = await Promise.race([working, rabbit.decided()]);
      if (rabbit.decision !== undefined) working.catch(() => undefined);
      return rabbit.decision ?? outcome;
    } catch (error) {
      if (rabbit.decision !== undefined) return rabbit.decision;
      throw isBodyInvalid(error) ? new PermanentError('body.invalid', textOf(error)) : error;
    }
  };
}

async function fit(delivery: RabbitDelivery, schema: StandardSchema): Promise<void> {
  const result = await schema['~standard'].validate(await delivery.value());
  if (result.issues !== undefined) {
    const said = result.issues.slice(0, 5).map((issue) => issue.message);
    const text = `the body of message "${delivery.id}" does not fit its schema: ${said.join('; ')}`;
    throw new PermanentError('body.invalid', text);
  }
  delivery.fitted = result.value;
}

/** A body that is not what the handler needs will not be so next time either. */
function isBodyInvalid(error: unknown): boolean {
  try {
    return (error as { code?: unknown } | null)?.code === 'body.invalid';
  } catch {
    return false;
  }
}
