/**
 * handlers — what ready-made handlers need before the first message and after the last, and the
 * tracer that spools, consumers and outboxes write to.
 */

import type { ReadyHandler } from '../../deliver/index.ts';
import type { Handler } from '../../ports/handler.ts';
import { inSection } from '../load/config-errors.ts';
import type { Tracer } from '../../ports/tracer.ts';
import type { LoadedConfig } from '../load/load-config.ts';

/** Something that delivers. */
interface Delivers {
  readonly deliver?: Handler | ReadyHandler;
}

/** What a handler misses is said before the first message needs it. */
export function checkHandlers(key: string, list: readonly Delivers[]): void {
  for (const [at, { deliver }] of list.entries()) {
    if (deliver === undefined || !('check' in deliver)) continue;
    inSection(`${key}[${at}].deliver`, () => deliver.check?.());
  }
}

/** Lets go of connections. One handler may serve several routes; closing it once is enough. */
export async function closeHandlers(list: readonly Delivers[]): Promise<void> {
  await Promise.all(
    [...new Set(list.map(({ deliver }) => deliver))].map(async (handler) => {
      if (handler === undefined || !('close' in handler)) return;
      if (typeof handler.close === 'function') await handler.close();
    }),
  );
}

/** The option `tracing` of a spool, a consumer or an outbox; nothing where it is off. */
export async function tracingOf({
  tracing,
}: Pick<LoadedConfig['config'], 'tracing'>): Promise<{ readonly tracing?: Tracer }> {
  if (!tracing.enabled) return {};
  const { openTelemetry } = await import('../../observe/tracing/open-telemetry.ts');
  return { tracing: await openTelemetry() };
}
