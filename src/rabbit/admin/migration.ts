/**
 * migration — what the steps of a migration share: whom they ask, and what they tell.
 */

import { formatDuration } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import type { AmqpConnection } from '../connection/amqp.ts';
import type { LeavingQueue, Move } from './old-topology.ts';
import type { MigrateOptions, MigrateStep } from './reports.ts';

/** What a migration works with, and what it has to tell. */
export interface Migration {
  readonly options: MigrateOptions;
  readonly move: Move;
  readonly connection: AmqpConnection;
  readonly clock: Clock;
  readonly steps: MigrateStep[];
  readonly todo: string[];
}

/** Roads between the old queues: they are needed until nothing can come back any more. */
export function isInner(exchange: string, { exchanges, leaving }: Move): boolean {
  return (
    exchange === '' ||
    exchanges.includes(exchange) ||
    leaving.some(({ deadLetters }) => deadLetters === exchange)
  );
}

export const NEEDS_MANAGEMENT: string =
  'give the management API: without it nobody sees which messages are still being dead-lettered ' +
  'and what is bound, so no old queue is removed';

export function runOut({ waitMs }: LeavingQueue): string {
  const when = waitMs === undefined ? 'when it is empty' : `in ${formatDuration(waitMs)}`;
  return `left to run out: run again ${when}`;
}

export function step(
  kind: MigrateStep['kind'],
  name: string,
  messages: number,
  text: string,
): MigrateStep {
  return { kind, name, messages, text };
}
