/** routing — whether the routes of the configuration can deliver what waits. Only looks. */

import type { Control } from '../../../operator/operator.ts';
import { describeHandler, type EffectiveRoute } from '../../../config/load/routes.ts';
import { topicMatches } from '../../../core/topic.ts';
import type { TallyRow } from '../../../ports/entry-store.ts';
import { type DoctorFinding, note } from './finding.ts';

/** Only messages that have not ended and that nobody holds back. */
const WAITING = { state: ['incoming', 'deferred'], lane: 'delivery' } as const;
/** Topics whose destinations are asked for; each is a question of its own. */
const TOPICS_MAX = 100;
const EXAMPLES_MAX = 3;

type Routes = readonly Pick<EffectiveRoute, 'topic' | 'deliver'>[];

/** Topics without a route, and destinations without an address. */
export async function examineRouting(
  control: Pick<Control, 'tally'>,
  routes: Routes,
): Promise<DoctorFinding[]> {
  // That nothing is delivered from here is said where routes are looked at.
  if (routes.length === 0) return [];
  const topics = await control.tally('topic', WAITING);
  const unrouted: TallyRow[] = [];
  const byDestination: { readonly row: TallyRow; readonly at: number; readonly urls: object }[] =
    [];
  for (const row of topics) {
    const at = routes.findIndex(({ topic }) => topicMatches(topic, row.key));
    const route = routes[at];
    if (route === undefined) {
      unrouted.push(row);
      continue;
    }
    const { urls } = describeHandler(route.deliver);
    if (typeof urls === 'object' && urls !== null) byDestination.push({ row, at, urls });
  }
  const findings = unroutedFinding(unrouted);
  for (const one of byDestination.slice(0, TOPICS_MAX)) {
    findings.push(...(await examineDestinations(control, one)));
  }
  return findings;
}

function unroutedFinding(rows: readonly TallyRow[]): DoctorFinding[] {
  const [first] = rows;
  if (first === undefined) return [];
  const count = rows.reduce((sum, row) => sum + row.count, 0);
  const what = count === 1 ? '1 message waits' : `${count} messages wait`;
  const text = `${what} in a topic that no route takes: ${examples(rows)}`;
  const todo = `add a route for it; look at them: respool list --topic '${first.key}'`;
  return [note('messages.unrouted', text, todo)];
}

async function examineDestinations(
  control: Pick<Control, 'tally'>,
  { row, at, urls }: { readonly row: TallyRow; readonly at: number; readonly urls: object },
): Promise<DoctorFinding[]> {
  const rows = await control.tally('destination', { ...WAITING, topic: row.key });
  const unknown = rows.filter(({ key }) => !Object.hasOwn(urls, key));
  const named = rows.reduce((sum, { count }) => sum + count, 0);
  const none = Math.max(0, row.count - named);
  const count = unknown.reduce((sum, one) => sum + one.count, none);
  if (count === 0) return [];
  const which = [
    ...(unknown.length === 0 ? [] : [examples(unknown)]),
    ...(none === 0 ? [] : [`${none} without a destination`]),
  ].join(', ');
  const what = count === 1 ? '1 message waits' : `${count} messages wait`;
  const text =
    `${what} in "${row.key}" for a destination that routes[${at}] has no URL for, and will be ` +
    `held: ${which}`;
  const todo = `name it in "urls" of routes[${at}]`;
  return [note('messages.destination', text, todo)];
}

/** The first of them, each with how many wait there. */
function examples(rows: readonly TallyRow[]): string {
  const shown = rows.slice(0, EXAMPLES_MAX).map(({ key, count }) => `"${key}" (${count})`);
  const more = rows.length - shown.length;
  return `${shown.join(', ')}${more === 0 ? '' : ` and ${more} more`}`;
}
