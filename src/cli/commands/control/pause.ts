/**
 * pause — `pause` stops deliveries of topics, durably and in every process; `resume` ends a
 * pause.
 *
 * Also `respool outbox pause` and `resume`: outbox/messages.ts.
 */

import { EXIT } from '../../exit-codes.ts';
import { usageOf } from '../../options.ts';
import type { CommandSpec } from '../../spec.ts';
import { ask } from '../../ui/confirm.ts';
import { checkTopicPattern } from '../../../core/limits.ts';
import { safe } from '../../../observe/logs/safe-text.ts';

/** `respool pause [topic]` */
export const pauseCommand: CommandSpec = {
  name: 'pause',
  summary: 'pause deliveries, all or by topic',
  group: 'Control',
  description:
    'Stops delivering the topics of a pattern, in every process that uses the store, until ' +
    'the same pattern is resumed. New messages are kept. Without a topic it asks whether ' +
    'you mean everything; without a terminal it does nothing and exits with 4.',
  arguments: [{ name: '[topic]', description: 'a topic or pattern; ALL or # means every topic' }],
  examples: [
    { line: 'respool pause ALL', does: 'delivers nothing until respool resume ALL' },
    { line: "respool pause 'webhook.*'", does: 'keeps webhooks back and delivers the rest' },
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

/** What to do where there is no terminal to ask at. */
const NAME_A_TOPIC = 'name a topic or pattern, or ALL for every topic';

/** The pattern that a word of the command line means. */
function patternOf(text: string | undefined): string {
  return text === undefined || text === 'ALL' ? '#' : text;
}

/** `respool resume [topic]` */
export const resumeCommand: CommandSpec = {
  name: 'resume',
  summary: 'end a pause',
  group: 'Control',
  description:
    'Ends a pause; give the pattern it was made with. Prints what is still paused. Without ' +
    'a topic it asks whether you mean the pause of everything; without a terminal it does ' +
    'nothing and exits with 4.',
  arguments: [
    {
      name: '[topic]',
      description: 'the pattern that was paused; ALL or # for everything',
    },
  ],
  examples: [
    { line: 'respool resume ALL', does: 'ends a pause of everything' },
    { line: "respool resume 'webhook.*'", does: 'ends the pause of this very pattern' },
  ],
  role: 'operate',
  run: async (context) => {
    const { args, out } = context;
    const [given] = args;
    if (given === undefined) await ask(context, 'resume every topic?', NAME_A_TOPIC);
    const topic = usageOf(() => checkTopicPattern(patternOf(given)), ['message.invalid']);
    const { operator } = await context.session();
    const before = await operator.pauses();
    const wasPaused = before.some((pause) => pause.topic === topic);
    if (wasPaused) await operator.resume(topic);
    const rest = before.map((pause) => pause.topic).filter((other) => other !== topic);
    const name = topic === '#' ? 'everything' : safe(topic);
    if (out.json) await out.object({ resumed: wasPaused ? topic : null, paused: rest });
    else await out.line(wasPaused ? `resumed ${name}` : `${name} was not paused`);
    if (rest.length > 0) out.note(`still paused: ${rest.map((other) => safe(other)).join(', ')}`);
    return wasPaused ? EXIT.done : EXIT.refused;
  },
};
