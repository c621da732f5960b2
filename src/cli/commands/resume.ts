/** resume — end a pause. */

import { checkTopicPattern } from '../../core/limits.ts';
import { EXIT } from '../exit-codes.ts';
import { usageOf } from '../options.ts';
import { safe } from '../safe.ts';
import type { CommandSpec } from '../spec.ts';
import { patternOf } from './pause.ts';

/** `respool resume [topic]` */
export const resume: CommandSpec = {
  name: 'resume',
  summary: 'end a pause',
  group: 'Steering',
  description: 'Ends a pause: the same pattern it was made with. Says what is still paused.',
  arguments: [{ name: '[topic]', description: 'the pattern that was paused; default ALL, as #' }],
  examples: [
    { line: 'respool resume ALL', does: 'ends a pause of everything' },
    { line: "respool resume 'webhook.*'", does: 'ends the pause of this very pattern' },
  ],
  role: 'operate',
  run: async ({ args, desk, out }) => {
    const topic = usageOf(() => checkTopicPattern(patternOf(args[0])), ['message.invalid']);
    const { control } = await desk();
    const before = await control.pauses();
    const wasPaused = before.some((pause) => pause.topic === topic);
    if (wasPaused) await control.resume(topic);
    const rest = before.map((pause) => pause.topic).filter((other) => other !== topic);
    const name = topic === '#' ? 'everything' : safe(topic);
    if (out.json) await out.object({ resumed: wasPaused ? topic : null, paused: rest });
    else await out.line(wasPaused ? `resumed ${name}` : `${name} was not paused`);
    if (rest.length > 0) out.note(`still paused: ${rest.map((other) => safe(other)).join(', ')}`);
    return wasPaused ? EXIT.done : EXIT.refused;
  },
};
