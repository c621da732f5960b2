/** pause — stop delivering topics, durably and in every process. */

import { checkTopicPattern } from '../../../core/limits.ts';
import { ask } from '../../ui/confirm.ts';
import { usageOf } from '../../options.ts';
import { safe } from '../../../observe/logs/safe-text.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool pause [topic]` */
export const pause: CommandSpec = {
  name: 'pause',
  summary: 'pause deliveries, all or by topic',
  group: 'Control',
  description:
    'Stops delivering the topics of a pattern, in every process that uses the store, until the ' +
    'same pattern is resumed. What comes in is kept. Without a topic it asks whether everything ' +
    'is meant; where there is no terminal to ask at, it does nothing and ends with 4.',
  arguments: [{ name: '[topic]', description: 'a topic or pattern; ALL or # means every topic' }],
  options: [{ flags: '--yes', description: 'do not ask' }],
  examples: [
    { line: 'respool pause ALL', does: 'delivers nothing until respool resume ALL' },
    { line: "respool pause 'webhook.*'", does: 'keeps webhooks back, delivers the rest' },
  ],
  createsStore: true,
  role: 'operate',
  run: async (context) => {
    const { args, out } = context;
    const [given] = args;
    if (given === undefined) await ask(context, 'pause every topic?', NAME_A_TOPIC);
    const topic = usageOf(() => checkTopicPattern(patternOf(given)), ['message.invalid']);
    const { operator } = await context.session();
    await operator.pause(topic);
    if (out.json) await out.object({ paused: topic, by: operator.by });
    else await out.line(`paused ${topic === '#' ? 'everything' : safe(topic)}`);
    return undefined;
  },
};

/** What to do where nobody can be asked. */
export const NAME_A_TOPIC = 'name a topic or pattern, or ALL for every topic';

/** The pattern that a word of the command line means. */
export function patternOf(given: string | undefined): string {
  return given === undefined || given === 'ALL' ? '#' : given;
}
