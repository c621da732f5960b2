/**
 * services — keep the test servers running while you work, so that tests start at once.
 *
 *   npm run services -- up [names]     starts them (all of them without names) and returns
 *   npm run services -- status         what runs, and where
 *   npm run services -- down           ends them and removes everything they wrote
 *
 * Private servers on loopback with data of their own; a server of the system is never touched.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import {
  connectKeeper,
  forgetStanding,
  type Link,
  rememberStanding,
  standingDoor,
  startKeeper,
} from './services/link.ts';
import { isAlive } from './services/processes.ts';
import type { ServerStatus } from './services/protocol.ts';
import {
  givenUrl,
  isServerName,
  SERVER_NAMES,
  type ServerName,
  skippedNames,
  VARIABLES,
} from './services/words.ts';

const DOWN_LOOK_MS = 50;

const [command = 'status', ...names] = process.argv.slice(2);
process.exitCode = await main();

async function main(): Promise<number> {
  if (command === 'up') return up(names);
  if (command === 'down') return down();
  if (command === 'status') return status();
  say(`there is no command "${command}": known are up [${SERVER_NAMES.join('|')}], status, down`);
  return 2;
}

async function up(given: readonly string[]): Promise<number> {
  const wrong = given.find((name) => !isServerName(name));
  if (wrong !== undefined) {
    say(`there is no server "${wrong}": known are ${SERVER_NAMES.join(', ')}`);
    return 2;
  }
  const skipped = skippedNames(process.env);
  const wanted = given.length === 0 ? SERVER_NAMES : given.filter(isServerName);
  let door = await standingDoor();
  if (door === undefined) {
    ({ door } = await startKeeper('standing'));
    rememberStanding(door);
  }
  const link = await connectKeeper(door);
  const results = await Promise.all(
    wanted.filter((name) => !skipped.has(name)).map((name) => startOne(link, name)),
  );
  link.close();
  return results.every(Boolean) ? 0 : 1;
}

async function startOne(link: Link, name: ServerName): Promise<boolean> {
  try {
    const url = await link.ask({ kind: 'url', service: name }, (news) => say(`${name}: ${news}`));
    say(`${name}: ${String(url)}`);
    return true;
  } catch (error) {
    say(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
}

async function down(): Promise<number> {
  const door = await standingDoor();
  if (door === undefined) {
    say('nothing is running');
    return 0;
  }
  const link = await connectKeeper(door);
  const pid = Number(await link.ask({ kind: 'down' }));
  link.close();
  forgetStanding();
  while (isAlive(pid)) await sleep(DOWN_LOOK_MS);
  say('all servers have ended');
  return 0;
}

async function status(): Promise<number> {
  for (const name of SERVER_NAMES) {
    const url = givenUrl(name, process.env);
    if (url !== undefined) say(`${name}: given by ${VARIABLES[name]}`);
  }
  const door = await standingDoor();
  if (door === undefined) {
    say('nothing is running; start with: npm run services -- up');
    return 0;
  }
  const link = await connectKeeper(door);
  for (const one of (await link.ask({ kind: 'status' })) as readonly ServerStatus[]) {
    const urls = Object.entries(one.urls).map(([name, url]) => `${name} ${url}`);
    say(`${one.server}: ${one.state} ${one.error ?? urls.join(', ')}`);
  }
  link.close();
  return 0;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
