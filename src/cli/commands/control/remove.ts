/** remove — take messages away: softly into the archive, or for good. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool remove` */
export const remove: CommandSpec = {
  name: 'remove',
  summary: 'remove messages; they can be restored, unless --hard',
  group: 'Control',
  description:
    'Moves messages to the archive, from where retry brings them back for a while (retention.' +
    'removed, default 7d). With --hard they and their bodies are permanently removed. Filters ' +
    'without --state leave archived messages alone, unless --hard is given.',
  arguments: ACTION_ARGUMENTS,
  options: [
    ...ACTION_OPTIONS,
    {
      flags: '--hard',
      description: 'for good: nothing brings them back (through a service: role admin)',
    },
    { flags: '--reason <text>', description: 'why, for the audit record' },
  ],
  examples: [
    { line: 'respool remove --state bounce --older-than 30d', does: 'counts, asks, archives' },
    { line: 'respool remove ALL --hard', does: 'counts, asks twice, empties the spool' },
  ],
  role: 'operate',
  run: (context) => {
    const reason = context.options.text('reason');
    const hard = context.options.flag('hard');
    const details = { hard, ...(reason === undefined ? {} : { reason }) };
    return act(context, {
      bulk: { kind: 'remove', ...details },
      verb: 'remove',
      done: hard ? 'removed for good' : 'removed',
      byIds: (operator, ids) => operator.remove(ids, details),
      ...(hard ? { warning: 'remove for good, with the bodies? nothing brings them back' } : {}),
    });
  },
};
