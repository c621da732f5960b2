/** letters-options — what the dead letters of a queue are told at the beginning. */

import { checkNames, checkNumber, checkOneOf } from '../../core/limits.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Caution } from '../../ports/dead-letters.ts';
import type { Management } from '../admin/management/index.ts';
import type { AnyConnection } from '../admin/reports.ts';
import type { QueuePlan } from '../topology/model.ts';
import { checkName } from '../topology/names.ts';
import type { Wire } from '../consume/wire.ts';

/** Which queue, and what is known of it. */
export interface QueueLettersOptions {
  /** Either this or `url`. One that was passed in is not closed. */
  readonly connection?: AnyConnection;
  readonly url?: string | readonly string[];
  /** Tells what looking costs; without it quorum queues are refused unless `isTrusted`. */
  readonly management?: Management | undefined;
  readonly queue: string;
  /** Default: by its role in `plans`, else `parked` where the name ends so, else `dead`. */
  readonly kind?: 'dead' | 'parked';
  /** Tell which queues its messages belong to, and where they are parked. */
  readonly plans?: readonly QueuePlan[];
  /** How the past of messages is written; default: our own headers. */
  readonly wire?: Wire;
  /**
   * Where messages are parked; default: the parked queue of the plan, else the name with `.dlq`
   * turned into `.parked`. Declared as a durable quorum queue where it is not there.
   */
  readonly parkedQueue?: string;
  /** Looks also where nobody can tell what the broker does after many looks; default: false. */
  readonly isTrusted?: boolean;
  /** A look goes through so many at the most, unless it says so itself; default 100,000. */
  readonly lookMax?: number;
  readonly clock?: Clock;
  /** Told once, before the first look, where looking is not free. */
  readonly onCaution?: (caution: Exclude<Caution, { kind: 'free' }>) => void;
}

const NAMES = [
  'connection',
  'url',
  'management',
  'queue',
  'kind',
  'plans',
  'wire',
  'parkedQueue',
  'isTrusted',
  'lookMax',
  'clock',
  'onCaution',
];

/** Refuses what could not be. */
export function checkLettersOptions(options: QueueLettersOptions): void {
  checkNames('createQueueLetters', options, NAMES);
  const { queue, kind, parkedQueue, lookMax } = options;
  checkName('queue', queue);
  if (kind !== undefined) checkOneOf('kind', kind, ['dead', 'parked']);
  if (parkedQueue !== undefined) checkName('parkedQueue', parkedQueue);
  if (lookMax !== undefined) checkNumber('lookMax', lookMax, { min: 1, max: 1_000_000 });
}
