/** options — what `createQueueLetters` takes, checked, with its defaults. */

import { CLOCK_OPTION, type Option, readOptions } from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Caution } from '../../ports/dead-letters.ts';
import { type AnyConnection, BROKER_OPTIONS } from '../connection/connection.ts';
import type { Management } from '../management/management.ts';
import type { HistoryWire } from '../message-history.ts';
import { checkName, type QueuePlan } from '../topology/model.ts';

const LETTERS = {
  connection: {
    ...BROKER_OPTIONS.connection,
    ts: 'AnyConnection',
    about: 'either this or `url`; it is left open',
  },
  url: { ...BROKER_OPTIONS.url, about: 'the broker; of a list one that answers' },
  management: {
    kind: 'code',
    type: 'the result of `createManagement`',
    ts: 'Management | undefined',
    about:
      'reports [what looking costs](../guarantees.md#what-looking-costs); without it quorum ' +
      'queues are refused unless `isTrusted`',
  },
  queue: { kind: 'text', type: 'a name', required: true, about: 'the queue' },
  kind: {
    kind: 'choice',
    choices: ['dead', 'parked'],
    defaultText:
      'by its role in `plans`; else `parked` if its name ends with `.parked`, else `dead`',
    about: 'what its letters are',
  },
  plans: {
    kind: 'code',
    type: 'a list of `consumer.plan`',
    ts: 'readonly QueuePlan[]',
    about: 'which main queues its messages belong to, and where they are parked',
  },
  wire: {
    kind: 'code',
    type: 'of a `compat`',
    ts: 'HistoryWire',
    defaultText: "Respool's headers",
    about: 'how the past of messages is written',
  },
  parkedQueue: {
    kind: 'text',
    type: 'a name',
    defaultText: 'that of the plan; else the name with `.dlq` replaced by `.parked`',
    about: 'where messages are parked; declared as a durable quorum queue if it is missing',
  },
  isTrusted: {
    kind: 'boolean',
    default: false,
    about: 'looks even if the delivery limit is unknown',
  },
  lookMax: {
    kind: 'number',
    min: 1,
    max: 1_000_000,
    default: 100_000,
    about:
      'the maximum that a look goes through, unless the look sets its own; see [limits](#limits)',
  },
  clock: CLOCK_OPTION,
  onCaution: {
    kind: 'code',
    type: 'a function',
    ts: "(caution: Exclude<Caution, { kind: 'free' }>) => void",
    about: 'called once, before the first look that is not free',
  },
} as const;

/** The options of the dead letters of a queue. */
export const LETTERS_OPTIONS: Readonly<Record<keyof QueueLettersOptions, Option>> = LETTERS;

/** Which queue, and what is known of it. */
export interface QueueLettersOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Either this or `url`; it is left open. */
  readonly connection?: AnyConnection;
  /** The broker; of a list one that answers. */
  readonly url?: string | readonly string[];
  /** Reports what looking costs; without it quorum queues are refused unless `isTrusted`. */
  readonly management?: Management | undefined;
  /** The queue. */
  readonly queue: string;
  /**
   * What its letters are. Default by its role in `plans`; else `parked` if its name ends with
   * `.parked`, else `dead`.
   */
  readonly kind?: 'dead' | 'parked';
  /** Which main queues its messages belong to, and where they are parked. */
  readonly plans?: readonly QueuePlan[];
  /** How the past of messages is written. Default Respool's headers. */
  readonly wire?: HistoryWire;
  /**
   * Where messages are parked; declared as a durable quorum queue if it is missing. Default that of
   * the plan; else the name with `.dlq` replaced by `.parked`.
   */
  readonly parkedQueue?: string;
  /** Looks even if the delivery limit is unknown. Default false. */
  readonly isTrusted?: boolean;
  /**
   * The maximum that a look goes through, unless the look sets its own; see limits. 1 to 1,000,000;
   * default 100,000.
   */
  readonly lookMax?: number;
  /** For tests. Default the system clock. */
  readonly clock?: Clock;
  /** Called once, before the first look that is not free. */
  readonly onCaution?: (caution: Exclude<Caution, { kind: 'free' }>) => void;
}

/** What the table fills in. */
export interface QueueLettersValues {
  readonly lookMax: number;
}

/** Refuses unknown names and invalid values, before anything is opened. */
export function checkLettersOptions(options: QueueLettersOptions): QueueLettersValues {
  const values = readOptions({ what: 'createQueueLetters' }, options, LETTERS);
  checkName('queue', options.queue);
  if (options.parkedQueue !== undefined) checkName('parkedQueue', options.parkedQueue);
  return values;
}
