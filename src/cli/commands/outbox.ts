/** outbox — the outbox of an application: its tables, its relay, and the messages in it. */

import { OUTBOX_OPTIONS, RELAY_OPTIONS } from '../outbox/choose.ts';
import type { CommandContext, CommandSpec } from '../spec.ts';
import { hold } from './hold.ts';
import { list } from './list.ts';
import { remove } from './remove.ts';
import { retry } from './retry.ts';
import { show } from './show.ts';

const PLACE =
  'The outbox is that of "outbox" in the configuration, or --store (postgres://… or ' +
  'sqlite:./app.db) with --schema or --tables.';

const init: CommandSpec = {
  name: 'init',
  summary: 'make the tables of the outbox, or bring them up to date',
  group: 'Outbox',
  description:
    'Makes the tables that are missing, in one transaction and under a lock, so that several may ' +
    'run it at once. Where they are up to date nothing is done. Nothing else makes tables. ' +
    PLACE,
  options: OUTBOX_OPTIONS,
  examples: [
    { line: 'respool outbox init', does: 'before a deployment' },
    { line: 'respool outbox init --store sqlite:./app.db', does: 'in a file of SQLite' },
  ],
  run: async (context) => (await import('../outbox/tables.ts')).makeTables(context),
};

const sql: CommandSpec = {
  name: 'sql',
  summary: 'print the SQL that makes the tables',
  group: 'Outbox',
  description:
    'Prints what init runs in an empty database, for migrations of your own or for a role that ' +
    `may create tables. No database is asked. ${PLACE}`,
  options: OUTBOX_OPTIONS,
  examples: [{ line: 'respool outbox sql > outbox.sql', does: 'to read it, or to keep it' }],
  run: async (context) => (await import('../outbox/tables.ts')).printSql(context),
};

const relay: CommandSpec = {
  name: 'relay',
  summary: 'send on what is committed, until a signal',
  group: 'Outbox',
  description:
    'Sends the messages of the outbox to "outbox.relay.to" of the configuration, as respool ' +
    'serve does, but without a spool of its own and without HTTP; or to where --exchange with ' +
    '--url (amqp://…), --spool or --http says. Several may run at once. A target that is away ' +
    'is tried again until it is there. Prints a line for what changes and what goes wrong, with ' +
    '--verbose one for every message. SIGTERM or Ctrl-C stops: what is on its way is finished. ' +
    `${PLACE} ` +
    'Ends with 0 after a signal, with 3 when its tables are missing.',
  options: [...OUTBOX_OPTIONS, ...RELAY_OPTIONS],
  examples: [
    { line: 'respool outbox relay', does: 'as the configuration says' },
    {
      line:
        'respool outbox relay --store postgres://localhost/shop --url amqp://localhost ' +
        '--exchange shop',
      does: 'without a configuration',
    },
  ],
  run: async (context) => (await import('../outbox/relay.ts')).relayUntilSignal(context),
};

const stats: CommandSpec = {
  name: 'stats',
  summary: 'show the outbox in numbers, and which keys are stuck',
  group: 'Outbox',
  description:
    'Shows what is pending, due, deferred, held, dead and sent, since when, and the keys whose ' +
    `first message is deferred or held while others wait behind it. ${PLACE}`,
  options: OUTBOX_OPTIONS,
  examples: [
    { line: 'respool outbox stats', does: 'how many, since when, what is stuck' },
    { line: 'respool outbox stats --json', does: 'one object' },
  ],
  run: async (context) => (await import('../outbox/stats.ts')).printStats(context),
};

/** The same command over the messages of an outbox. */
function overOutbox(
  spec: CommandSpec,
  { description, examples }: Required<Pick<CommandSpec, 'description' | 'examples'>>,
): CommandSpec {
  const { role: _role, ...rest } = spec;
  return {
    ...rest,
    group: 'Outbox',
    description: `${description} ${PLACE}`,
    options: [...(spec.options ?? []), ...OUTBOX_OPTIONS],
    examples,
    run: async (context: CommandContext) => {
      const { atOutbox } = await import('../outbox/desk.ts');
      return spec.run?.(atOutbox(context));
    },
  };
}

const listed = overOutbox(list, {
  description:
    'Shows messages of the outbox: topics are routing keys, incoming ones are not sent yet, ' +
    'bounced ones are dead, archived ones were sent or removed and are kept. With --sent those ' +
    'that were sent and are kept in parts of a table (PostgreSQL), by --topic and --limit.',
  examples: [
    { line: 'respool outbox list --state deferred', does: 'what is tried again, and why' },
    { line: 'respool outbox list --state bounce --json', does: 'what is dead, one object each' },
    {
      line: "respool outbox list --sent --topic 'order.*'",
      does: 'what was sent, the first first',
    },
  ],
});

const ofOutbox: readonly CommandSpec[] = [
  {
    ...listed,
    options: [
      { flags: '--sent', description: 'what was sent and is kept in parts' },
      ...(listed.options ?? []),
    ],
    run: async (context) => {
      if (!context.options.flag('sent')) return listed.run?.(context);
      return (await import('../outbox/sent.ts')).printSent(context);
    },
  },
  overOutbox(show, {
    description: 'Shows messages of the outbox in full, without their bodies.',
    examples: [
      {
        line: 'respool outbox show 0198f0c2-8a3e-7c41-9d2b-5f60718293a4',
        does: 'where it is, and why',
      },
    ],
  }),
  overOutbox(retry, {
    description:
      'Makes messages due at once. Dead ones and those that were sent start a new round of ' +
      'attempts. Filters without --state mean deferred, held and dead ones.',
    examples: [
      { line: 'respool outbox retry --state bounce', does: 'counts, asks, sends the dead again' },
    ],
  }),
  overOutbox(hold, {
    description:
      'Keeps messages back until retry lets them go; those of their key that come after them ' +
      'wait, too. Filters without --state mean incoming and deferred ones.',
    examples: [
      { line: "respool outbox hold --topic 'mail.*'", does: 'counts, asks, and holds them' },
    ],
  }),
  overOutbox(remove, {
    description:
      'Takes messages out of the way, and the next of their key goes on. Retry brings them back ' +
      'for 7 days; with --hard they are gone for good.',
    examples: [
      {
        line: 'respool outbox remove 0198f0c2-8a3e-7c41-9d2b-5f60718293a4',
        does: 'skips a message that holds up its key',
      },
    ],
  }),
];

/** `respool outbox init|sql|relay|list|show|retry|hold|remove|stats` */
export const outbox: CommandSpec = {
  name: 'outbox',
  summary: 'send on what an application emits in its transactions, and look after it',
  group: 'Outbox',
  subcommands: [init, sql, relay, ...ofOutbox, stats],
};
