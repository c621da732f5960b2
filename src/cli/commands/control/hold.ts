/** hold — nobody tries these messages until they are released. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool hold` */
export const hold: CommandSpec = {
  name: 'hold',
  summary: 'hold messages until they are released',
  group: 'Control',
  description:
    'Keeps messages back until they are released. ' +
    'Filters without --state mean incoming and deferred ones.',
  arguments: ACTION_ARGUMENTS,
  options: [
    ...ACTION_OPTIONS,
    { flags: '--reason <text>', description: 'the reason, kept with the message' },
  ],
  examples: [
    { line: 'respool hold 0198f0c2-8a3e-7c41-9d2b-5f60718293a4', does: 'holds one message' },
    {
      line: "respool hold --topic 'mail.*' --reason 'wrong template'",
      does: 'counts the mails, asks, and holds them',
    },
  ],
  role: 'operate',
  run: (context) => {
    const reason = context.options.text('reason');
    return act(context, {
      bulk: { kind: 'hold', ...(reason === undefined ? {} : { reason }) },
      verb: 'hold',
      done: 'held',
      byIds: (operator, ids) => operator.hold(ids, reason),
    });
  },
};
