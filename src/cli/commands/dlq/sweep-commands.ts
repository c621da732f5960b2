/** `respool dlq` — sweep and watch. */

import { MANAGEMENT_OPTION } from '../rabbit/queues.ts';
import type { CommandSpec, OptionSpec } from '../../spec.ts';
import { OLD_OPTIONS } from './sweep/legacy-options.ts';

const BROKER_OPTION: OptionSpec = {
  flags: '--broker <url>',
  description: 'the broker, where --url names a service',
};

const sweep: CommandSpec = {
  name: 'sweep',
  summary: 'move messages that died too often from dead queues to a queue for permanent failures',
  group: 'Dead letters',
  description:
    'Goes through each dead queue once and moves messages that have died more often than --max ' +
    'to the target, with confirms; the rest stays where it is, in its order. In names * stands ' +
    'for any part and ? for one character; in the target they stand for what they stood for in ' +
    'the queue, and a target without any is one for all. A queue that fails does not stop the ' +
    'others; one that another process is sweeping is skipped. Where a look could make the broker ' +
    'drop a message the queue is refused, with the policy that helps. Ends with 1 when a queue ' +
    'failed, was refused or is locked. ' +
    'With --every it runs until SIGTERM or Ctrl-C, with --listen it answers /healthz, ' +
    '/readyz and /metrics. ' +
    'The settings of rmq_retry_checker hold under their old names, as flags, in its YAML file ' +
    'given by --config and in the environment (RMQ_HOST, RMQ_PORT, RMQ_MGMT_PORT, RMQ_USERNAME, ' +
    'RMQ_PASSWORD, RMQ_VHOST, RMQ_USE_SSL, RMQ_SSL_VERIFY, DLQ_NAME, TARGET_QUEUE, ' +
    'MAX_RETRY_COUNT, DEDUP_FILE, DEDUP_MAX_AGE_HOURS): flags first, then the file, then the ' +
    'environment, and its defaults where any of these names is used. ' +
    '--json prints one object per run: status (success or error), timestamp, error, config, ' +
    'results {messages_processed, moved, requeued, duration_seconds} and, of several queues, ' +
    'queue_statistics, as rmq_retry_checker does; and dryRun, total, queues, each with queue, ' +
    'target, total, seen, moved, left, already, end, error and tookMs, and problems.',
  options: [
    {
      flags: '--queue <pattern>',
      description: 'the dead queues, * and ? allowed',
      repeatable: true,
    },
    {
      flags: '--target <name>',
      description: 'where to, with as many * and ? as the queues or none',
    },
    { flags: '--max <count>', description: 'deaths that a message may have; default 3' },
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
      line: "respool dlq sweep --queue 'dlq.*' --target 'dead.*' --max 3",
      does: 'dlq.orders to dead.orders, and so on',
    },
    {
      line: "respool dlq sweep --queue 'dlq.*' --target failed --dry-run",
      does: 'says what would go to one queue for all',
    },
    {
      line: "respool dlq sweep --queue 'dlq.*' --target 'dead.*' --every 5m --listen :9419",
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
    'parked: held), and notifies once when there are more than --above and once when there no ' +
    'longer are. The state is stored, so a restart repeats no notification. ' +
    'No message is read. A hook that fails is called again at the next round. ' +
    '--exec gets the alert as JSON on stdin and as DLQ_EVENT, DLQ_QUEUE and DLQ_DEPTH; --webhook ' +
    'gets it as JSON by POST. SIGTERM or Ctrl-C ends it.',
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

export const sweepCommands: readonly CommandSpec[] = [sweep, watch];
