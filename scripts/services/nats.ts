/**
 * nats — a private NATS server with JetStream, its streams in its own folder.
 *
 * From 2.10 on a server can sync every write, which is what the docs recommend and the tests run.
 * Where the installed one is older, as on Debian 12, the one of Debian 13 is downloaded into a
 * cache; where that cannot be done, the installed one has to do.
 */

import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fetchSuiteProgram, type SuitePackage } from './debian-suite.ts';
import { isProgram, type Machine } from './machine.ts';
import { freePort } from './ports.ts';
import { answersHttp } from './probes.ts';
import { findAll, type Programs, type Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, Unit } from './server.ts';

/** Another binary than the one in PATH, for another version. */
const NATS_BIN = 'RESPOOL_TEST_NATS_BIN';
/** The value of `sync_interval`, such as `2m`; `always` unless it is given. */
const NATS_SYNC = 'RESPOOL_TEST_NATS_SYNC';

/** The oldest server that can sync every write. */
const SYNC_SINCE = [2, 10] as const;
/** 2.10.27. */
const DOWNLOAD: SuitePackage = {
  suite: 'trixie',
  name: 'nats-server',
  program: 'usr/sbin/nats-server',
};

const MONITOR_PORT = 8222;
const CLIENT_PORT = 4222;

/** NATS with JetStream. */
export const nats: Recipe = {
  name: 'nats',
  gives: ['nats'],
  packages: ['nats-server'],
  find: findNats,
  fetch: fetchNats,
  start: startNats,
  docker: {
    image: 'nats:2.12',
    ports: [CLIENT_PORT, MONITOR_PORT],
    args: ['-js', '-sd', '/data', '-m', String(MONITOR_PORT)],
    urls: ([port]) => ({ nats: `nats://127.0.0.1:${port}` }),
    isReady: ([, monitor = 0]) => isHealthy(monitor),
  },
};

function findNats(machine: Machine): Programs | string {
  const chosen = machine.env[NATS_BIN];
  if (chosen === undefined || chosen === '') return findAll(machine, ['nats-server']);
  if (isProgram(chosen)) return { 'nats-server': chosen };
  throw new Error(`cannot run "${chosen}", which ${NATS_BIN} names: there is no such program`);
}

/** A program of 2.10 or newer: the chosen or installed one if it is, else a downloaded one. */
export async function fetchNats(machine: Machine): Promise<Programs> {
  const found = findNats(machine);
  const command = typeof found === 'string' ? undefined : found['nats-server'];
  const isChosen = (machine.env[NATS_BIN] ?? '') !== '';
  if (command !== undefined && (isChosen || (await syncsAlways(machine, command)))) {
    return { 'nats-server': command };
  }
  return { 'nats-server': await fetchSuiteProgram(machine, DOWNLOAD) };
}

/** The version that a program says it has, such as 2.10.27. */
export async function natsVersion(machine: Machine, command: string): Promise<string> {
  const text = await machine.run(command, ['--version']);
  return /v(\d+\.\d+\.\d+)/.exec(text)?.[1] ?? '0.0.0';
}

async function syncsAlways(machine: Machine, command: string): Promise<boolean> {
  const [major = 0, minor = 0] = (await natsVersion(machine, command)).split('.').map(Number);
  return major > SYNC_SINCE[0] || (major === SYNC_SINCE[0] && minor >= SYNC_SINCE[1]);
}

async function startNats(programs: Programs, site: Site, machine: Machine): Promise<Server> {
  const [port, monitor] = [await freePort(), await freePort()];
  const streams = path.join(site.dir, 'streams');
  await mkdir(streams);
  const command = programs['nats-server'] ?? '';
  const chosen = machine.env[NATS_SYNC] ?? '';
  const sync = chosen === '' && (await syncsAlways(machine, command)) ? 'always' : chosen;
  const config = path.join(site.dir, 'nats.conf');
  const jetstream = [`store_dir: "${streams}"`, ...(sync === '' ? [] : [`sync_interval: ${sync}`])];
  await writeFile(
    config,
    `listen: 127.0.0.1:${port}
http: 127.0.0.1:${monitor}
jetstream { ${jetstream.join(', ')} }
`,
  );
  const server = new Unit(site, {
    name: 'nats',
    command,
    args: ['-c', config],
    isReady: () => isHealthy(monitor),
    stopSignal: 'SIGTERM',
  });
  await server.start();
  return serverOfUnits({ nats: `nats://127.0.0.1:${port}` }, [server]);
}

/** It says so itself, when JetStream has read what it keeps. */
function isHealthy(monitor: number): Promise<boolean> {
  return answersHttp(`http://127.0.0.1:${monitor}/healthz`, { codes: [200] });
}
