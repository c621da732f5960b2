/**
 * drain — puts what lies in a wait, dead, parked or unrouted queue back to work, or elsewhere.
 *
 * Promise: confirmed there before it is acked here; killed at any point, nothing is lost.
 */

import { RespoolError, show } from '../../core/errors.ts';
import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import { systemClock, systemDice } from '../../system/clock.ts';
import { createIdMaker } from '../../system/ids.ts';
import type { AmqpMessage } from '../connection/amqp.ts';
import { connectionOf } from '../connection/connection.ts';
import { ConfirmPublisher } from '../publish/confirm-publisher.ts';
import type { Route } from '../topology/model.ts';
import {
  changedCopy,
  outOfWait,
  ownerQueueOf,
  type QueuePlace,
  queuePlaceOf,
} from '../admin/owner-queue.ts';
import { type MoveErrand, moveMessages, WINDOW_DEFAULT, WINDOW_MAX } from './move.ts';
import type { DrainOptions, DrainReport } from '../admin/reports.ts';

const NAMES = [
  'connection',
  'queue',
  'plans',
  'to',
  'confirm',
  'max',
  'match',
  'window',
  'attempts',
  'wire',
  'onProgress',
  'signal',
  'clock',
];

/** Empties a queue by as many messages as it had at the beginning. */
export async function drainQueue(options: DrainOptions): Promise<DrainReport> {
  checkDrain(options);
  const { queue, plans = [], max, window = WINDOW_DEFAULT, onProgress, signal } = options;
  const { clock = systemClock } = options;
  const place = queuePlaceOf(queue, plans);
  const given = { connection: options.connection, clock };
  const { connection, isOwned } = connectionOf(given, 'a drain');
  const outlet = new ConfirmPublisher(connection.publishing, clock, { windowMax: window });
  const makeId = createIdMaker(systemDice);
  const decide = (message: AmqpMessage): MoveErrand =>
    errandOf(message, { ...options, place, id: makeId(clock.now()) });
  try {
    return await moveMessages(
      { queue, decide, max, window, onProgress, signal },
      { connection: await connection.consuming.tryConnect(), outlet, clock },
    );
  } finally {
    await outlet.close();
    // n.b. Our links over a connection that was passed in: that one stays open.
    if (isOwned) await connection.close();
  }
}

function errandOf(
  message: AmqpMessage,
  options: DrainOptions & { readonly place: QueuePlace; readonly id: string },
): MoveErrand {
  const { match, to, wire, place, id } = options;
  if (match !== undefined && !match(message)) return 'skip';
  if (to === 'discard') return 'discard';
  const owner = ownerQueueOf(message, place);
  const road = roadOf(to, message, owner);
  if (road === undefined) return 'homeless';
  const past = isFresh(place, options) ? { attempts: 0, lost: 0, restMs: 0 } : { restMs: 0 };
  const taken = place.role === 'wait' ? outOfWait(message) : message;
  return changedCopy(taken, { to: road, owner: owner ?? place.queue, id, past, wire });
}

function roadOf(
  to: DrainOptions['to'],
  message: AmqpMessage,
  owner: string | undefined,
): Route | undefined {
  if (typeof to === 'function') return to(message);
  if (to !== undefined && to !== 'discard') return to;
  return owner === undefined ? undefined : { exchange: '', key: owner };
}

function isFresh({ role }: QueuePlace, { attempts }: DrainOptions): boolean {
  return attempts === undefined ? role === 'dead' || role === 'parked' : attempts === 'fresh';
}

/** Refuses what could not be drained, before anybody is asked or anything is taken. */
export function checkDrain(options: DrainOptions): void {
  checkNames('drainQueue', options, NAMES);
  const { queue, plans = [], to, confirm, max, window, attempts } = options;
  if (max !== undefined) checkNumber('max', max, { min: 1, max: Number.MAX_SAFE_INTEGER });
  if (window !== undefined) checkNumber('window', window, { min: 1, max: WINDOW_MAX });
  if (attempts !== undefined) checkOneOf('attempts', attempts, ['fresh', 'keep']);
  if (to === 'discard' && confirm !== queue) {
    throw new RespoolError(
      'config.invalid',
      `cannot discard the messages of the queue ${show(queue)}: "confirm" is ${show(confirm)}; ` +
        'give the name of the queue there to say that they may be permanently removed',
    );
  }
  if (to === undefined) checkHome(queuePlaceOf(queue, plans), plans.length > 0);
  const isLoop = typeof to === 'object' && to.exchange === '' && to.key === queue;
  if (isLoop) {
    throw new RespoolError(
      'config.invalid',
      `cannot drain the queue ${show(queue)} into itself; give another "to"`,
    );
  }
}

function checkHome({ queue, role }: QueuePlace, hasPlans: boolean): void {
  if (role === 'main') {
    throw new RespoolError(
      'config.invalid',
      `cannot drain the main queue ${show(queue)} into itself; say where to with "to"`,
    );
  }
  if (role !== undefined || !hasPlans) return;
  throw new RespoolError(
    'config.invalid',
    `cannot drain the queue ${show(queue)}: it belongs to none of the topologies that were ` +
      'given; check its name, or say where to with "to"',
  );
}
