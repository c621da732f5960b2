/** `respool dlq` — sweep and watch. */

import { MANAGEMENT_OPTION } from '../rabbit/queues.ts';
import type { CommandSpec, OptionSpec } from '../spec.ts';

const BROKER_OPTION: OptionSpec = {
  flags: '--broker <url>',
  description: 'the broker, where --url names a service',
};

const watch: CommandSpec = {
  name: 'watch',
  summary: 'tell when a dead queue fills up, and when it is back',
  group: 'Dead letters',
  description:
    'Looks how many messages lie in dead queues, or without --queue in the spool (dead: ' +
    'bounced, parked: held), and tells once when there are more than --above and once when there ' +
    'no longer are. What was told is remembered in the store, so that a restart tells nothing ' +
    'twice. No message is looked at. A hook that fails is called again at the next round. ' +
    '--exec gets the alert as JSON on stdin and as DLQ_EVENT, DLQ_QUEUE and DLQ_DEPTH; --webhook ' +
    'gets it as JSON by POST. SIGTERM or Ctrl-C ends it.',
  options: [
    {
      flags: '--queue <pattern>',
      description: 'queues of RabbitMQ, * and ? allowed; default: the spool',
      repeatable: true,
    },
    { flags: '--above <n>', description: 'how many there may be; default 0' },
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
      does: 'tells a chat',
    },
  ],
  role: 'operate',
  run: async (context) => (await import('../sweep/watch.ts')).watchDeadQueues(context),
};

export const sweepCommands: readonly CommandSpec[] = [watch];
