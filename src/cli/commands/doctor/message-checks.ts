/**
 * message-checks — what waits, is held or has bounced, and whether somebody delivers. Only looks.
 */

import type { Control, Stats } from '../../../operator/operator.ts';
import type { EffectiveRoute } from '../../../config/load/routes.ts';
import { DAY_MS } from '../../../core/duration.ts';
import type { Clock } from '../../../ports/clock.ts';
import { span } from '../../ui/times.ts';
import { type DoctorFinding, note, ok } from './finding.ts';
import { examineNewest } from './environment-checks.ts';
import { examineRouting } from './routing.ts';

/** Messages that are looked at for the policies they name. */
const SAMPLE_MAX = 500;

/** What the messages are looked at with. */
export interface Surroundings {
  readonly clock: Clock;
  readonly isServed: boolean;
  /** The routes of the configuration here, in their order. */
  readonly routes: readonly Pick<EffectiveRoute, 'topic' | 'deliver'>[];
}

/** What the store holds, as an operator sees it. */
export async function examineMessages(
  control: Control,
  { clock, isServed, routes }: Surroundings,
): Promise<DoctorFinding[]> {
  const stats = await control.stats();
  const newest = await control.page({ order: 'updatedAt', descending: true, limit: 1 });
  return [
    ...examineStats(stats, isServed),
    ...examineNewest(newest.entries[0]?.status.updatedAt, clock.now()),
    ...(newest.corrupt.length > 0
      ? [
          note(
            'messages.corrupt',
            `${newest.corrupt.length} entries cannot be read`,
            'run: respool check',
          ),
        ]
      : []),
    ...(await examineRouting(control, routes)),
    ...(await examinePolicies(control)),
  ];
}

/** Counts and ages. */
export function examineStats(stats: Stats, isServed: boolean): DoctorFinding[] {
  const { at, states, paused } = stats;
  const { incoming, deferred, hold, bounce, active } = states;
  const waiting = incoming.count + deferred.count;
  const findings = [ok('messages.waiting', `${waiting} wait, ${active.count} are being delivered`)];
  for (const { topic, by } of paused) {
    const text = `${topic === '#' ? 'everything' : `"${topic}"`} is paused by ${by}`;
    findings.push(note('messages.paused', text, `respool resume '${topic}'`));
  }
  if (hold.count > 0) {
    const todo = 'respool list --state hold; then respool release or respool remove';
    findings.push(note('messages.held', `${hold.count} held`, todo));
  }
  if (bounce.count > 0) {
    const todo = 'respool list --state bounce; then respool retry or respool remove';
    findings.push(note('messages.bounced', `${bounce.count} bounced`, todo));
  }
  const oldestMs = deferred.oldestAt === null ? 0 : at - deferred.oldestAt;
  if (deferred.count > 0 && deferred.oldestAt !== null) {
    const text = `the oldest deferred message came ${span(oldestMs)} ago`;
    const todo = 'respool shape shows what waits where';
    findings.push(
      oldestMs > DAY_MS ? note('messages.deferred', text, todo) : ok('messages.deferred', text),
    );
  }
  if (waiting > 0 && !isServed) {
    const text = 'messages wait and no service answers; a program of yours may deliver them';
    findings.push(note('messages.nobody', text, 'respool serve'));
  }
  return findings;
}

async function examinePolicies(control: Control): Promise<DoctorFinding[]> {
  const known = new Set((await control.policies()).map(({ name }) => name));
  const { entries } = await control.page({
    state: ['incoming', 'active', 'deferred', 'hold'],
    limit: SAMPLE_MAX,
  });
  const unknown = new Map<string, number>();
  for (const { status } of entries) {
    const { policy } = status;
    if (policy === null || known.has(policy)) continue;
    unknown.set(policy, (unknown.get(policy) ?? 0) + 1);
  }
  return [...unknown].map(([policy, count]) =>
    note(
      'messages.policy',
      `${count} of the first ${entries.length} messages name the policy "${policy}", which is ` +
        'not configured',
      `configure it, or: respool policy set default --state deferred`,
    ),
  );
}
