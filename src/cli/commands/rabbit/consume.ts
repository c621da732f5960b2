/** consume — the consumers of the configuration, without a store, until a signal ends it. */

import { closeHandlers } from '../../../config/open/handlers.ts';
import { createConfiguredConsumers } from '../../../config/open/open-consumers.ts';
import { durationMs } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { EXIT, type ExitCode, exitCodeOf } from '../../exit-codes.ts';
import { levelOf, listenForTheEnd } from '../serve/service.ts';
import { createServeLog } from '../serve/serve-log.ts';
import type { CommandContext } from '../../spec.ts';
import { startConsumers } from './consumers-service.ts';
import { chooseConsumers, readRabbitConfig, WRITE_DOWN } from './queues.ts';

/** Consumes until SIGTERM or SIGINT, or until something that no waiting fixes. */
export async function consumeUntilSignal(context: CommandContext): Promise<ExitCode> {
  const { io, out, atEnd } = context;
  const ending = listenForTheEnd(context);
  const loaded = await readRabbitConfig(context, 'consumers');
  const { config, hide } = loaded;
  const log = createServeLog(io, out, {
    format: config.log.format,
    level: levelOf(context, config.log.level),
    hide,
    redact: config.log.redact,
  });
  const chosen = chooseConsumers(context, loaded, WRITE_DOWN);
  atEnd(() => closeHandlers(config.consumers));
  const { clock } = io;
  const made = await createConfiguredConsumers(loaded, { consumers: chosen, clock });
  const refused = Promise.withResolvers<{ kind: 'refused'; error: unknown }>();
  const onRefused = (error: unknown): void => refused.resolve({ kind: 'refused', error });
  const life = startConsumers(made, { clock, log, onRefused });
  atEnd(() => life.stop(0));
  const end = await Promise.race([ending, refused.promise]);
  const { stopWithin } = config.serve;
  if (end.kind === 'signal') {
    const { signal } = end;
    log.say('info', `stopping after ${signal}, within ${String(stopWithin)}`, { signal });
  } else log.say('error', `stopping: ${textOf(end.error)}`);
  await life.stop(durationMs(stopWithin, 'serve.stopWithin'));
  log.say('info', 'stopped');
  if (end.kind === 'refused') out.error(end.error);
  return end.kind === 'signal' ? EXIT.done : exitCodeOf(end.error);
}
