/** release — release held messages. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool release` */
export const release: CommandSpec = {
  name: 'release',
  summary: 'release held messages',
  group: 'Control',
  description:
    'Releases held messages to their former state. Filters without --state mean held ones.',
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
      byIds: (operator, ids) => operator.release(ids),
    }),
};
