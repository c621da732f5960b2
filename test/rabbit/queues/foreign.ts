/**
 * foreign — quorum queues that others declared, without a delivery limit: from 4.0 to 4.2 they have
 * one of 20, and nothing looks into them before a policy lifts it.
 */

import { onTestFinished } from 'vitest';
import { cautionOf } from '../../../src/rabbit/queues/delivery-limit.ts';
import type { Management } from 'respool/rabbit';
import { administer } from '../admin/management/setup.ts';

/** Whether this broker gives a delivery limit to a quorum queue that was declared without. */
export async function limitsForeign(management: Management): Promise<boolean> {
  const [major = 0, minor = 0] = (await management.overview()).version.split('.').map(Number);
  return major === 4 && minor < 3;
}

/** Sets the policy that the refusal of a queue names, where it is refused; gone after the test. */
export async function lift(queue: string, management: Management): Promise<void> {
  const caution = await cautionOf({ queue, management, version: undefined });
  if (caution.kind === 'refused') await obey(caution.remedy);
  management.forget();
}

/** Does what a remedy says over HTTP, to the letter. */
export async function obey(remedy: string): Promise<void> {
  const [, path, policy] = /PUT \/api(\S+) (\{.*\})/.exec(remedy) ?? [];
  if (path === undefined || policy === undefined) throw new Error(`no policy in: ${remedy}`);
  await administer('PUT', path, JSON.parse(policy));
  onTestFinished(() => administer('DELETE', path));
}
