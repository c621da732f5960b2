/** `respool dlq` — messages that were given up: in queues of RabbitMQ, and in the spool. */

import type { CommandSpec } from '../../spec.ts';
import { lookCommands } from './look-commands.ts';
import { replayCommands } from './replay-commands.ts';
import { sweepCommands } from './sweep-commands.ts';

/** `respool dlq …` */
export const dlqCommand: CommandSpec = {
  name: 'dlq',
  summary: 'inspect, repair and replay dead letters, sweep dead queues',
  group: 'Dead letters',
  subcommands: [...lookCommands, ...sweepCommands, ...replayCommands],
};
