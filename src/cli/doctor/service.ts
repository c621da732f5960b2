/** service — does a service answer at an address, is it ready, and which version is it? */

import { SECOND_MS } from '../../core/duration.ts';
import type { Clock } from '../../ports/clock.ts';
import { type DoctorFinding, note, ok, unsafe } from './finding.ts';

const ANSWERS_WITHIN_MS: number = 2 * SECOND_MS;

/** What was found out. */
export interface ServiceFound {
  readonly isThere: boolean;
  readonly findings: readonly DoctorFinding[];
}

/** Asks what anybody may ask; no token is sent. */
export async function examineService(url: string, clock: Clock): Promise<ServiceFound> {
  const health = await ask(url, '/healthz', clock);
  if (health === undefined) {
    return { isThere: false, findings: [note('service', `no service answers at ${url}`)] };
  }
  if (health.status !== 200 || (health.body as { ok?: unknown } | undefined)?.ok !== true) {
    const text = `something answers at ${url} that is not respool (status ${health.status})`;
    const todo = 'give the service another port, or end what has this one';
    return { isThere: false, findings: [unsafe('service', text, todo)] };
  }
  const ready = await ask(url, '/readyz', clock);
  const api = await ask(url, '/openapi.json', clock);
  const { info } = (api?.body ?? {}) as { info?: { version?: unknown } };
  const version = typeof info?.version === 'string' ? `, API ${info.version}` : '';
  const text = `a service answers at ${url}${version}`;
  if (ready?.status === 200) return { isThere: true, findings: [ok('service', `${text}, ready`)] };
  const todo = 'it is starting or stopping, or has lost its store: look at its log';
  return { isThere: true, findings: [unsafe('service', `${text}, but is not ready`, todo)] };
}

async function ask(
  url: string,
  where: string,
  clock: Clock,
): Promise<{ status: number; body: unknown } | undefined> {
  const late = new AbortController();
  const callOff = clock.after(ANSWERS_WITHIN_MS, () => late.abort());
  try {
    const answer = await fetch(new URL(where, url), { signal: late.signal, redirect: 'error' });
    const text = await answer.text();
    return { status: answer.status, body: parsed(text) };
  } catch {
    // Whatever the reason, nobody answered.
    return undefined;
  } finally {
    callOff();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Not ours then; the status says enough.
    return undefined;
  }
}
