/**
 * rabbitmq — a private RabbitMQ with its management door: own cookie, own epmd, loopback only.
 */

import { randomBytes } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { isProgram, type Machine } from './machine.ts';
import { freePort } from './ports.ts';
import { answersHttp, answersTcp } from './probes.ts';
import type { Programs, Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, stopUnits, Unit } from './server.ts';

/** The folder of `rabbitmq-server`, where it is not one of the usual. */
const RABBITMQ_BIN = 'RESPOOL_TEST_RABBITMQ_BIN';

const USER = 'respool';
/** The test password of a container, whose ports are on loopback only. */
const DOCKER_PASSWORD = 'respool';
const AMQP_PORT = 5672;
const MANAGEMENT_PORT = 15_672;

/** RabbitMQ with management. */
export const rabbitmq: Recipe = {
  name: 'rabbitmq',
  gives: ['rabbitmq', 'rabbitmq-management'],
  packages: ['rabbitmq-server'],
  find: findRabbit,
  start: startRabbit,
  docker: {
    image: 'rabbitmq:4-management',
    env: { RABBITMQ_DEFAULT_USER: USER, RABBITMQ_DEFAULT_PASS: DOCKER_PASSWORD },
    ports: [AMQP_PORT, MANAGEMENT_PORT],
    urls: ([amqp = 0, management = 0]) => urlsOf(amqp, management, DOCKER_PASSWORD),
    isReady: ([amqp = 0, management = 0]) => isReady(amqp, management, DOCKER_PASSWORD),
  },
};

function findRabbit(machine: Machine): Programs | string {
  const chosen = machine.env[RABBITMQ_BIN];
  // n.b. Not the one in PATH on Debian: that changes to the account and folder of the system's.
  const folders =
    chosen === undefined || chosen === ''
      ? ['/usr/lib/rabbitmq/bin', '/usr/local/opt/rabbitmq/sbin', '/opt/homebrew/opt/rabbitmq/sbin']
      : [chosen];
  const server = folders.map((folder) => path.join(folder, 'rabbitmq-server')).find(isProgram);
  if (server === undefined && folders[0] === chosen) {
    throw new Error(`cannot use "${chosen}", which ${RABBITMQ_BIN} names: no RabbitMQ is there`);
  }
  if (server === undefined) return 'rabbitmq-server';
  const epmd = machine.find('epmd');
  return epmd === undefined ? 'epmd' : { server, epmd };
}

async function startRabbit(programs: Programs, site: Site, machine: Machine): Promise<Server> {
  const ports = {
    amqp: await freePort(),
    management: await freePort(),
    distribution: await freePort(),
    epmd: await freePort(),
  };
  const password = randomBytes(12).toString('hex');
  const home = await makeHome(site.dir, ports, password);
  const env = { ...machine.env, ...home };
  const names = new Unit(site, {
    name: 'epmd',
    command: programs['epmd'] ?? '',
    args: ['-port', String(ports.epmd), '-address', '127.0.0.1'],
    // A request for all names: its length, and the letter n.
    isReady: () =>
      answersTcp(ports.epmd, { send: Uint8Array.of(0, 1, 0x6e), expect: /^[\s\S]{4}/ }),
    stopSignal: 'SIGKILL',
  });
  const node = new Unit(site, {
    name: 'rabbitmq',
    command: programs['server'] ?? '',
    args: [],
    env,
    isReady: () => isReady(ports.amqp, ports.management, password),
    // Its data are thrown away; a goodbye takes seconds.
    stopSignal: 'SIGKILL',
  });
  try {
    await names.start();
    await node.start();
  } catch (error) {
    await stopUnits([names, node]);
    throw error;
  }
  const command = path.join(path.dirname(programs['server'] ?? ''), 'rabbitmqctl');
  const server = serverOfUnits(urlsOf(ports.amqp, ports.management, password), [names, node]);
  return { ...server, operator: { command, env: home } };
}

function urlsOf(amqp: number, management: number, password: string): Server['urls'] {
  return {
    rabbitmq: `amqp://${USER}:${password}@127.0.0.1:${amqp}`,
    'rabbitmq-management': `http://${USER}:${password}@127.0.0.1:${management}`,
  };
}

/** What a client of AMQP 0-9-1 says first; a node that is up answers with ways to log in. */
const AMQP_HELLO: Uint8Array = Uint8Array.from([...Buffer.from('AMQP'), 0, 0, 9, 1]);

/** n.b. Either door may open first: both have to answer. */
async function isReady(amqp: number, management: number, password: string): Promise<boolean> {
  if (!(await isHealthy(management, password))) return false;
  return answersTcp(amqp, { send: AMQP_HELLO, expect: /PLAIN/ });
}

/** The node itself says whether an alarm is raised. */
function isHealthy(management: number, password: string): Promise<boolean> {
  const authorization = `Basic ${Buffer.from(`${USER}:${password}`).toString('base64')}`;
  const url = `http://127.0.0.1:${management}/api/health/checks/alarms`;
  return answersHttp(url, { codes: [200], headers: { authorization } });
}

interface Ports {
  readonly amqp: number;
  readonly management: number;
  readonly distribution: number;
  readonly epmd: number;
}

/** Writes what the node reads, and gives the environment that leads it there and nowhere else. */
async function makeHome(
  dir: string,
  ports: Ports,
  password: string,
): Promise<Readonly<Record<string, string>>> {
  const at = (name: string): string => path.join(dir, name);
  for (const folder of ['home', 'data', 'log']) await mkdir(at(folder));
  const cookie = randomBytes(20).toString('hex');
  await writeFile(at('home/.erlang.cookie'), cookie, { mode: 0o400 });
  await writeFile(at('plugins'), '[rabbitmq_management].\n');
  await writeFile(at('empty'), '');
  await writeFile(at('rabbitmq.conf'), configOf(ports, password));
  return {
    HOME: at('home'),
    ERL_EPMD_PORT: String(ports.epmd),
    ERL_EPMD_ADDRESS: '127.0.0.1',
    RABBITMQ_NODENAME: `respool${ports.amqp}@localhost`,
    RABBITMQ_NODE_PORT: String(ports.amqp),
    RABBITMQ_DIST_PORT: String(ports.distribution),
    RABBITMQ_MNESIA_BASE: at('data'),
    RABBITMQ_LOG_BASE: at('log'),
    RABBITMQ_ENABLED_PLUGINS_FILE: at('plugins'),
    RABBITMQ_CONFIG_FILE: at('rabbitmq.conf'),
    RABBITMQ_ADVANCED_CONFIG_FILE: at('none.config'),
    RABBITMQ_CONF_ENV_FILE: at('empty'),
    RABBITMQ_PID_FILE: at('pid'),
    // The node takes the place of the script that starts it: one process to end, not two.
    RABBITMQ_ALLOW_INPUT: 'true',
    RABBITMQ_SERVER_START_ARGS: '-noinput',
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS:
      '-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}',
  };
}

function configOf({ amqp, management }: Ports, password: string): string {
  return `listeners.tcp.1 = 127.0.0.1:${amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = ${management}
default_user = ${USER}
default_pass = ${password}
loopback_users.${USER} = true
log.console = false
log.file.level = warning
collect_statistics_interval = 1000
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
`;
}
