/** bounce — give messages up: their bounce is announced. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool bounce` */
export const bounce: CommandSpec = {
  name: 'bounce',
  summary: 'give messages up and announce it to bounce handlers',
  group: 'Control',
  description:
    'Gives messages up: they bounce, and bounce routes are notified. ' +
    'Filters without --state mean incoming, deferred and held ones.',
  arguments: ACTION_ARGUMENTS,
  options: [
    ...ACTION_OPTIONS,
    { flags: '--reason <text>', description: 'the reason, kept with the message' },
  ],
  examples: [
    {
      line: "respool bounce --destination shop-7 --older-than 2d --reason 'shop is closed'",
      does: 'counts, asks, bounces',
    },
  ],
  role: 'operate',
  run: (context) => {
    const reason = context.options.text('reason');
    return act(context, {
      bulk: { kind: 'bounce', ...(reason === undefined ? {} : { reason }) },
      verb: 'bounce',
      done: 'bounced',
      byIds: (operator, ids) => operator.bounce(ids, reason),
    });
  },
};
