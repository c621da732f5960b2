/**
 * environment-checks — versions, what the environment makes of Node, and whether the clock can be
 * right.
 */

import { rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { MINUTE_MS, SECOND_MS } from '../../../core/duration.ts';
import { textOf } from '../../../core/errors.ts';
import type { Clock } from '../../../ports/clock.ts';
import { loadSqlite } from '../../../stores/shared/client.ts';
import { span } from '../../ui/times.ts';
import { type DoctorFinding, worthKnowing, ok, unsafe } from './finding.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** A clock before this runs on an empty battery: nothing of ours is older. */
const NEVER_BEFORE_MS: number = Date.UTC(2026, 0, 1);
/** Time stamps of files may be this coarse. */
const FILE_CLOCK_MAX_MS: number = 5 * SECOND_MS;

/** The versions of what we stand on. */
export async function examineVersions(version: string): Promise<DoctorFinding[]> {
  const findings = [
    ok('version.respool', `respool ${version}`),
    ok('version.node', `Node ${process.versions.node}`),
    ok('version.system', `${os.type()} ${os.release()} (${os.arch()})`),
  ];
  try {
    const openDatabase = await loadSqlite();
    const database = openDatabase(':memory:');
    const found = String(database.prepare('SELECT sqlite_version()').pluck().get());
    database.close();
    findings.push(ok('version.sqlite', `SQLite ${found}`));
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
    findings.push(worthKnowing('environment.node-options', `NODE_OPTIONS="${options}" is set`));
  }
  if (process.getuid?.() === 0) {
    findings.push(
      worthKnowing(
        'environment.root',
        'this is root: what a handler runs can do everything',
        'run the service under an account of its own',
      ),
    );
  }
  return findings.length > 0 ? findings : [ok('environment', 'no unsafe environment variables')];
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
    if (apartMs <= FILE_CLOCK_MAX_MS) return [ok('clock', 'clock and file times agree')];
    const text = `the clock and the times of files in "${folder}" are ${span(apartMs)} apart`;
    return [unsafe('clock', text, 'set the clock; run NTP on the machine of the disk too')];
  } catch (error) {
    return [worthKnowing('clock', `cannot compare the clock with file times: ${textOf(error)}`)];
  } finally {
    await rm(file, { force: true }).catch(() => undefined);
  }
}

/** What was written last must not lie in the future. */
export function examineNewest(newestAt: number | undefined, now: number): DoctorFinding[] {
  if (newestAt === undefined || newestAt <= now + MINUTE_MS) return [];
  const text = `a message was changed ${span(newestAt - now)} from now: the clock went back`;
  return [unsafe('clock.newest', text, 'set the clock; until then such messages wait too long')];
}
