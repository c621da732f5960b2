/** release — let held messages go on. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool release` */
export const release: CommandSpec = {
  name: 'release',
  summary: 'let held messages go on',
  group: 'Steering',
  description: 'Lets held messages go on where they were. Filters without --state mean held ones.',
  arguments: ACTION_ARGUMENTS,
  options: ACTION_OPTIONS,
  examples: [
    { line: 'respool release --state hold --code handler.missing', does: 'counts, asks, releases' },
  ],
  role: 'operate',
  run: (context) =>
    act(context, {
      bulk: { kind: 'release' },
      verb: 'release',
      done: 'released',
      byIds: (control, ids) => control.release(ids),
    }),
};
