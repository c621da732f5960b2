/** tracing — who writes spans by `tracing.enabled` of a configuration; the package loads then. */

import type { Tracer } from '../../ports/tracer.ts';
import type { LoadedConfig } from '../load/load-config.ts';

/** The option `tracing` of a spool, a consumer or an outbox; nothing where it is off. */
export async function tracingOf({
  tracing,
}: Pick<LoadedConfig['config'], 'tracing'>): Promise<{ readonly tracing?: Tracer }> {
  if (!tracing.enabled) return {};
  const { openTelemetry } = await import('../../observe/tracing/open-telemetry.ts');
  return { tracing: await openTelemetry() };
}
