/**
 * messages — commands of a spool that work the same over the messages of an outbox: only texts and
 * options differ.
 */

import { OUTBOX_OPTIONS, OUTBOX_PLACE } from './choose.ts';
import type { CommandContext, CommandSpec } from '../../spec.ts';
import { auditCommand } from '../inspect/audit.ts';
import {
  bounceCommand,
  holdCommand,
  releaseCommand,
  removeCommand,
  retryCommand,
} from '../control/moves.ts';
import { catCommand } from '../messages/cat.ts';
import { checkCommand } from '../maintain/check.ts';
import { listCommand } from '../messages/list.ts';
import { pauseCommand, resumeCommand } from '../control/pause.ts';
import { setPolicy } from '../control/policy.ts';
import { shapeCommand } from '../inspect/shape.ts';
import { showCommand } from '../messages/show.ts';

const ID = '0198f0c2-8a3e-7c41-9d2b-5f60718293a4';

/** What is said of a command here. */
interface Words extends Required<Pick<CommandSpec, 'description' | 'examples'>> {
  /** Default: as over a spool. */
  readonly summary?: string;
}

/** The same command over the messages of an outbox. */
function overOutbox(
  spec: CommandSpec,
  { description, examples, summary = spec.summary }: Words,
): CommandSpec {
  // No role: an outbox is opened by its database, never through a service. And no command creates
  // its tables but `outbox init`.
  const { role: _role, createsStore: _creates, ...rest } = spec;
  // An outbox has no bounce notices, so `--lane` is left out.
  const options = (spec.options ?? []).filter(({ flags }) => !flags.startsWith('--lane'));
  return {
    ...rest,
    summary,
    group: 'Outbox',
    description: `${description} ${OUTBOX_PLACE}`,
    options: [...options, ...OUTBOX_OPTIONS],
    examples,
    run: async (context: CommandContext) => {
      const { withOutbox } = await import('./choose.ts');
      return spec.run?.(withOutbox(context));
    },
  };
}

const listed = overOutbox(listCommand, {
  description:
    'Shows messages of the outbox: topics are routing keys, incoming ones are not sent yet, ' +
    'bounced ones are dead, archived ones were sent or removed and are kept. With --sent it ' +
    'shows sent messages that are kept in partitions (PostgreSQL), by --topic and --limit.',
  examples: [
    { line: 'respool outbox list --state deferred', does: 'what is tried again, and why' },
    { line: 'respool outbox list --state bounce --json', does: 'what is dead, one object each' },
    {
      line: "respool outbox list --sent --topic 'order.*'",
      does: 'what was sent, the oldest first',
    },
  ],
});

const READ_COMMANDS: readonly CommandSpec[] = [
  {
    ...listed,
    options: [
      { flags: '--sent', description: 'sent messages kept in partitions' },
      ...(listed.options ?? []),
    ],
    run: async (context) => {
      if (!context.options.flag('sent')) return listed.run?.(context);
      return (await import('./sent-messages.ts')).printSent(context);
    },
  },
  overOutbox(showCommand, {
    description: 'Shows messages of the outbox in full, without their bodies.',
    examples: [{ line: `respool outbox show ${ID}`, does: 'its state, and why' }],
  }),
  overOutbox(catCommand, {
    description:
      'Writes the body of a message as it will be sent: unchanged to a file or pipe; to a ' +
      'terminal as text without control characters, or as hex, up to 64 KiB.',
    examples: [{ line: `respool outbox cat ${ID} > body.json`, does: 'saves the body in a file' }],
  }),
  overOutbox(shapeCommand, {
    description:
      'Counts what is not sent yet (incoming, active and deferred) by routing key and age. ' +
      'T is the total; each column counts ages up to that many minutes, and the last one ' +
      'those beyond.',
    examples: [
      { line: 'respool outbox shape', does: 'what waits, and for how long' },
      { line: 'respool outbox shape --state deferred', does: 'what is tried again' },
    ],
  }),
];

const CONTROL_COMMANDS: readonly CommandSpec[] = [
  overOutbox(holdCommand, {
    description:
      'Keeps messages back until they are released or retried; later messages with the same ' +
      'key wait, too. Without --state, filters select incoming and deferred messages.',
    examples: [
      { line: "respool outbox hold --topic 'mail.*'", does: 'counts, asks, and holds them' },
    ],
  }),
  overOutbox(releaseCommand, {
    description:
      'Releases held messages to their former state. Without --state, filters select held ' +
      'messages.',
    examples: [
      { line: "respool outbox release --topic 'mail.*'", does: 'counts, asks, and releases' },
    ],
  }),
  overOutbox(retryCommand, {
    description:
      'Makes messages due at once. Dead and sent messages start a new round of attempts. ' +
      'Without --state, filters select deferred, held and dead messages.',
    examples: [
      { line: 'respool outbox retry --state bounce', does: 'counts, asks, sends the dead again' },
    ],
  }),
  overOutbox(bounceCommand, {
    summary: 'give messages up',
    description:
      'Gives messages up: they are dead and are kept with the reason, and the next message ' +
      'with the same key is sent. Without --state, filters select incoming, deferred and ' +
      'held messages.',
    examples: [
      {
        line: "respool outbox bounce --topic 'mail.*' --older-than 2d --reason 'too late'",
        does: 'counts, asks, and gives them up',
      },
    ],
  }),
  overOutbox(removeCommand, {
    description:
      'Removes messages, so that the next message with the same key is sent. Within 7 days ' +
      'retry brings them back; with --hard they are permanently removed.',
    examples: [
      { line: `respool outbox remove ${ID}`, does: 'skips a message that holds up its key' },
    ],
  }),
  {
    name: 'policy',
    summary: 'give messages of the outbox another policy',
    group: 'Outbox',
    subcommands: [
      overOutbox(setPolicy, {
        description:
          'Gives messages a policy of "outbox.policies". Attempts already made still count. ' +
          'Without --state, filters select incoming, deferred and held messages.',
        examples: [
          {
            line: "respool outbox policy set patient --topic 'mail.*'",
            does: 'counts, asks, and gives them the policy "patient"',
          },
        ],
      }),
    ],
  },
  overOutbox(pauseCommand, {
    description:
      'Stops sending the routing keys of a pattern, in every relay of the outbox, until the ' +
      'same pattern is resumed. Emits are not affected. Without a pattern it asks whether ' +
      'you mean everything.',
    examples: [
      { line: 'respool outbox pause ALL', does: 'sends nothing until respool outbox resume ALL' },
      { line: "respool outbox pause 'mail.*'", does: 'keeps mail back, sends the rest' },
    ],
  }),
  overOutbox(resumeCommand, {
    description:
      'Ends the pause of the same pattern. Without a pattern it asks whether you mean the ' +
      'pause of everything.',
    examples: [{ line: "respool outbox resume 'mail.*'", does: 'sends it' }],
  }),
];

const MAINTENANCE_COMMANDS: readonly CommandSpec[] = [
  overOutbox(auditCommand, {
    description:
      'Shows the last 50 actions of operators on the outbox, oldest first. Each was written ' +
      'before the action, with every message it was requested for, including those that ' +
      'refused it.',
    examples: [{ line: 'respool outbox audit --json', does: 'one object per record' }],
  }),
  overOutbox(checkCommand, {
    description:
      'Reads every message of the outbox once, and looks for bodies that are missing or ' +
      'changed, messages that cannot be decoded, and impossible leases. With --repair ' +
      'damaged messages are held and leases are ended. Exits with 1 when something was not ' +
      'repaired.',
    examples: [{ line: 'respool outbox check', does: 'checks, and changes nothing' }],
  }),
];

/** In the order of the help. */
export const outboxMessages: readonly CommandSpec[] = [
  ...READ_COMMANDS,
  ...CONTROL_COMMANDS,
  ...MAINTENANCE_COMMANDS,
];
