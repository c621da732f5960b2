/**
 * commands — every command, in the order of the help.
 *
 * Help, completions and the reference are made of this table. The files load nothing heavy before
 * their `run`, so that naming them all costs little.
 */

import { alertsCommand } from './commands/alerts/alerts.ts';
import { auditCommand } from './commands/inspect/audit.ts';
import { benchCommand } from './commands/maintain/bench.ts';
import {
  bounceCommand,
  holdCommand,
  releaseCommand,
  removeCommand,
  retryCommand,
} from './commands/control/moves.ts';
import { catCommand } from './commands/messages/cat.ts';
import { checkCommand } from './commands/maintain/check.ts';
import { completionCommand } from './commands/start/completion.ts';
import { configCommand } from './commands/maintain/config.ts';
import { dlqCommand } from './commands/dlq/dlq.ts';
import { doctorCommand } from './commands/doctor/doctor.ts';
import { enqueueCommand } from './commands/messages/enqueue.ts';
import { eventsCommand } from './commands/inspect/events.ts';
import { initCommand } from './commands/start/init.ts';
import { keysCommand, rekeyCommand } from './commands/maintain/keys.ts';
import { listCommand } from './commands/messages/list.ts';
import { outboxCommand } from './commands/outbox/outbox.ts';
import { pauseCommand, resumeCommand } from './commands/control/pause.ts';
import { policyCommand } from './commands/control/policy.ts';
import { rabbitCommand } from './commands/rabbit/rabbit.ts';
import { serveCommand } from './commands/serve/serve.ts';
import { shapeCommand } from './commands/inspect/shape.ts';
import { showCommand } from './commands/messages/show.ts';
import { statsCommand } from './commands/inspect/stats.ts';
import { tokenCommand } from './commands/maintain/token.ts';
import type { CommandSpec } from './spec.ts';

/** Every command. */
export const commands: readonly CommandSpec[] = [
  initCommand,
  serveCommand,
  completionCommand,
  enqueueCommand,
  listCommand,
  showCommand,
  catCommand,
  holdCommand,
  releaseCommand,
  retryCommand,
  bounceCommand,
  removeCommand,
  policyCommand,
  pauseCommand,
  resumeCommand,
  statsCommand,
  shapeCommand,
  eventsCommand,
  auditCommand,
  alertsCommand,
  configCommand,
  tokenCommand,
  keysCommand,
  rekeyCommand,
  checkCommand,
  doctorCommand,
  benchCommand,
  rabbitCommand,
  dlqCommand,
  outboxCommand,
];
