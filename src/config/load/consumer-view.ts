/**
 * consumer-view — what is known of consumers before they are checked, and how they are shown. Apart
 * from consumers.ts, which loads half of the room of RabbitMQ: most configurations have none.
 */

import { isPlainObject } from '../../core/limits.ts';
import { shownUrl } from '../../rabbit/connection/connection.ts';
import type { UserBinding } from '../../rabbit/topology/model.ts';
import { CONSUMER_KEYS } from '../schema/items.ts';
import type { EffectiveConsumer } from './consumers.ts';

/** Keys that a consumer may leave to their defaults, for callers that report defaults. */
export const CONSUMER_DEFAULTS: readonly string[] = Object.keys(CONSUMER_KEYS).filter(
  (name) => name !== 'url' && CONSUMER_KEYS[name]?.required !== true,
);

/** Consumers without their bindings, whose `key` is no secret, for the search for secrets. */
export function withoutRoutingKeys(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  return value.map((one: unknown) => (isPlainObject(one) ? { ...one, bindings: undefined } : one));
}

/** A binding in a few words. */
export function bindingText({ exchange, key = '#', type = 'topic' }: UserBinding): string {
  return `${exchange} ${key}${type === false ? '' : ` (${type})`}`;
}

/** The broker of a consumer, as it may be shown. */
export function brokerOf({ url }: Pick<EffectiveConsumer, 'url'>): string {
  return shownUrl(url);
}
