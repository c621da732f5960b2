/** pause — stop delivering topics, durably and in every process. */

import { checkTopicPattern } from '../../core/limits.ts';
import { usageOf } from '../options.ts';
import { safe } from '../safe.ts';
import type { CommandSpec } from '../spec.ts';

/** `respool pause [topic]` */
export const pause: CommandSpec = {
  name: 'pause',
  summary: 'stop delivering, all or by topic',
  group: 'Steering',
  description:
    'Stops delivering the topics of a pattern (default: all), in every process that uses the ' +
    'store, until somebody resumes the same pattern. What comes in is kept.',
  arguments: [{ name: '[topic]', description: 'a topic or pattern; default # for all' }],
  examples: [
    { line: 'respool pause', does: 'delivers nothing until respool resume' },
    { line: "respool pause 'webhook.*'", does: 'keeps webhooks back, delivers the rest' },
  ],
  createsStore: true,
  role: 'operate',
  run: async ({ args, desk, out }) => {
    const topic = usageOf(() => checkTopicPattern(args[0] ?? '#'), ['message.invalid']);
    const { control } = await desk();
    await control.pause(topic);
    if (out.json) await out.object({ paused: topic, by: control.by });
    else await out.line(`paused ${topic === '#' ? 'everything' : safe(topic)}`);
    return undefined;
  },
};
