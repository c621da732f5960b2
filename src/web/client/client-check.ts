/**
 * client-check — a check through a service: one request for the report, and a look every second at
 * how far it is for whoever wants to know.
 */

import type { Control } from '../../operator/operator.ts';
import { SECOND_MS } from '../../core/duration.ts';
import type { CheckReport } from '../../spool/check.ts';
import * as forms from './answers.ts';
import type { ServiceClient } from './http.ts';

type CheckOptions = NonNullable<Parameters<Control['check']>[0]>;

/** Asks for a check, and tells how far it is. */
export async function askCheck(
  client: ServiceClient,
  { repair = false, onProgress }: CheckOptions = {},
): Promise<CheckReport> {
  const over = new AbortController();
  const report = client.ask('/v1/check', forms.report, { method: 'POST', json: { repair } });
  // How far it is, is a comfort: where it cannot be told, the report still comes.
  if (onProgress !== undefined) void follow(client, onProgress, over.signal).catch(() => undefined);
  return report.finally(() => over.abort());
}

async function follow(
  client: ServiceClient,
  onProgress: NonNullable<CheckOptions['onProgress']>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await client.wait(SECOND_MS, signal);
    const { running } = await client.ask('/v1/check', forms.checks, { signal });
    // Of several the youngest is the likeliest to be ours.
    const own = running.at(-1);
    if (own !== undefined && !signal.aborted) onProgress(own);
  }
}
