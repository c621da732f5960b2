/** session — an operator over an outbox, where every command of a spool works. */

import {
  type ConfiguredOutbox,
  createConfiguredOutbox,
  type OpenOutboxOptions,
} from '../../../config/open/open-outbox.ts';
import { byOf, type Session } from '../../session.ts';
import type { CommandContext } from '../../spec.ts';
import { chooseOutbox } from './choose.ts';
import { placeText } from './relay-service.ts';

/** The same context with its session over the outbox that options and configuration lead to. */
export function withOutbox(context: CommandContext): CommandContext {
  let session: Promise<Session> | undefined;
  return { ...context, isOutbox: true, session: () => (session ??= openOutboxSession(context)) };
}

async function openOutboxSession(context: CommandContext): Promise<Session> {
  const { outbox } = await openOutbox(context);
  const as: Session['as'] = (by) => outbox.spool.operator({ by });
  return { operator: as(byOf(context.io)), as, url: undefined, isSealed: false };
}

/** The outbox, closed when the command ends. */
export async function openOutbox(
  context: CommandContext,
  { file }: Pick<OpenOutboxOptions, 'file'> = {},
): Promise<ConfiguredOutbox> {
  const { loaded, outbox } = await chooseOutbox(context);
  const configured = await createConfiguredOutbox(loaded, outbox, { file });
  context.atEnd(() => configured.close());
  context.out.detail(`the outbox in ${placeText(configured.info)}`);
  return configured;
}
