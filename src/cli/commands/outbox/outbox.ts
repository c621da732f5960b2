/** outbox — the outbox of an application: its tables, its relay, and the messages in it. */

import { OUTBOX_OPTIONS, OUTBOX_PLACE as PLACE, RELAY_FLAGS } from './choose.ts';
import type { CommandSpec } from '../../spec.ts';
import { outboxMessages } from './messages.ts';

const init: CommandSpec = {
  name: 'init',
  summary: 'create or upgrade the tables of the outbox',
  group: 'Outbox',
  description:
    'Creates the tables that are missing, in one transaction and under a lock, so that ' +
    'several processes may run it at once. If they are up to date, it does nothing. Nothing ' +
    'else creates tables. ' +
    PLACE,
  options: OUTBOX_OPTIONS,
  examples: [
    { line: 'respool outbox init', does: 'before a deployment' },
    { line: 'respool outbox init --store sqlite:./app.db', does: 'in a file of SQLite' },
  ],
  run: async (context) => (await import('./tables.ts')).makeTables(context),
};

const sql: CommandSpec = {
  name: 'sql',
  summary: 'print the SQL that creates the tables',
  group: 'Outbox',
  description:
    'Prints the SQL that init runs in an empty database, for your own migrations or for a ' +
    'role that may create tables; with --from, the SQL for tables of that version. It does ' +
    `not connect to a database. ${PLACE}`,
  options: [
    {
      flags: '--from <version>',
      description: 'the version of the existing tables, from their table meta; default 0',
    },
    ...OUTBOX_OPTIONS,
  ],
  examples: [
    { line: 'respool outbox sql > outbox.sql', does: 'to read it, or to keep it' },
    { line: 'respool outbox sql --from 1', does: 'what brings tables of version 1 up to date' },
  ],
  run: async (context) => (await import('./tables.ts')).printSql(context),
};

const relay: CommandSpec = {
  name: 'relay',
  summary: 'run the relay, which sends committed messages, until a signal',
  group: 'Outbox',
  description:
    'Sends the messages of the outbox to "outbox.relay.to" of the configuration, as respool ' +
    'serve does, but without a spool of its own and without HTTP; or to the target of ' +
    '--exchange with --url (amqp://…), --spool or --http. Several may run at once. It keeps ' +
    'trying to reach a target that is down. Prints a line when something changes or goes ' +
    'wrong, and with --verbose one for every message. SIGTERM or Ctrl-C stops it: messages ' +
    'in flight are finished. ' +
    `${PLACE} ` +
    'Exits with 0 after a signal, with 3 when its tables are missing.',
  options: [...OUTBOX_OPTIONS, ...RELAY_FLAGS],
  examples: [
    { line: 'respool outbox relay', does: 'as the configuration says' },
    {
      line:
        'respool outbox relay --store postgres://localhost/shop --url amqp://localhost ' +
        '--exchange shop',
      does: 'without a configuration',
    },
  ],
  run: async (context) => (await import('./relay.ts')).relayUntilSignal(context),
};

const stats: CommandSpec = {
  name: 'stats',
  summary: 'show counts of the outbox, and keys that are stuck',
  group: 'Outbox',
  description:
    'Shows how many messages are pending, held, dead and sent, since when, and the keys ' +
    'whose first message is deferred, held or long overdue while others wait behind it. ' +
    'Pending messages are due (a relay may take them now), in flight, or due later: after a ' +
    'failure, before their eta, or behind another message with the same key, which counts ' +
    'as due until a relay has noticed it. Messages that failed or have an eta are deferred, ' +
    `due or not. ${PLACE}`,
  options: OUTBOX_OPTIONS,
  examples: [
    { line: 'respool outbox stats', does: 'how many, since when, what is stuck' },
    { line: 'respool outbox stats --json', does: 'one object' },
  ],
  run: async (context) => (await import('./stats.ts')).printStats(context),
};

/** `respool outbox init|sql|relay|stats`, and the commands of a spool over its messages. */
export const outboxCommand: CommandSpec = {
  name: 'outbox',
  summary: 'transactional outbox: relay, inspect and control its messages',
  group: 'Outbox',
  subcommands: [init, sql, relay, stats, ...outboxMessages],
};
