/** rabbit — the queues of RabbitMQ: consume them, and look after what they need at the broker. */

import { FORMER_OPTIONS, MANAGEMENT_OPTION, QUEUE_OPTION, QUEUE_OPTIONS } from './queues.ts';
import type { CommandSpec, OptionSpec } from '../../spec.ts';

const YES: OptionSpec = { flags: '--yes', description: 'do not ask' };
const BROKER =
  'The broker and its queues are those of "rabbit" and "consumers" in the configuration, or ' +
  '--url (amqp://…) and --queue with the options that describe it.';

const consume: CommandSpec = {
  name: 'consume',
  summary: 'run the consumers of the configuration, without a store',
  group: 'RabbitMQ',
  description:
    'Consumes the queues of "consumers" in the configuration, as respool serve does, but ' +
    'without a store and without HTTP. It keeps trying to reach a broker that is down. ' +
    'SIGTERM or Ctrl-C stops it: no new deliveries start, and running ones finish or are ' +
    'given back.',
  options: [{ ...QUEUE_OPTION, description: 'only the consumer of this queue' }],
  examples: [
    { line: 'respool rabbit consume', does: 'all consumers' },
    { line: 'respool rabbit consume --queue orders', does: 'one of them' },
  ],
  run: async (context) => {
    const { consumeUntilSignal } = await import('./consume.ts');
    return consumeUntilSignal(context);
  },
};

const plan: CommandSpec = {
  name: 'plan',
  summary: 'show what applying would change',
  group: 'RabbitMQ',
  description:
    `Compares what the queues need with the broker, and changes nothing. ${BROKER} Exits ` +
    'with 1 when something exists with other arguments.',
  options: QUEUE_OPTIONS,
  examples: [
    { line: 'respool rabbit topology plan', does: 'for all consumers of the configuration' },
    {
      line: 'respool rabbit topology plan --url amqp://localhost --queue orders --delays 2s,5s,15s',
      does: 'for a queue that is described here',
    },
  ],
  run: async (context) => (await import('./topology.ts')).plan(context),
};

const apply: CommandSpec = {
  name: 'apply',
  summary: 'declare what is missing',
  group: 'RabbitMQ',
  description:
    'Declares exchanges, queues, bindings and policies that are missing. Asks first. If ' +
    `something exists with other arguments, nothing is changed. ${BROKER} Exits with 1 when ` +
    'something differs, or when policies could not be set without the management API.',
  options: [...QUEUE_OPTIONS, YES, { flags: '--dry-run', description: 'the same as plan' }],
  examples: [
    { line: 'respool rabbit topology apply', does: 'prints what it would do, asks, and does it' },
    { line: 'respool rabbit topology apply --yes', does: 'before a deployment' },
  ],
  run: async (context) => (await import('./topology.ts')).apply(context),
};

const verify: CommandSpec = {
  name: 'verify',
  summary: 'compare the broker with what the queues need',
  group: 'RabbitMQ',
  description:
    'Checks that everything exists and, with the management API, that it is as it should ' +
    `be. Declares nothing, so it needs no permission to configure. ${BROKER} Exits with 1 ` +
    'when something is missing or differs.',
  options: QUEUE_OPTIONS,
  examples: [{ line: 'respool rabbit topology verify', does: 'ok, or what is wrong' }],
  run: async (context) => (await import('./topology.ts')).verify(context),
};

const exportIt: CommandSpec = {
  name: 'export',
  summary: 'export what the queues need',
  group: 'RabbitMQ',
  description:
    'Prints exchanges, queues, bindings and policies, to declare them in another way. It ' +
    `does not connect to a broker. ${BROKER}`,
  options: [
    ...QUEUE_OPTIONS,
    {
      flags: '--format <format>',
      description: "RabbitMQ's own definitions (default), or resources of Terraform",
      choices: ['definitions', 'terraform'],
    },
  ],
  examples: [
    { line: 'respool rabbit topology export > definitions.json', does: 'for rabbitmqctl import' },
    { line: 'respool rabbit topology export --format terraform', does: 'as resources' },
  ],
  run: async (context) => (await import('./topology.ts')).exportTopology(context),
};

const dump: CommandSpec = {
  name: 'dump',
  summary: 'print everything as the broker has it',
  group: 'RabbitMQ',
  description:
    'Prints exchanges, queues, bindings and policies with their arguments and numbers, for ' +
    `a problem report. Changes nothing, and reads no message. ${BROKER}`,
  options: QUEUE_OPTIONS,
  examples: [{ line: 'respool rabbit topology dump > dump.txt', does: 'all of it in a file' }],
  run: async (context) => (await import('./topology.ts')).dump(context),
};

const migrate: CommandSpec = {
  name: 'migrate',
  summary: 'migrate a queue and its messages to another topology',
  group: 'RabbitMQ',
  description:
    'Declares the new topology, moves messages from the old queues with confirms, and ' +
    'removes queues that are then empty, unbound and without consumers. The new topology is ' +
    'that of the configuration or of --queue; the --from-… options describe the old one. ' +
    'Prints what it would do, and asks. It can be stopped and run again. Exits with 1 while ' +
    'something of the old topology is left.',
  options: [
    ...QUEUE_OPTIONS,
    ...FORMER_OPTIONS,
    { flags: '--leave-waits', description: 'let waiting messages return by themselves' },
    {
      flags: '--old-consumers-gone',
      description: 'no consumer uses the old wait queues any more: they may be removed',
    },
    {
      flags: '--unrelated <pattern>',
      description: 'queues such as other.delay_* that dead-letter elsewhere: ignore their messages',
      repeatable: true,
    },
    YES,
    { flags: '--dry-run', description: 'print what it would do, and do nothing' },
  ],
  examples: [
    {
      line:
        'respool rabbit topology migrate --queue orders-2 --from-queue orders ' +
        '--from-topology perAttempt --dry-run',
      does: 'what moving a queue away from perAttempt would do',
    },
    {
      line: 'respool rabbit topology migrate --queue orders-2 --from-queue orders --yes',
      does: 'to a queue of another name',
    },
  ],
  run: async (context) => (await import('./migrate.ts')).migrateQueues(context),
};

const topology: CommandSpec = {
  name: 'topology',
  summary: 'what the queues need at the broker: plan, apply, verify, export, dump, migrate',
  group: 'RabbitMQ',
  subcommands: [plan, apply, verify, exportIt, dump, migrate],
};

const stats: CommandSpec = {
  name: 'stats',
  summary: 'show counts and rates of the queues',
  group: 'RabbitMQ',
  description:
    'Shows main, wait, dead, parked and unrouted queues: how many messages, at what rate, ' +
    `and what looks wrong. Reads no message. ${BROKER}`,
  options: [
    ...QUEUE_OPTIONS,
    { flags: '--watch', description: 'repeat every 5 seconds, until Ctrl-C' },
  ],
  examples: [
    { line: 'respool rabbit stats', does: 'all queues of the consumers' },
    { line: 'respool rabbit stats --watch --json', does: 'one object every 5 seconds' },
  ],
  run: async (context) => (await import('./stats.ts')).printStats(context),
};

const drain: CommandSpec = {
  name: 'drain',
  summary: 'move the messages of a dead, parked, wait or unrouted queue back to work',
  group: 'RabbitMQ',
  description:
    'Moves messages with confirms back to the queue they belong to, or to another one, at ' +
    'most as many as there were at the beginning. Asks first. The attempts of messages from ' +
    'dead and parked queues start at 0 again. Exits with 1 when some had to stay.',
  arguments: [{ name: '<queue>', description: 'the queue to empty, such as orders.dlq' }],
  options: [
    { flags: '--to <queue>', description: 'where to; default: back to where each belongs' },
    { flags: '--discard', description: 'delete the messages permanently' },
    { flags: '--limit <count>', description: 'at most this many' },
    { flags: '--keep-attempts', description: 'keep the number of attempts already made' },
    MANAGEMENT_OPTION,
    YES,
    { flags: '--dry-run', description: 'only count, change nothing' },
  ],
  examples: [
    { line: 'respool rabbit drain orders.dlq', does: 'counts, asks, and sends them again' },
    {
      line: 'respool rabbit drain orders.parked --to orders-by-hand --limit 100 --yes',
      does: 'a hundred of them elsewhere',
    },
  ],
  run: async (context) => (await import('./drain.ts')).drain(context),
};

const doctor: CommandSpec = {
  name: 'doctor',
  summary: 'report what is unsafe at the broker, and how to fix it',
  group: 'RabbitMQ',
  description:
    'Checks queue types, strategies, delivery limits, bindings, permissions, versions and ' +
    `alarms. Changes nothing. ${BROKER} Exits with 1 when something is bad.`,
  options: QUEUE_OPTIONS,
  examples: [{ line: 'respool rabbit doctor', does: 'the whole report' }],
  run: async (context) => (await import('./doctor.ts')).examineBrokers(context),
};

/** `respool rabbit consume|topology|stats|drain|doctor` */
export const rabbitCommand: CommandSpec = {
  name: 'rabbit',
  summary: 'consume and operate RabbitMQ queues',
  group: 'RabbitMQ',
  subcommands: [consume, topology, stats, drain, doctor],
};
