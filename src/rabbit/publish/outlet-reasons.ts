/** outlet-reasons — what the broker means by closing a channel, or by not confirming. */

import { textOf } from '../../core/errors.ts';

/** What to do about an exchange that we may not write to. */
export function forbiddenText(exchange: string): string {
  // The broker's own name for the exchange by which queues are reached by their names.
  const name = exchange === '' ? 'amq.default' : exchange;
  return (
    `the user needs the permission "write" on the exchange "${name}"; add the name to that ` +
    'pattern: rabbitmqctl set_permissions'
  );
}

/** n.b. amqplib tells a nack from a lost channel by its text only. */
export function isNack(error: unknown): boolean {
  return textOf(error) === 'message nacked';
}

/** Whether a channel was closed before it was used. */
export function isClosedError(error: unknown): boolean {
  return error instanceof Error && error.name === 'IllegalOperationError';
}

/** Why no message can go to an exchange, if that is what closed the channel. */
export function noRoad(reason: Error | undefined, exchange: string): string | undefined {
  if (reason === undefined) return undefined;
  if (forbiddenIn(reason) === exchange) return forbiddenText(exchange);
  const isMissing =
    Reflect.get(reason, 'code') === 404 && reason.message.includes(`no exchange '${exchange}'`);
  return isMissing ? 'there is no such exchange; declare it' : undefined;
}

/** The exchange that a refusal names. */
export function forbiddenIn(reason: Error | undefined): string | undefined {
  if (reason === undefined || Reflect.get(reason, 'code') !== 403) return undefined;
  const name = /access to exchange '(.*?)' in/s.exec(reason.message)?.[1];
  return name === 'amq.default' ? '' : name;
}

/** Why a body of this size ended the channel, if that is what closed it. */
export function tooLargeIn(reason: Error | undefined, bytes: number): string | undefined {
  if (reason === undefined || Reflect.get(reason, 'code') !== 406) return undefined;
  const [, size, max] =
    /message size (\d+) is larger than .*max size (\d+)/.exec(reason.message) ?? [];
  if (Number(size) !== bytes) return undefined;
  return `the body has ${size} bytes, and the broker takes at most ${max} (max_message_size)`;
}
