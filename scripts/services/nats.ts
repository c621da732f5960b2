/**
 * nats — a private NATS server with JetStream, its streams in its own folder.
 */

import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { isProgram, type Machine } from './machine.ts';
import { freePort } from './ports.ts';
import { answersHttp } from './probes.ts';
import { findAll, type Programs, type Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, Unit } from './server.ts';

/** Another binary than the one in PATH, for another version. */
const NATS_BIN = 'RESPOOL_TEST_NATS_BIN';
/** The value of `sync_interval`, such as `always`; a server before 2.10 does not know it. */
const NATS_SYNC = 'RESPOOL_TEST_NATS_SYNC';

const MONITOR_PORT = 8222;
const CLIENT_PORT = 4222;

/** NATS with JetStream. */
export const nats: Recipe = {
  name: 'nats',
  gives: ['nats'],
  packages: ['nats-server'],
  find: findNats,
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

async function startNats(programs: Programs, site: Site, machine: Machine): Promise<Server> {
  const [port, monitor] = [await freePort(), await freePort()];
  const streams = path.join(site.dir, 'streams');
  await mkdir(streams);
  const sync = machine.env[NATS_SYNC];
  const config = path.join(site.dir, 'nats.conf');
  const jetstream = [
    `store_dir: "${streams}"`,
    ...(sync === undefined || sync === '' ? [] : [`sync_interval: ${sync}`]),
  ];
  await writeFile(
    config,
    `listen: 127.0.0.1:${port}
http: 127.0.0.1:${monitor}
jetstream { ${jetstream.join(', ')} }
`,
  );
  const server = new Unit(site, {
    name: 'nats',
    command: programs['nats-server'] ?? '',
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
