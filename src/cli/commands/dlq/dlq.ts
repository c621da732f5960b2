/**
 * dlq — `respool dlq`: messages that were given up, in queues of RabbitMQ and in the spool. Here
 * are the commands that look at letters, note, export, remove and restore them, watch queues and
 * sweep them; beside it those of replays.
 */

import type { CommandSpec, CommandContext, OptionSpec } from '../../spec.ts';
import { replayCommands } from './replay-commands.ts';
import { COUNTED_BY, LOOK_OPTIONS, PLACE_OPTIONS } from './options.ts';
import type { LettersContext, LettersOptions } from './letter-places.ts';
import type { ExitCode } from '../../exit-codes.ts';
import { MANAGEMENT_OPTION } from '../rabbit/queues.ts';
import { OLD_OPTIONS } from './sweep/legacy-options.ts';

const GROUP = 'Dead letters';
const PLACES =
  'Without --queue the letters are those of the spool: bounced messages (dead), held ones ' +
  '(parked) and, where asked for, archived ones. With --queue they are those of queues of ' +
  'RabbitMQ.';
const COSTS =
  'Nothing is changed. If the broker counts each look as a delivery, it says so first. If a ' +
  'look could make the broker drop messages, it is refused, and the policy that helps is ' +
  'printed.';
const LIMIT: OptionSpec = { flags: '--limit <count>', description: 'at most this many letters' };
const YES: OptionSpec = { flags: '--yes', description: 'do not ask' };
const DRY_RUN: OptionSpec = {
  flags: '--dry-run',
  description: 'only count, change nothing',
};
const REMOVE_OPTIONS: readonly OptionSpec[] = [
  ...LOOK_OPTIONS,
  LIMIT,
  { flags: '--hard', description: 'permanently, without a copy; cannot be undone' },
  { flags: '--reason <text>', description: 'the reason, for the audit record' },
  DRY_RUN,
];

/** A look must not leave a store behind. */
const LOOKING = (): LettersOptions => ({ mayCreate: false });

/** A run at letters; what it needs is loaded when it is called. */
function at(
  run: (context: LettersContext) => Promise<ExitCode>,
  wishes?: (context: CommandContext) => LettersOptions,
): (context: CommandContext) => Promise<ExitCode> {
  return async (context) => {
    const { atLetters } = await import('./letter-places.ts');
    return run(atLetters(context, wishes?.(context)));
  };
}

const list: CommandSpec = {
  name: 'list',
  summary: 'show dead letters, by cause, place, age and more',
  group: GROUP,
  description:
    'Prints one line per letter: those of a queue oldest first, those of the spool by id, ' +
    `which is the same order only where Respool generated the ids. ${PLACES} ${COSTS}`,
  options: [
    ...LOOK_OPTIONS,
    { ...LIMIT, description: 'at most this many; default 100, with --json all' },
  ],
  examples: [
    { line: 'respool dlq list', does: 'what bounced or is held in the spool' },
    { line: "respool dlq list --queue '*.dlq' --category network", does: 'of all dead queues' },
  ],
  role: 'read',
  run: at(async (context) => (await import('./list.ts')).list(context), LOOKING),
};

const show: CommandSpec = {
  name: 'show',
  summary: 'show a dead letter in full, with its headers and body',
  group: GROUP,
  description: `Shows every letter with this id. ${PLACES} ${COSTS}`,
  arguments: [{ name: '<id>', description: 'its message id, also by its beginning' }],
  options: LOOK_OPTIONS,
  examples: [{ line: 'respool dlq show order-4711 --queue orders.dlq', does: 'all of it' }],
  role: 'read',
  run: at(async (context) => (await import('./list.ts')).showLetter(context), LOOKING),
};

const exportIt: CommandSpec = {
  name: 'export',
  summary: 'write dead letters with their bodies as lines of JSON',
  group: GROUP,
  description:
    'Prints one object per line: what is known about the letter, and its body as "json", ' +
    `"text" or "base64", whichever is the most readable without loss. ${PLACES} ${COSTS}`,
  options: [
    ...LOOK_OPTIONS,
    LIMIT,
    { flags: '--output <file>', description: 'write to this file, which must not exist yet' },
  ],
  examples: [
    { line: 'respool dlq export --queue orders.dlq --output dead.jsonl', does: 'all of a queue' },
  ],
  role: 'read',
  run: at(async (context) => (await import('./list.ts')).exportLetters(context), LOOKING),
};

const count: CommandSpec = {
  name: 'count',
  summary: 'count dead letters, by place, group, code, category or topic',
  group: GROUP,
  description:
    `Counts letters. ${PLACES} ${COSTS} Without filters, queues are counted without looking ` +
    'into them.',
  options: [
    ...LOOK_OPTIONS,
    { flags: '--by <what>', description: 'default place', choices: COUNTED_BY },
  ],
  examples: [{ line: "respool dlq count --queue '*.dlq' --by category", does: 'what is wrong' }],
  role: 'read',
  run: at(async (context) => (await import('./groups.ts')).printCounts(context), LOOKING),
};

const groups: CommandSpec = {
  name: 'groups',
  summary: 'group dead letters by cause, the most frequent first',
  group: GROUP,
  description:
    'Letters that died of the same cause at the same place form one group: the same code, ' +
    'reason (ignoring ids and numbers), topic or queue, and origin. Categories can be ' +
    'extended by ' +
    `rules in "deadLetters.categories" of the configuration. ${PLACES} ${COSTS}`,
  options: [
    ...LOOK_OPTIONS,
    { flags: '--samples <count>', description: 'ids of each group, with --json; default 3' },
    { ...LIMIT, description: 'at most this many groups' },
  ],
  examples: [
    { line: 'respool dlq groups', does: 'of the spool' },
    { line: "respool dlq groups --queue '*.dlq' --json", does: 'with ids of some letters' },
  ],
  role: 'read',
  run: at(async (context) => (await import('./groups.ts')).printGroups(context), LOOKING),
};

const note: CommandSpec = {
  name: 'note',
  summary: 'add a note to a group, or show it',
  group: GROUP,
  description:
    'Keeps one note per group, with its author and time, which is shown with the group and ' +
    'its letters.',
  arguments: [
    { name: '<group>', description: 'as dlq groups shows it' },
    { name: '[text]', description: 'the note; without it, the current one is shown' },
  ],
  options: [{ flags: '--forget', description: 'remove the note' }],
  examples: [
    {
      line: "respool dlq note 01k2x9w3q7z 'reported to the vendor, ticket 4711'",
      does: 'writes it down',
    },
    { line: 'respool dlq note 01k2x9w3q7z --forget', does: 'takes it away' },
  ],
  role: 'operate',
  run: at(
    async (context) => (await import('./groups.ts')).note(context),
    ({ args }) => ({ mayCreate: args.length > 1, routes: false }),
  ),
};

const remove: CommandSpec = {
  name: 'remove',
  summary: 'remove dead letters; dlq restore brings them back, unless --hard',
  group: GROUP,
  description:
    'Letters removed from the spool are archived; letters removed from a queue are archived ' +
    'in the spool first, and then acknowledged. Both are kept for a while ' +
    `(retention.removed, default 7d). With --hard they are removed permanently. ${PLACES}`,
  arguments: [
    {
      name: '[id...]',
      description: 'letters, also by the beginning of an id; - reads ids from stdin',
    },
  ],
  options: [...REMOVE_OPTIONS, YES],
  examples: [
    { line: 'respool dlq remove order-4711 --queue orders.dlq', does: 'one letter' },
    { line: 'respool dlq remove --category validation --older-than 30d', does: 'counts, asks' },
  ],
  role: 'operate',
  run: at(async (context) => (await import('./remove.ts')).remove(context)),
};

const purge: CommandSpec = {
  name: 'purge',
  summary: 'remove all matching dead letters after confirming their number',
  group: GROUP,
  description:
    'Counts matching letters and asks for that number. In scripts, pass it with --count; if ' +
    'it differs, nothing is done. As with dlq remove, letters are kept for a while, unless ' +
    `--hard is given. ${PLACES}`,
  options: [
    ...REMOVE_OPTIONS,
    { flags: '--count <number>', description: 'the expected number, instead of typing it' },
  ],
  examples: [
    { line: 'respool dlq purge --queue orders.dlq', does: 'counts, and asks for the number' },
    { line: 'respool dlq purge --queue orders.dlq --count 1523', does: 'in a script' },
  ],
  role: 'operate',
  run: at(async (context) => (await import('./remove.ts')).purge(context)),
};

const restore: CommandSpec = {
  name: 'restore',
  summary: 'restore removed letters: into their queue, or on hold in the spool',
  group: GROUP,
  description:
    'A letter removed from a queue is published to that queue again, confirmed, and then ' +
    'removed from the archive. A message of the spool is put on hold: retry sends it; so ' +
    'does release, except that a message that had bounced returns to bounce. Ids are those ' +
    'in the archive, or those that the letters had in their queues. Letters removed at ' +
    'another broker, or in another virtual host, are refused. The original of a letter that ' +
    'a replay changed is restored only by its own id in the archive.',
  arguments: [
    {
      name: '[id...]',
      description: 'letters, of the spool also by the beginning of an id; - reads ids from stdin',
    },
  ],
  options: [
    ...PLACE_OPTIONS.filter(({ flags }) => flags !== '--trust-limit').map((option) =>
      option.flags.startsWith('--queue')
        ? { ...option, description: 'everything removed from these queues; * and ? allowed' }
        : option,
    ),
    {
      flags: '--any-broker',
      description: 'include letters that were removed at another broker',
    },
    LIMIT,
    YES,
    DRY_RUN,
  ],
  examples: [
    { line: 'respool dlq restore order-4711', does: 'one letter' },
    { line: 'respool dlq restore --queue orders.dlq', does: 'counts, asks, puts all back' },
  ],
  role: 'operate',
  run: at(async (context) => (await import('./restore.ts')).restore(context)),
};

const lookCommands: readonly CommandSpec[] = [
  list,
  show,
  exportIt,
  count,
  groups,
  note,
  remove,
  purge,
  restore,
];

const BROKER_OPTION: OptionSpec = {
  flags: '--broker <url>',
  description: 'the broker, where --url names a service',
};

const sweep: CommandSpec = {
  name: 'sweep',
  summary: 'move messages that died too often from dead queues to a queue for permanent failures',
  group: 'Dead letters',
  description:
    'Goes through each dead queue once and moves messages that have died more often than ' +
    '--max to the target, with confirms; the rest stays where it is, in its order. In names ' +
    '* matches any part and ? one character; in the target they are replaced by what they ' +
    'matched in the name of the queue, and a target without any receives the letters of all ' +
    'queues. Dead queues of Respool are named {queue}.dlq; dlq.* is the naming of some other ' +
    'systems. A queue that fails does not stop the others; one that another process is ' +
    'sweeping is skipped. A queue in which a look could make the broker drop a message is ' +
    'refused, and the policy that helps is printed. Exits with 1 when a queue failed, was ' +
    'refused or is locked. With --every it runs until SIGTERM or Ctrl-C, with --listen it ' +
    'answers /healthz, /readyz and /metrics. The settings of rmq_retry_checker are accepted ' +
    'under their old names: as flags, in its YAML file given by --config and in the ' +
    'environment (RMQ_HOST, RMQ_PORT, RMQ_MGMT_PORT, RMQ_USERNAME, RMQ_PASSWORD, RMQ_VHOST, ' +
    'RMQ_USE_SSL, RMQ_SSL_VERIFY, DLQ_NAME, TARGET_QUEUE, MAX_RETRY_COUNT, DEDUP_FILE, ' +
    'DEDUP_MAX_AGE_HOURS): flags override the file, the file overrides the environment, and ' +
    'where any of these names is used, the defaults of rmq_retry_checker apply. --json ' +
    'prints one object per run: status (success or error), timestamp, error, config, ' +
    'results {messages_processed, moved, requeued, duration_seconds} and, of several ' +
    'queues, queue_statistics, as rmq_retry_checker does; and dryRun, total, queues, each ' +
    'with queue, target, total, seen, moved, left, already, end, error and tookMs, and ' +
    'problems.',
  options: [
    {
      flags: '--queue <pattern>',
      description: 'the dead queues, * and ? allowed',
      repeatable: true,
    },
    {
      flags: '--target <name>',
      description: 'the target queue, with as many * and ? as the queues, or none',
    },
    { flags: '--max <count>', description: 'number of deaths a message may have; default 3' },
    { flags: '--limit <count>', description: 'move at most this many in a run' },
    { flags: '--parallel <count>', description: 'queues at once; default 4' },
    {
      flags: '--window <count>',
      description: 'maximum number of messages in hand per queue; default 100',
    },
    {
      flags: '--require-target',
      description: 'fail if a target does not exist, instead of creating it',
    },
    {
      flags: '--count-reasons <reasons>',
      description: 'count only deaths for these reasons',
      choices: ['rejected', 'expired', 'maxlen', 'delivery_limit'],
      repeatable: true,
    },
    {
      flags: '--count-queues <pattern>',
      description: 'count only deaths in these queues',
      repeatable: true,
    },
    {
      flags: '--trust-limit',
      description: 'sweep even if the delivery limit of the broker is unknown',
    },
    { flags: '--dry-run', description: 'print what would be moved, and move nothing' },
    { flags: '--every <span>', description: 'repeat at this interval, such as 5m, until a signal' },
    {
      flags: '--listen <host:port>',
      description:
        'with --every: answer /healthz, /readyz and /metrics; a port alone: this machine',
    },
    BROKER_OPTION,
    MANAGEMENT_OPTION,
    ...OLD_OPTIONS,
  ],
  examples: [
    {
      line: "respool dlq sweep --queue '*.dlq' --target '*.dead' --max 3",
      does: 'orders.dlq to orders.dead, and so on',
    },
    {
      line: "respool dlq sweep --queue 'dlq.*' --target failed --dry-run",
      does: 'queues of another system; prints what would go to one queue for all',
    },
    {
      line: "respool dlq sweep --queue '*.dlq' --target '*.dead' --every 5m --listen :9419",
      does: 'keeps running, with health and metrics on this machine',
    },
    { line: 'respool dlq sweep --config config.yaml', does: 'as rmq_retry_checker did' },
  ],
  role: 'operate',
  createsStore: true,
  run: async (context) => (await import('./sweep/sweep.ts')).sweep(context),
};

const watch: CommandSpec = {
  name: 'watch',
  summary: 'notify when a dead queue fills up, and when it is back to normal',
  group: 'Dead letters',
  description:
    'Counts the messages in dead queues, or without --queue in the spool (dead: bounced, ' +
    'parked: held), and notifies once when there are more than --above, and once when there ' +
    'no longer are. The state is stored, so a restart repeats no notification. No message ' +
    'is read. A hook that fails is called again in the next round. --exec gets the alert as ' +
    'JSON on stdin and as DLQ_EVENT, DLQ_QUEUE and DLQ_DEPTH; --webhook gets it as JSON by ' +
    'POST. SIGTERM or Ctrl-C ends it.',
  options: [
    {
      flags: '--queue <pattern>',
      description: 'queues of RabbitMQ, * and ? allowed; default: the spool',
      repeatable: true,
    },
    { flags: '--above <count>', description: 'notify above this number; default 0' },
    { flags: '--every <span>', description: 'how often to look; default 30s' },
    { flags: '--exec <command>', description: 'run this for each alert, with a shell' },
    { flags: '--webhook <url>', description: 'post each alert there' },
    BROKER_OPTION,
    MANAGEMENT_OPTION,
  ],
  examples: [
    { line: "respool dlq watch --queue '*.dlq'", does: 'a line when one is no longer empty' },
    {
      line: "respool dlq watch --queue '*.dlq' --above 100 --webhook https://chat.example/hook",
      does: 'notifies a chat',
    },
  ],
  role: 'operate',
  run: async (context) => (await import('./sweep/watch.ts')).watchDeadQueues(context),
};

/** `respool dlq …` */
export const dlqCommand: CommandSpec = {
  name: 'dlq',
  summary: 'inspect, repair and replay dead letters, sweep dead queues',
  group: 'Dead letters',
  subcommands: [...lookCommands, sweep, watch, ...replayCommands],
};
