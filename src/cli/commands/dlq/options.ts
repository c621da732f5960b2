/** options — what commands over dead letters take: where the letters are, and which of them. */

import { CATEGORIES } from '../../../core/category.ts';
import type { LetterKind } from '../../../ports/dead-letters.ts';
import { FILTER_OPTIONS } from '../../select-messages.ts';
import type { OptionSpec } from '../../spec.ts';

/** What every command over places takes. */
export const PLACE_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--queue <pattern>',
    description: 'queues of RabbitMQ, * and ? allowed; default: the spool',
    repeatable: true,
  },
  { flags: '--broker <url>', description: 'the broker, where --url names a service' },
  {
    flags: '--management-url <url>',
    description: 'the management API; default: the host of the broker, port 15672',
  },
  {
    flags: '--trust-limit',
    description: 'look even if the delivery limit of the broker is unknown',
  },
];

const KINDS: readonly LetterKind[] = ['dead', 'parked', 'archived'];

/** Of the filters of messages, those that letters have as well. */
const SHARED = FILTER_OPTIONS.filter(({ flags }) => /^--(?:topic|code|header) /.test(flags));

/** The options that choose letters; all given conditions hold together. */
const LETTER_OPTIONS: readonly OptionSpec[] = [
  ...SHARED,
  {
    flags: '--destination <name>',
    description: 'where it was going; of a queue, the exchange or queue it came from',
  },
  { flags: '--group <group>', description: 'of this group, as dlq groups shows it' },
  { flags: '--category <category>', description: 'of this category', choices: CATEGORIES },
  { flags: '--text <text>', description: 'found in its id, topic, origin or reason' },
  { flags: '--older-than <span>', description: 'died more than this long ago, such as 15m or 2d' },
  { flags: '--since <when>', description: 'died since this time: 2h (ago), or an ISO 8601 time' },
  { flags: '--deaths-above <count>', description: 'died more often than this' },
];

/** What every command over letters takes. */
export const LOOK_OPTIONS: readonly OptionSpec[] = [
  ...PLACE_OPTIONS,
  {
    flags: '--kind <kind>',
    description: 'of the spool: bounced, held, or archived; default dead and parked',
    choices: KINDS,
    meant: { bounce: 'dead', bounced: 'dead', hold: 'parked', held: 'parked' },
    repeatable: true,
  },
  ...LETTER_OPTIONS,
];

/** What letters can be counted by. */
export const COUNTED_BY = ['place', 'group', 'code', 'category', 'topic'] as const;

export type CountColumn = (typeof COUNTED_BY)[number];
