/**
 * pgbouncer — a private pgbouncer in transaction mode, in front of the tests' PostgreSQL.
 */

import { chmod, chown, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { accountOf, type Machine } from './machine.ts';
import { freePort } from './ports.ts';
import { answersPostgres } from './probes.ts';
import { findAll, type Programs, type Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, Unit } from './server.ts';

/** Connections to PostgreSQL; fewer than clients, so that they are shared. */
const POOL_SIZE = 20;
const CLIENTS_MAX = 500;

/** pgbouncer. Without docker: no image of it belongs to its makers. */
export const pgbouncer: Recipe = {
  name: 'pgbouncer',
  gives: ['pgbouncer'],
  packages: ['pgbouncer'],
  find: (machine) => findAll(machine, ['pgbouncer']),
  start: startPgbouncer,
};

async function startPgbouncer(programs: Programs, site: Site, machine: Machine): Promise<Server> {
  const behind = new URL(await site.urlOf('postgres'));
  const port = await freePort();
  const account = machine.isRoot ? await accountOf(machine, ['postgres', 'nobody']) : undefined;
  const users = path.join(site.dir, 'users.txt');
  const config = path.join(site.dir, 'pgbouncer.ini');
  const [user, password] = [behind.username, behind.password].map(decodeURIComponent);
  await writeFile(users, `"${user}" "${password}"\n`, { mode: 0o600 });
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: password === '' ? 'trust' : 'scram-sha-256',
    auth_file: users,
    pool_mode: 'transaction',
    default_pool_size: POOL_SIZE,
    max_client_conn: CLIENTS_MAX,
    ignore_startup_parameters: 'extra_float_digits',
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  const database = `* = host=${behind.hostname} port=${behind.port || 5432}`;
  await writeFile(config, `[databases]\n${database}\n[pgbouncer]\n${lines.join('\n')}\n`);
  if (account !== undefined) {
    for (const file of [site.dir, users, config]) await chown(file, account.uid, account.gid);
  }
  await chmod(site.dir, 0o700);
  const bouncer = new Unit(site, {
    name: 'pgbouncer',
    command: programs['pgbouncer'] ?? '',
    args: [config],
    account,
    isReady: () => answersPostgres(port),
    stopSignal: 'SIGTERM',
  });
  await bouncer.start();
  const url = new URL(behind);
  url.host = `127.0.0.1:${port}`;
  return serverOfUnits({ pgbouncer: url.href }, [bouncer]);
}
