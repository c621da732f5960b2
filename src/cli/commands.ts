/**
 * commands — every command, in the order of the help.
 *
 * Help, completions and the reference are made of this table. The files load nothing heavy before
 * their `run`, so that naming them all costs little.
 */

import { alerts } from './commands/alerts/alerts.ts';
import { audit } from './commands/inspect/audit.ts';
import { bench } from './commands/maintain/bench.ts';
import { bounce, hold, release, remove, retry } from './commands/control/moves.ts';
import { cat } from './commands/messages/cat.ts';
import { check } from './commands/maintain/check.ts';
import { completion } from './commands/start/completion.ts';
import { config } from './commands/maintain/config.ts';
import { dlq } from './commands/dlq/dlq.ts';
import { doctor } from './commands/doctor/doctor.ts';
import { enqueue } from './commands/messages/enqueue.ts';
import { events } from './commands/inspect/events.ts';
import { init } from './commands/start/init.ts';
import { keys, rekey } from './commands/maintain/keys.ts';
import { list } from './commands/messages/list.ts';
import { outbox } from './commands/outbox/outbox.ts';
import { pause, resume } from './commands/control/pause.ts';
import { policy } from './commands/control/policy.ts';
import { rabbit } from './commands/rabbit/rabbit.ts';
import { serve } from './commands/serve/serve.ts';
import { shape } from './commands/inspect/shape.ts';
import { show } from './commands/messages/show.ts';
import { stats } from './commands/inspect/stats.ts';
import { token } from './commands/maintain/token.ts';
import type { CommandSpec } from './spec.ts';

/** Every command. */
export const commands: readonly CommandSpec[] = [
  init,
  serve,
  completion,
  enqueue,
  list,
  show,
  cat,
  hold,
  release,
  retry,
  bounce,
  remove,
  policy,
  pause,
  resume,
  stats,
  shape,
  events,
  audit,
  alerts,
  config,
  token,
  keys,
  rekey,
  check,
  doctor,
  bench,
  rabbit,
  dlq,
  outbox,
];
