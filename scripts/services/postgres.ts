/**
 * postgres — a private PostgreSQL: own data, own password, loopback only, never as root.
 */

import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { accountOf, isProgram, type Machine } from './machine.ts';
import { freePort } from './ports.ts';
import { answersPostgres } from './probes.ts';
import { type Account, run } from './processes.ts';
import type { Programs, Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, Unit } from './server.ts';

/** The folder of the programs, where it is not one of the usual. */
const POSTGRES_BIN = 'RESPOOL_TEST_POSTGRES_BIN';

const CONNECTIONS_MAX = 200;
/** The test password of a container, whose port is on loopback only. */
const DOCKER_PASSWORD = 'respool';

/** PostgreSQL, as the machine's packages or your own folder have it. */
export const postgres: Recipe = {
  name: 'postgres',
  gives: ['postgres'],
  packages: ['postgresql'],
  find: findPostgres,
  start: startPostgres,
  docker: {
    image: 'postgres:17',
    env: { POSTGRES_PASSWORD: DOCKER_PASSWORD },
    ports: [5432],
    args: ['-c', `max_connections=${CONNECTIONS_MAX}`],
    urls: ([port]) => ({
      postgres: `postgres://postgres:${DOCKER_PASSWORD}@127.0.0.1:${port}/postgres`,
    }),
    isReady: ([port = 0]) => answersPostgres(port),
  },
};

function findPostgres(machine: Machine): Programs | string {
  const chosen = machine.env[POSTGRES_BIN];
  const folders =
    chosen === undefined || chosen === ''
      ? [...machine.versions('/usr/lib/postgresql', 'bin'), ...besides(machine.find('initdb'))]
      : [chosen];
  // Debian has the client in PATH and the server in a folder of its version.
  for (const folder of folders) {
    const [initdb, server] = [path.join(folder, 'initdb'), path.join(folder, 'postgres')];
    if (isProgram(initdb) && isProgram(server)) return { initdb, postgres: server };
  }
  if (chosen === undefined || chosen === '') return 'postgres';
  throw new Error(`cannot use "${chosen}", which ${POSTGRES_BIN} names: no PostgreSQL is there`);
}

function besides(file: string | undefined): readonly string[] {
  return file === undefined ? [] : [path.dirname(file)];
}

async function startPostgres(programs: Programs, site: Site, machine: Machine): Promise<Server> {
  const account = machine.isRoot ? await accountOf(machine, ['postgres', 'nobody']) : undefined;
  const port = await freePort();
  const password = randomBytes(12).toString('hex');
  const data = path.join(site.dir, 'data');
  await initData(programs, { dir: site.dir, data, password, account });
  const server = new Unit(site, {
    name: 'postgres',
    command: programs['postgres'] ?? '',
    args: ['-D', data, '-p', String(port), ...settings()],
    account,
    isReady: () => answersPostgres(port),
    // "immediate": it leaves its data as a crash does, but no shared memory.
    stopSignal: 'SIGQUIT',
    crashSignal: 'SIGQUIT',
  });
  await server.start();
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
  return serverOfUnits({ postgres: url }, [server]);
}

function settings(): readonly string[] {
  const values = {
    listen_addresses: '127.0.0.1',
    // The names of sockets are short, and those of temporary folders may be long.
    unix_socket_directories: '',
    max_connections: CONNECTIONS_MAX,
    max_prepared_transactions: 4,
    // As in production: durability is what is tested.
    fsync: 'on',
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

async function initData(
  programs: Programs,
  {
    dir,
    data,
    password,
    account,
  }: {
    readonly dir: string;
    readonly data: string;
    readonly password: string;
    readonly account: Account | undefined;
  },
): Promise<void> {
  const passwordFile = path.join(dir, 'password');
  await mkdir(data, { mode: 0o700 });
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  if (account !== undefined) {
    for (const file of [dir, data, passwordFile]) await chown(file, account.uid, account.gid);
  }
  await chmod(dir, 0o700);
  const options = ['-U', 'postgres', '-E', 'UTF8', '--locale=C', '--no-sync'];
  const secrets = ['-A', 'scram-sha-256', `--pwfile=${passwordFile}`];
  await run(programs['initdb'] ?? '', ['-D', data, ...options, ...secrets], { cwd: dir, account });
}
