/**
 * owner-queue — which main queue a message belongs to, and the copy of it that goes there.
 */

import type { AmqpMessage, Outgoing, Table } from '../connection/amqp.ts';
import { H, type Past, respoolWire, type HistoryWire } from '../consume/message-history.ts';
import type { QueuePlan, QueueRole, Route } from '../topology/model.ts';

/** What is known of a queue that messages are taken from. */
export interface QueuePlace {
  readonly queue: string;
  readonly role: QueueRole | undefined;
  /** The main queues that it serves. */
  readonly of: readonly string[];
}

/** The role of a queue in the plans; undefined if none of them has it. */
export function queuePlaceOf(queue: string, plans: readonly QueuePlan[]): QueuePlace {
  const owners = plans.filter((plan) => plan.topology.queues.some((one) => one.name === queue));
  // A dead queue of another system may be named by the road only.
  const byRoad = plans.filter((plan) => isStraight(plan.dead, queue));
  const all = owners.length > 0 ? owners : byRoad;
  const spec = owners[0]?.topology.queues.find((one) => one.name === queue);
  const role = spec?.role ?? (byRoad.length > 0 ? 'dead' : undefined);
  return { queue, role, of: all.map((plan) => plan.queue) };
}

/** The main queue of a message; undefined: unknown, or none of these. */
export function ownerQueueOf(
  message: AmqpMessage,
  { queue, role, of }: QueuePlace,
): string | undefined {
  const [only, ...more] = of;
  const sure = sureOwner(message);
  if (only === undefined) {
    const said = sure ?? likelyOwner(message);
    return said === queue ? undefined : said;
  }
  const isAlone = more.length === 0;
  if (isAlone && (role === 'dead' || role === 'parked')) return only;
  // n.b. Queues of others may share a wait queue: what names one of them is not ours to move.
  if (sure !== undefined) return of.includes(sure) ? sure : undefined;
  if (isAlone) return only;
  return [likelyOwner(message), message.fields.routingKey].find(
    (said) => said !== undefined && of.includes(said),
  );
}

/** The main queue that our headers name. */
export function sureOwner({ properties }: AmqpMessage): string | undefined {
  const { 'return-to': back, [H.queue]: queue } = properties.headers ?? {};
  return nameOr(back) ?? nameOr(queue);
}

/** The queue in which the broker first gave it up. */
export function likelyOwner({ properties }: AmqpMessage): string | undefined {
  return nameOr(properties.headers?.['x-first-death-queue']);
}

function nameOr(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** What changes in the copy. */
export interface CopyChange {
  readonly to: Route;
  /** The main queue that it belongs to. */
  readonly owner: string;
  /** The main queue that it belonged to, by which its past is read; default: the same. */
  readonly from?: string;
  /** The id that it gets where it has none. */
  readonly id: string;
  readonly past?: Partial<Past>;
  /** Its history, if it was read already. */
  readonly read?: Past | undefined;
  /** It stays dead or parked: why is kept. */
  readonly keepsEnding?: boolean;
  readonly wire?: HistoryWire | undefined;
}

/**
 * The copy of a message, with its past and without what the broker would act upon: a copied
 * `x-death` makes some releases drop it, a per-message TTL ends its wait early.
 */
export function changedCopy(message: AmqpMessage, change: CopyChange): Outgoing {
  const { to, owner, wire = respoolWire } = change;
  const read = change.read ?? wire.read(message, change.from ?? owner);
  const past = { ...read, ...change.past };
  const properties = wire.write(message, {
    past,
    queue: owner,
    id: change.id,
    routing: to.headers,
  });
  const ending = change.keepsEnding === true ? endingOf(message.properties.headers) : {};
  return {
    exchange: to.exchange,
    key: to.key,
    content: message.content,
    properties: { ...properties, headers: { ...properties.headers, ...ending } },
  };
}

/**
 * A message out of a wait queue, without its TTL. Level queues of GoQueue have none of their own:
 * there it is the wait of the message, and would be taken for the time after which nobody wants it.
 */
export function outOfWait(message: AmqpMessage): AmqpMessage {
  const { expiration: _, ...properties } = message.properties;
  return { ...message, properties };
}

const ENDING = [H.ended, H.endedCode, H.endedReason, H.endedAt, H.endedBy];

function endingOf(headers: Table | undefined): Table {
  const said = ENDING.filter((name) => headers?.[name] !== undefined);
  return Object.fromEntries(said.map((name) => [name, headers?.[name]]));
}

function isStraight({ exchange, key }: Route, queue: string): boolean {
  return exchange === '' && key === queue;
}
