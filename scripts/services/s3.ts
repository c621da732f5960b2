/**
 * s3 — a private S3 server: the gateway of Ceph over one monitor and one storage daemon in memory.
 *
 * A real one, with multipart uploads, conditional writes, versions and lifecycles. What is in it
 * survives a crash of the gateway, not of the storage daemon.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { freePort } from './ports.ts';
import { answersHttp, answersTcp } from './probes.ts';
import { run } from './processes.ts';
import { findAll, type Programs, type Recipe } from './recipe.ts';
import { type Server, type Site, serverOfUnits, stopUnits, Unit } from './server.ts';

const PROGRAMS = [
  'ceph-mon',
  'ceph-osd',
  'radosgw',
  'ceph',
  'ceph-authtool',
  'monmaptool',
  'radosgw-admin',
];

/** How long one of its tools may take. */
const TOOL_TIMEOUT_MS = 30_000;
/** How much the storage daemon holds at the most. */
const MEMORY_BYTES = 2 * 1_024 ** 3;
/** The storage daemon takes a handful of ports out of a row of this length. */
const PORT_ROW = 60;
/** Below what the system gives to outgoing connections. */
const PORT_ROW_FIRST = 10_000;
const PORT_ROWS = 350;

/** The gateway of Ceph. Without docker: no image of Ceph starts this small. */
export const s3: Recipe = {
  name: 's3',
  gives: ['s3'],
  packages: ['radosgw', 'ceph-mon', 'ceph-osd', 'ceph-common'],
  find: (machine) => findAll(machine, PROGRAMS),
  start: startCeph,
};

async function startCeph(programs: Programs, site: Site): Promise<Server> {
  const ids = { cluster: randomUUID(), osd: randomUUID() };
  const ports = { gateway: await freePort(), monitor: await freePort() };
  const config = await writeConfig(site.dir, ids.cluster, ports);
  const units: Unit[] = [];
  const tool = (name: string, ...args: readonly string[]): Promise<string> =>
    run(programs[name] ?? '', ['-c', config, ...args], {
      cwd: site.dir,
      timeoutMs: TOOL_TIMEOUT_MS,
    });
  const startUnit = async (
    name: string,
    args: readonly string[],
    isReady: () => Promise<boolean>,
  ): Promise<void> => {
    const command = programs[name] ?? '';
    const all = ['-c', config, ...args, '-f'];
    // All it has is in memory or thrown away: nothing is gained by a goodbye.
    const unit = new Unit(site, { name, command, args: all, isReady, stopSignal: 'SIGKILL' });
    units.push(unit);
    await unit.start();
  };
  try {
    await makeMonitorData(programs, site.dir, ids.cluster, ports.monitor, config);
    // A monitor that has not elected itself yet refuses commands. This one may be repeated.
    const addStorage = ['--connect-timeout', '30', 'osd', 'new', ids.osd, '0'];
    await startUnit('ceph-mon', ['-i', 'a'], () =>
      tool('ceph', ...addStorage).then(
        () => true,
        () => false,
      ),
    );
    await tool('ceph', 'osd', 'crush', 'add', 'osd.0', '1', 'root=default', 'host=tests');
    await tool('ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', ids.osd);
    await startUnit('ceph-osd', ['-i', '0'], () => isActive(path.join(site.dir, 'run/osd.0.asok')));
    const [access, secret] = [name(), name()];
    await tool('radosgw-admin', ...userOf(access, secret));
    const url = `127.0.0.1:${ports.gateway}`;
    await startUnit('radosgw', ['-n', 'client.admin'], () =>
      answersHttp(`http://${url}/`, { codes: [200, 403] }),
    );
    return serverOfUnits({ s3: `http://${access}:${secret}@${url}` }, units);
  } catch (error) {
    await stopUnits(units);
    throw error;
  }
}

function name(): string {
  return randomBytes(10).toString('hex').toUpperCase();
}

/** Whether the storage daemon has joined, as it says itself at its own socket. */
function isActive(socketFile: string): Promise<boolean> {
  const send = Buffer.from('{"prefix":"status"}\0');
  return answersTcp(socketFile, { send, expect: /"state": ?"active"/ });
}

function userOf(access: string, secret: string): readonly string[] {
  const keys = [`--access-key=${access}`, `--secret-key=${secret}`];
  return ['user', 'create', '--uid=tests', '--display-name=tests', ...keys];
}

async function makeMonitorData(
  programs: Programs,
  dir: string,
  cluster: string,
  port: number,
  config: string,
): Promise<void> {
  const [keyring, map] = [path.join(dir, 'keyring'), path.join(dir, 'monmap')];
  const tool = (program: string, ...args: readonly string[]): Promise<string> =>
    run(programs[program] ?? '', args, { cwd: dir });
  const all = ['--cap', 'mon', 'allow *'];
  await tool('ceph-authtool', '--create-keyring', keyring, '--gen-key', '-n', 'mon.', ...all);
  const more = ['--cap', 'osd', 'allow *', '--cap', 'mgr', 'allow *'];
  await tool('ceph-authtool', keyring, '--gen-key', '-n', 'client.admin', ...all, ...more);
  const address = `[v1:127.0.0.1:${port}]`;
  await tool('monmaptool', '--create', '--clobber', '--fsid', cluster, '--addv', 'a', address, map);
  const files = ['--monmap', map, '--keyring', keyring];
  await tool('ceph-mon', '-c', config, '-i', 'a', '--mkfs', ...files);
}

async function writeConfig(
  dir: string,
  cluster: string,
  ports: { readonly gateway: number; readonly monitor: number },
): Promise<string> {
  for (const folder of ['mon', 'osd', 'rgw', 'run']) await mkdir(path.join(dir, folder));
  const config = path.join(dir, 'ceph.conf');
  const settings = { ...wholeCluster(dir, cluster, ports.monitor), ...gateway(dir, ports.gateway) };
  const lines = Object.entries(settings).map(([key, value]) => `${key} = ${value}`);
  await writeFile(config, `[global]\n${lines.join('\n')}\n`);
  return config;
}

function wholeCluster(
  dir: string,
  cluster: string,
  monitor: number,
): Record<string, string | number | boolean> {
  const first = PORT_ROW_FIRST + Math.floor(Math.random() * PORT_ROWS) * PORT_ROW;
  return {
    fsid: cluster,
    mon_host: `v1:127.0.0.1:${monitor}`,
    mon_initial_members: 'a',
    public_addr: '127.0.0.1',
    cluster_addr: '127.0.0.1',
    ms_bind_msgr2: false,
    ms_bind_port_min: first,
    ms_bind_port_max: first + PORT_ROW - 1,
    auth_cluster_required: 'none',
    auth_service_required: 'none',
    auth_client_required: 'none',
    run_dir: `${dir}/run`,
    crash_dir: dir,
    log_file: `${dir}/$name.log`,
    admin_socket: `${dir}/run/$name.asok`,
    pid_file: '',
    keyring: `${dir}/keyring`,
    mon_data: `${dir}/mon`,
    mon_data_avail_crit: 0,
    // A change of the cluster waits this long for others, seconds; a start is a row of changes.
    paxos_propose_interval: 0.05,
    paxos_min_wait: 0.01,
    mon_allow_pool_size_one: true,
    mon_warn_on_pool_no_redundancy: false,
    mon_max_pg_per_osd: 1_000,
    osd_data: `${dir}/osd`,
    // n.b. With these on, a quick daemon of Ceph 16 asks the monitor before it knows its cluster,
    // is refused, and ends. What they do is done by `crush add` instead.
    osd_crush_update_on_start: false,
    osd_class_update_on_start: false,
    osd_objectstore: 'memstore',
    memstore_device_bytes: MEMORY_BYTES,
    osd_class_load_list: '*',
    osd_class_default_list: '*',
    osd_crush_chooseleaf_type: 0,
    osd_pool_default_size: 1,
    osd_pool_default_min_size: 1,
    osd_pool_default_pg_num: 4,
    osd_pool_default_pgp_num: 4,
    osd_pool_default_pg_autoscale_mode: 'off',
  };
}

function gateway(dir: string, port: number): Record<string, string | number | boolean> {
  return {
    rgw_data: `${dir}/rgw`,
    rgw_frontends: `beast endpoint=127.0.0.1:${port}`,
    rgw_enable_apis: 's3, admin',
    rgw_thread_pool_size: 64,
    rgw_run_sync_thread: false,
  };
}
