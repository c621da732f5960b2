/**
 * filters — which messages a command is about, by what they are: the options and the filter they
 * make.
 */

import { checkTopicPattern } from '../core/limits.ts';
import { STATES, type State } from '../core/state.ts';
import type { ListFilter } from '../spool/list.ts';
import { CommandError } from './exit-codes.ts';
import { type Options, usageOf } from './options.ts';
import type { OptionSpec } from './spec.ts';

/** States by the words in which people, and other outputs, speak of them. */
const STATES_MEANT: Readonly<Record<string, string>> = {
  held: 'hold',
  bounced: 'bounce',
  dead: 'bounce',
  failed: 'bounce',
  pending: 'incoming,deferred',
  due: 'incoming',
  retrying: 'deferred',
  sent: 'archived',
  delivered: 'archived',
  removed: 'archived',
  kept: 'archived',
};

/** The options that choose messages; all given conditions hold together. */
export const FILTER_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--state <state>',
    description: 'with this state; separate several with commas',
    choices: STATES,
    meant: STATES_MEANT,
    repeatable: true,
  },
  { flags: '--topic <pattern>', description: 'a topic; * for one word, # for any number' },
  { flags: '--destination <name>', description: 'with this destination' },
  { flags: '--header <name=value>', description: 'with this header, or any value of name' },
  { flags: '--code <code>', description: 'the code of its last failure or hold' },
  { flags: '--fingerprint <print>', description: 'the fingerprint of its last failure' },
  { flags: '--text <text>', description: 'contained in its id, topic or reason' },
  { flags: '--older-than <span>', description: 'enqueued longer ago than this, such as 15m or 2d' },
  { flags: '--since <when>', description: 'enqueued since then: 2h, or a time in ISO 8601' },
  {
    flags: '--lane <lane>',
    description: 'to be delivered, or announced as bounced',
    choices: ['delivery', 'notice'],
  },
];

/** The filter that was given; undefined when there was none at all. */
export function filterOf(options: Options): ListFilter | undefined {
  const states = options.texts('state') as readonly State[];
  const lane = options.text('lane') as ListFilter['lane'];
  const given: Record<string, unknown> = {
    state: states.length === 0 ? undefined : states,
    topic: topicOf(options),
    destination: options.filled('destination'),
    header: headerOf(options.filled('header')),
    code: options.filled('code'),
    fingerprint: options.filled('fingerprint'),
    text: options.filled('text'),
    olderThan: options.span('olderThan'),
    ...sinceOf(options),
    lane,
  };
  const conditions = Object.entries(given).filter(([, value]) => value !== undefined);
  return conditions.length === 0 ? undefined : Object.fromEntries(conditions);
}

/** So long ago, or a moment. */
function sinceOf(options: Options): Pick<ListFilter, 'since' | 'enqueuedAfter'> {
  const text = options.filled('since');
  if (text === undefined) return {};
  if (!/^\d{4}-\d\d-\d\d/.test(text)) return { since: options.span('since') ?? text };
  const at = Date.parse(text);
  if (!Number.isNaN(at)) return { enqueuedAfter: at };
  throw new CommandError(
    'usage.invalid',
    `cannot use "${text}" as --since: allowed is a span such as 2h, or a time such as ` +
      '2026-05-30T08:00Z',
  );
}

function topicOf(options: Options): string | undefined {
  const topic = options.text('topic');
  if (topic !== undefined) usageOf(() => checkTopicPattern(topic), ['message.invalid']);
  return topic;
}

function headerOf(given: string | undefined): ListFilter['header'] {
  if (given === undefined) return undefined;
  const at = given.indexOf('=');
  if (at === 0) {
    throw new CommandError(
      'usage.invalid',
      `cannot use "${given}" as --header: allowed is a name, or name=value`,
    );
  }
  return at === -1 ? { name: given } : { name: given.slice(0, at), value: given.slice(at + 1) };
}
