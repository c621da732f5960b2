/**
 * commands — every command, in the order of the help.
 *
 * Help, completions and the reference are made of this table. The files load nothing heavy before
 * their `run`, so that naming them all costs little.
 */

import { alerts } from './commands/alerts.ts';
import { audit } from './commands/audit.ts';
import { bench } from './commands/bench.ts';
import { bounce } from './commands/bounce.ts';
import { cat } from './commands/cat.ts';
import { check } from './commands/check.ts';
import { completion } from './commands/completion.ts';
import { config } from './commands/config.ts';
import { dlq } from './commands/dlq.ts';
import { doctor } from './commands/doctor.ts';
import { enqueue } from './commands/enqueue.ts';
import { events } from './commands/events.ts';
import { hold } from './commands/hold.ts';
import { init } from './commands/init.ts';
import { keys } from './commands/keys.ts';
import { list } from './commands/list.ts';
import { outbox } from './commands/outbox.ts';
import { pause } from './commands/pause.ts';
import { policy } from './commands/policy.ts';
import { rabbit } from './commands/rabbit.ts';
import { rekey } from './commands/rekey.ts';
import { release } from './commands/release.ts';
import { remove } from './commands/remove.ts';
import { resume } from './commands/resume.ts';
import { retry } from './commands/retry.ts';
import { serve } from './commands/serve.ts';
import { shape } from './commands/shape.ts';
import { show } from './commands/show.ts';
import { stats } from './commands/stats.ts';
import { token } from './commands/token.ts';
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
