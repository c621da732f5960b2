/** retry — messages are due at once; bounced and archived ones start a new round. */

import { act, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool retry` */
export const retry: CommandSpec = {
  name: 'retry',
  summary: 'retry messages now, including bounced and archived ones',
  group: 'Control',
  description:
    'Makes messages due at once. Bounced and archived ones start a new round of attempts, ' +
    'without an expiry that is over. Filters without --state mean deferred, held and bounced ' +
    'ones, and incoming ones that are not due because the clock was set back.',
  arguments: ACTION_ARGUMENTS,
  options: ACTION_OPTIONS,
  examples: [
    {
      line: 'respool list --state deferred --json | jq -r .id | respool retry -',
      does: 'retries what was listed',
    },
    { line: 'respool retry --state bounce --code http.503', does: 'counts, asks, tries again' },
  ],
  role: 'operate',
  run: (context) =>
    act(context, {
      bulk: { kind: 'retry' },
      verb: 'retry',
      done: 'retried',
      byIds: (operator, ids) => operator.retryNow(ids),
    }),
};
