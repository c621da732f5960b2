/**
 * moves — the commands that move messages between states: hold, release, retry, bounce, remove.
 * What they have in common is in act.ts.
 *
 * Also commands of `respool outbox`: outbox/messages.ts.
 */

import { runAction, ACTION_ARGUMENTS, ACTION_OPTIONS } from './act.ts';
import type { CommandSpec } from '../../spec.ts';

/** `respool hold` */
export const holdCommand: CommandSpec = {
  name: 'hold',
  summary: 'hold messages until they are released',
  group: 'Control',
  description:
    'Keeps messages back until they are released. Without --state, filters select incoming ' +
    'and deferred messages.',
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
    return runAction(context, {
      bulk: { kind: 'hold', ...(reason === undefined ? {} : { reason }) },
      verb: 'hold',
      done: 'held',
      byIds: (operator, ids) => operator.hold(ids, { reason }),
    });
  },
};

/** `respool release` */
export const releaseCommand: CommandSpec = {
  name: 'release',
  summary: 'release held messages',
  group: 'Control',
  description:
    'Releases held messages to their former state. Without --state, filters select held messages.',
  arguments: ACTION_ARGUMENTS,
  options: ACTION_OPTIONS,
  examples: [
    {
      line: 'respool release --state hold --code handler.missing',
      does: 'counts, asks, and releases',
    },
  ],
  role: 'operate',
  run: (context) =>
    runAction(context, {
      bulk: { kind: 'release' },
      verb: 'release',
      done: 'released',
      byIds: (operator, ids) => operator.release(ids),
    }),
};

/** `respool retry` */
export const retryCommand: CommandSpec = {
  name: 'retry',
  summary: 'retry messages now, including bounced and archived ones',
  group: 'Control',
  description:
    'Makes messages due at once. Bounced and archived ones start a new round of attempts, ' +
    'and lose an expiry that has passed. Without --state, filters select deferred, held and ' +
    'bounced messages, and incoming ones that are not due because the clock was set back.',
  arguments: ACTION_ARGUMENTS,
  options: ACTION_OPTIONS,
  examples: [
    {
      line: 'respool list --state deferred --json | jq -r .id | respool retry -',
      does: 'retries what was listed',
    },
    { line: 'respool retry --state bounce --code http.503', does: 'counts, asks, and retries' },
  ],
  role: 'operate',
  run: (context) =>
    runAction(context, {
      bulk: { kind: 'retry' },
      verb: 'retry',
      done: 'retried',
      byIds: (operator, ids) => operator.retry(ids),
    }),
};

/** `respool bounce` */
export const bounceCommand: CommandSpec = {
  name: 'bounce',
  summary: 'give messages up and announce it to bounce handlers',
  group: 'Control',
  description:
    'Gives messages up: they bounce, and bounce routes are notified. Without --state, ' +
    'filters select incoming, deferred and held messages.',
  arguments: ACTION_ARGUMENTS,
  options: [
    ...ACTION_OPTIONS,
    { flags: '--reason <text>', description: 'the reason, kept with the message' },
  ],
  examples: [
    {
      line: "respool bounce --destination shop-7 --older-than 2d --reason 'shop is closed'",
      does: 'counts, asks, and bounces',
    },
  ],
  role: 'operate',
  run: (context) => {
    const reason = context.options.text('reason');
    return runAction(context, {
      bulk: { kind: 'bounce', ...(reason === undefined ? {} : { reason }) },
      verb: 'bounce',
      done: 'bounced',
      byIds: (operator, ids) => operator.bounce(ids, { reason }),
    });
  },
};

/** `respool remove` */
export const removeCommand: CommandSpec = {
  name: 'remove',
  summary: 'remove messages; they can be restored, unless --hard',
  group: 'Control',
  description:
    'Moves messages to the archive, from where retry brings them back for a while ' +
    '(retention.removed, default 7d). With --hard they and their bodies are permanently ' +
    'removed. Without --state, filters select archived messages only with --hard.',
  arguments: ACTION_ARGUMENTS,
  options: [
    ...ACTION_OPTIONS,
    {
      flags: '--hard',
      description: 'permanently; cannot be undone (through a service: role admin)',
    },
    { flags: '--reason <text>', description: 'the reason, for the audit record' },
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
    return runAction(context, {
      bulk: { kind: 'remove', ...details },
      verb: 'remove',
      done: hard ? 'removed for good' : 'removed',
      byIds: (operator, ids) => operator.remove(ids, details),
      ...(hard ? { warning: 'remove for good, with the bodies? nothing brings them back' } : {}),
    });
  },
};
