/**
 * message-checks — the state of the messages and of the machine: messages that wait, are held or
 * bounced and whether a process delivers them; versions, the environment of Node, and the clock.
 * Read-only, but for an empty file that `examineClock` makes and removes. Called by examine.ts.
 */

import { rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { type DoctorFinding, okFinding, unsafe, infoFinding } from './finding.ts';
import { span } from '../../ui/times.ts';
import { describeHandler, type EffectiveRoute } from '../../../config/load/routes.ts';
import { DAY_MS, MINUTE_MS, SECOND_MS } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import { topicMatches } from '../../../core/topic.ts';
import type { Operator, Stats } from '../../../spool/operator/operator.ts';
import type { Clock } from '../../../ports/clock.ts';
import type { TallyRow } from '../../../ports/entry-store.ts';
import { loadSqlite } from '../../../stores/shared/client.ts';

/** Messages that are looked at for the policies they name. */
const SAMPLE_MAX = 500;

/** What the messages are looked at with. */
interface MessageCheckContext {
  readonly clock: Clock;
  readonly isServed: boolean;
  /** The routes of the configuration here, in their order. */
  readonly routes: readonly Pick<EffectiveRoute, 'topic' | 'deliver'>[];
}

/** What the store holds, as an operator sees it. */
export async function examineMessages(
  operator: Operator,
  { clock, isServed, routes }: MessageCheckContext,
): Promise<DoctorFinding[]> {
  const stats = await operator.stats();
  const newest = await operator.page({ order: 'updatedAt', descending: true, limit: 1 });
  return [
    ...examineStats(stats, isServed),
    ...examineNewest(newest.entries[0]?.status.updatedAt, clock.now()),
    ...(newest.corrupt.length > 0
      ? [
          infoFinding(
            'messages.corrupt',
            `${newest.corrupt.length} entries cannot be read`,
            'run: respool check',
          ),
        ]
      : []),
    ...(await examineRouting(operator, routes)),
    ...(await examinePolicies(operator)),
  ];
}

/** Counts and ages. */
export function examineStats(stats: Stats, isServed: boolean): DoctorFinding[] {
  const { at, states, paused } = stats;
  const { incoming, deferred, hold, bounce, active } = states;
  const waiting = incoming.count + deferred.count;
  const findings = [
    okFinding('messages.waiting', `${waiting} wait, ${active.count} are being delivered`),
  ];
  for (const { topic, by } of paused) {
    const text = `${topic === '#' ? 'everything' : `"${topic}"`} is paused by ${by}`;
    findings.push(infoFinding('messages.paused', text, `respool resume '${topic}'`));
  }
  if (hold.count > 0) {
    const todo = 'respool list --state hold; then respool release or respool remove';
    findings.push(infoFinding('messages.held', `${hold.count} held`, todo));
  }
  if (bounce.count > 0) {
    const todo = 'respool list --state bounce; then respool retry or respool remove';
    findings.push(infoFinding('messages.bounced', `${bounce.count} bounced`, todo));
  }
  const oldestMs = deferred.oldestAt === null ? 0 : at - deferred.oldestAt;
  if (deferred.count > 0 && deferred.oldestAt !== null) {
    const text = `the oldest deferred message came ${span(oldestMs)} ago`;
    const todo = 'respool shape shows what waits where';
    findings.push(
      oldestMs > DAY_MS
        ? infoFinding('messages.deferred', text, todo)
        : okFinding('messages.deferred', text),
    );
  }
  if (waiting > 0 && !isServed) {
    const text = 'messages wait and no service is running; your own program may deliver them';
    findings.push(infoFinding('messages.no-service', text, 'respool serve'));
  }
  return findings;
}

async function examinePolicies(operator: Operator): Promise<DoctorFinding[]> {
  const known = new Set((await operator.policies()).map(({ name }) => name));
  const { entries } = await operator.page({
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
    infoFinding(
      'messages.policy',
      `${count} of the first ${entries.length} messages name the policy "${policy}", which is ` +
        'not configured',
      `configure it, or: respool policy set default --state deferred`,
    ),
  );
}

// Whether the routes of the configuration can deliver what waits. Only looks.

/** Messages that wait for a delivery. */
const WAITING = { state: ['incoming', 'deferred'], lane: 'delivery' } as const;
/** Topics whose destinations are asked for; each is a question of its own. */
const TOPICS_MAX = 100;
const EXAMPLES_MAX = 3;

type Routes = readonly Pick<EffectiveRoute, 'topic' | 'deliver'>[];

/** Topics without a route, and destinations without an address. */
async function examineRouting(
  operator: Pick<Operator, 'tally'>,
  routes: Routes,
): Promise<DoctorFinding[]> {
  // That nothing is delivered from here is said where routes are looked at.
  if (routes.length === 0) return [];
  const topics = await operator.tally('topic', WAITING);
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
    findings.push(...(await examineDestinations(operator, one)));
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
  return [infoFinding('messages.unrouted', text, todo)];
}

async function examineDestinations(
  operator: Pick<Operator, 'tally'>,
  { row, at, urls }: { readonly row: TallyRow; readonly at: number; readonly urls: object },
): Promise<DoctorFinding[]> {
  const rows = await operator.tally('destination', { ...WAITING, topic: row.key });
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
  return [infoFinding('messages.destination', text, todo)];
}

/** The first of them, each with how many wait there. */
function examples(rows: readonly TallyRow[]): string {
  const shown = rows.slice(0, EXAMPLES_MAX).map(({ key, count }) => `"${key}" (${count})`);
  const more = rows.length - shown.length;
  return `${shown.join(', ')}${more === 0 ? '' : ` and ${more} more`}`;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** A clock before this runs on an empty battery: nothing of ours is older. */
const NEVER_BEFORE_MS: number = Date.UTC(2026, 0, 1);
/** Time stamps of files may be this coarse. */
const FILE_CLOCK_MAX_MS: number = 5 * SECOND_MS;

/** The versions of what we stand on. */
export async function examineVersions(version: string): Promise<DoctorFinding[]> {
  const findings = [
    okFinding('version.respool', `respool ${version}`),
    okFinding('version.node', `Node ${process.versions.node}`),
    okFinding('version.system', `${os.type()} ${os.release()} (${os.arch()})`),
  ];
  try {
    const openDatabase = await loadSqlite();
    const database = openDatabase(':memory:');
    const found = String(database.prepare('SELECT sqlite_version()').pluck().get());
    database.close();
    findings.push(okFinding('version.sqlite', `SQLite ${found}`));
  } catch (error) {
    const todo = 'install respool again: npm install respool';
    findings.push(unsafe('version.sqlite', `SQLite cannot be used: ${textOf(error)}`, todo));
  }
  return findings;
}

/** Switches of Node that make it take what it should refuse. */
const DANGEROUS_OPTIONS: readonly (readonly [RegExp, string])[] = [
  [/--insecure-http-parser/, 'takes broken HTTP, which can smuggle requests'],
  [/--tls-min-v1\.[01]\b/, 'allows TLS that is broken'],
  [/--inspect(?:-brk)?=(?!127\.|localhost|\[::1\]|\d+(?:\s|$))\S/, 'lets strangers debug it'],
  [/--unhandled-rejections=(?:none|warn)/, 'continues after uncaught errors'],
];

/** What the environment does to every Node program that is started here. */
export function examineEnvironment(env: Environment): DoctorFinding[] {
  const findings: DoctorFinding[] = [];
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') {
    findings.push(
      unsafe(
        'environment.tls',
        'NODE_TLS_REJECT_UNAUTHORIZED=0: every certificate is accepted, so connections can be ' +
          'intercepted',
        'unset it; name your own authority in the option "ca" of http()',
      ),
    );
  }
  const options = env['NODE_OPTIONS'] ?? '';
  const dangers = DANGEROUS_OPTIONS.filter(([pattern]) => pattern.test(options));
  for (const [, why] of dangers) {
    const todo = 'take it out of NODE_OPTIONS';
    findings.push(unsafe('environment.node-options', `NODE_OPTIONS="${options}": ${why}`, todo));
  }
  if (options !== '' && dangers.length === 0) {
    findings.push(infoFinding('environment.node-options', `NODE_OPTIONS="${options}" is set`));
  }
  if (process.getuid?.() === 0) {
    findings.push(
      infoFinding(
        'environment.root',
        'this is root: what a handler runs can do everything',
        'run the service under an account of its own',
      ),
    );
  }
  return findings.length > 0
    ? findings
    : [okFinding('environment', 'no unsafe environment variables')];
}

/** Compares the clock with what cannot be, and with the times the file system writes. */
export async function examineClock(clock: Clock, folder: string): Promise<DoctorFinding[]> {
  const now = clock.now();
  if (now < NEVER_BEFORE_MS) {
    const when = new Date(now).toISOString();
    return [unsafe('clock', `the clock says ${when}, which is over`, 'set it, and run NTP')];
  }
  const file = path.join(folder, `.respool-doctor-${process.pid}`);
  try {
    await writeFile(file, '', { flag: 'wx' });
    const { mtimeMs } = await stat(file);
    const apartMs = Math.abs(mtimeMs - clock.now());
    if (apartMs <= FILE_CLOCK_MAX_MS) return [okFinding('clock', 'clock and file times agree')];
    const text = `the clock and the times of files in "${folder}" are ${span(apartMs)} apart`;
    return [unsafe('clock', text, 'set the clock; run NTP on the machine of the disk too')];
  } catch (error) {
    return [infoFinding('clock', `cannot compare the clock with file times: ${textOf(error)}`)];
  } finally {
    await rm(file, { force: true }).catch(() => undefined);
  }
}

/** The time of the last write must not be in the future. */
function examineNewest(newestAt: number | undefined, now: number): DoctorFinding[] {
  if (newestAt === undefined || newestAt <= now + MINUTE_MS) return [];
  const text = `a message was changed ${span(newestAt - now)} from now: the clock went back`;
  return [unsafe('clock.newest', text, 'set the clock; until then such messages wait too long')];
}
