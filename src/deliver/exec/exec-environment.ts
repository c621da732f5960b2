/**
 * exec-environment — what a command knows about its message, as environment variables.
 *
 * Promise: nothing of a message gets a name outside RESPOOL_, so that no header can be taken for
 * PATH or LD_PRELOAD; and nothing of ours is passed on that is not named.
 */

import type { Delivery } from '../../ports/handler.ts';
import type { ExecSettings } from './options.ts';

/** The whole environment of the command. */
export function environmentOf(
  delivery: Delivery,
  { inherit, env }: ExecSettings,
  ours: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const inherited = inherit.flatMap((name) => {
    const value = Object.hasOwn(ours, name) ? ours[name] : undefined;
    return value === undefined ? [] : [[name, value] as const];
  });
  return {
    ...Object.fromEntries(inherited),
    ...env,
    ...headerVariables(delivery),
    ...envelopeVariables(delivery),
  };
}

function envelopeVariables(delivery: Delivery): Record<string, string> {
  const { envelope, lastFailure } = delivery;
  return {
    RESPOOL_ID: delivery.id,
    RESPOOL_TOPIC: delivery.topic,
    RESPOOL_ATTEMPT: String(delivery.attempt),
    RESPOOL_LANE: delivery.lane,
    RESPOOL_ENQUEUED_AT: new Date(envelope.enqueuedAt).toISOString(),
    RESPOOL_BODY_SIZE: String(envelope.body.size),
    ...(envelope.destination === undefined ? {} : { RESPOOL_DESTINATION: envelope.destination }),
    ...(lastFailure === undefined
      ? {}
      : { RESPOOL_LAST_CODE: lastFailure.code, RESPOOL_LAST_REASON: lastFailure.reason }),
  };
}

/** `content-type` → `RESPOOL_HEADER_CONTENT_TYPE`; of two that become one, the first by name. */
function headerVariables({ headers: own, trace }: Delivery): Record<string, string> {
  const headers = { ...own, ...trace };
  const variables: Record<string, string> = {};
  for (const name of Object.keys(headers).sort()) {
    const value = headers[name];
    const variable = `RESPOOL_HEADER_${name.toUpperCase().replaceAll(/[^A-Z0-9_]/g, '_')}`;
    // A variable cannot carry NUL; messages of ours have none.
    if (value === undefined || value.includes('\0') || Object.hasOwn(variables, variable)) continue;
    variables[variable] = value;
  }
  return variables;
}
