/** relay — the relay of an outbox by itself, until a signal ends it. */

import { createConfiguredRelay } from '../../../config/open/open-outbox.ts';
import type { LoadedConfig } from '../../../config/load/load-config.ts';
import { durationMs } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { internalsOf } from '../../../spool/internals.ts';
import type { Spool } from '../../../spool/spool.ts';
import { EXIT, type ExitCode, exitCodeOf } from '../../exit-codes.ts';
import { numberText } from '../../../observe/logs/safe-text.ts';
import { listenForTheEnd } from '../serve/service.ts';
import { createServeLog } from '../serve/serve-log.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseRelay } from './choose.ts';
import { startRelay } from './relay-service.ts';

/** Sends until SIGTERM or SIGINT, or until something that no waiting fixes. */
export async function relayUntilSignal(context: CommandContext): Promise<ExitCode> {
  const { io, out, atEnd } = context;
  const ending = listenForTheEnd(context);
  const { loaded } = await chooseRelay(context);
  const { config, hide } = loaded;
  const { format, redact } = config.log;
  // What is told of is chosen below: every message or none, whatever the level of a service is.
  const level = out.quiet ? 'warn' : 'debug';
  const log = createServeLog(io, out, { format, level, hide, redact });
  const spool = (): Promise<Spool> => openSpool(context, loaded);
  const configured = await createConfiguredRelay(loaded, { spool });
  const { clock } = io;
  const refused = Promise.withResolvers<{ kind: 'refused'; error: unknown }>();
  const onRefused = (error: unknown): void => refused.resolve({ kind: 'refused', error });
  const life = startRelay(configured, { clock, log, onRefused, isVerbose: out.verbose });
  atEnd(() => life.stop(0));
  const end = await Promise.race([ending, refused.promise]);
  const { stopWithin } = config.serve;
  if (end.kind === 'signal') {
    const { signal } = end;
    log.say('info', `stopping after ${signal}, within ${String(stopWithin)}`, { signal });
  } else if (end.kind === 'error') log.say('error', `stopping: ${textOf(end.error)}`);
  // What was refused is said below, where every command says it.
  await life.stop(durationMs(stopWithin, 'serve.stopWithin'));
  log.say('info', `stopped, sent ${numberText(life.sent())}`, { sent: life.sent() });
  if (end.kind === 'refused') out.error(end.error);
  return end.kind === 'signal' ? EXIT.done : exitCodeOf(end.error);
}

/** The spool of the configuration, to send into; nothing is delivered here. */
async function openSpool({ atEnd }: CommandContext, loaded: LoadedConfig): Promise<Spool> {
  const { createConfiguredSpool } = await import('../../../config/open/open-spool.ts');
  const { spool } = await createConfiguredSpool(loaded, { deliver: false });
  atEnd(() => spool.stop({ within: 0 }));
  // A store that another process owns is refused here.
  await internalsOf(spool).open();
  return spool;
}
