/** How a server is come by: what is installed, apt-get as root, docker, a sentence. */
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { installPackages } from '../../scripts/services/apt.ts';
import { fetchSuiteProgram } from '../../scripts/services/debian-suite.ts';
import { startContainer } from '../../scripts/services/docker.ts';
import { type Machine, thisMachine } from '../../scripts/services/machine.ts';
import { obtain, type Ways } from '../../scripts/services/obtain.ts';
import type { Programs, Recipe } from '../../scripts/services/recipe.ts';
import type { Server, Site } from '../../scripts/services/server.ts';
import { givenUrl, SERVER_NAMES, skippedNames, TOOL_NAMES } from '../../scripts/services/words.ts';
import { skipReason } from './index.ts';

let dir = '';
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), 'respool-obtain-'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(dir, { recursive: true, force: true });
});

const SERVER: Server = {
  urls: { nats: 'nats://somewhere' },
  kill: async () => undefined,
  freeze: async () => undefined,
  thaw: async () => undefined,
  restart: async () => undefined,
  stop: async () => undefined,
};

describe('a server', () => {
  test('that is installed is started, and nothing is installed', async () => {
    const { server, seen } = await get({ installed: ['nats-server'] });
    expect(server).toBe(SERVER);
    expect(seen).toEqual(['start']);
  });

  test('that is not installed is installed by root first', async () => {
    const { server, seen } = await get({ isRoot: true, hasApt: true });
    expect(server).toBe(SERVER);
    expect(seen).toEqual(['install nats-server', 'start']);
  });

  test('comes from docker for who is not root', async () => {
    const { server, seen } = await get({ hasApt: true, docker: SERVER });
    expect(server).toBe(SERVER);
    expect(seen).toEqual(['docker']);
  });

  test('comes from docker where apt-get fails', async () => {
    const options = { isRoot: true, hasApt: true, aptFails: true, docker: SERVER };
    expect((await get(options)).seen).toEqual(['install nats-server', 'docker']);
  });

  test('that cannot be had is a sentence that says why, and what to do', async () => {
    await expect(get({ isRoot: true, hasApt: true, aptFails: true })).rejects.toThrow(
      'cannot start nats for the tests: "nats-server" is not installed; no network; ' +
        'no engine. Install nats-server, or set RESPOOL_TEST_NATS_URL, ' +
        'or set RESPOOL_TEST_SKIP=nats to go without',
    );
    await expect(get({ hasApt: true })).rejects.toThrow('only root can install it');
    await expect(get({ isRoot: true })).rejects.toThrow('is not installed; no engine');
  });

  test('that is too old is replaced by a newer one, and used where there is none', async () => {
    const newer = await get({ installed: ['nats-server'], fetched: { 'nats-server': '/new' } });
    expect(newer.seen).toEqual(['start /new']);
    const older = await get({ installed: ['nats-server'], fetched: new Error('no network') });
    expect(older.seen).toEqual(['start']);
    expect(older.told).toEqual([
      'cannot get a newer nats: no network; using the installed one instead',
    ]);
    const none = await get({ isRoot: true, hasApt: true, fetched: new Error('no network') });
    expect(none.seen).toEqual(['install nats-server', 'start']);
  });

  test('gets a second chance in another folder when its start fails', async () => {
    const { seen, sites } = await get({ installed: ['nats-server'], startFails: 1 });
    expect(seen).toEqual(['start', 'start']);
    expect(sites).toBe(2);
    await expect(get({ installed: ['nats-server'], startFails: 2 })).rejects.toThrow('port taken');
  });
});

test('a URL in the environment is what it says; an empty one is none', () => {
  expect(givenUrl('s3', { RESPOOL_TEST_S3_URL: 'http://k:s@host' })).toBe('http://k:s@host');
  expect(givenUrl('s3', { RESPOOL_TEST_S3_URL: '' })).toBeUndefined();
  expect(givenUrl('rabbitmq', { RESPOOL_TEST_AMQP_URL: 'amqp://x' })).toBe('amqp://x');
});

test('servers to skip are named, and a wrong name is told', () => {
  expect([...skippedNames({ RESPOOL_TEST_SKIP: 's3, nats,' })]).toEqual(['s3', 'nats']);
  expect(skippedNames({}).size).toBe(0);
  expect(() => skippedNames({ RESPOOL_TEST_SKIP: 'mysql' })).toThrow('"mysql"');
});

test.each(TOOL_NAMES)(
  'the tests of the program %s can be skipped, and those of servers run',
  (name) => {
    vi.stubEnv('RESPOOL_TEST_SKIP', name);
    for (const server of SERVER_NAMES) expect(skipReason(server)).toBeUndefined();
    vi.unstubAllEnvs();
  },
);

test('a program is found in PATH, and one that cannot be run is not', async () => {
  await program('some-server', 'exit 0');
  await writeFile(path.join(dir, 'no-program'), '');
  const machine = thisMachine({ PATH: dir });
  expect(machine.find('some-server')).toBe(path.join(dir, 'some-server'));
  expect(machine.find('no-program')).toBeUndefined();
});

describe('apt-get', () => {
  const files = () => ({ policy: path.join(dir, 'policy-rc.d'), lock: path.join(dir, 'lock') });
  const machine = (): Machine =>
    thisMachine({ ...process.env, PATH: `${dir}:${process.env['PATH']}`, DIR: dir });

  test('is asked for what is needed, with daemons forbidden for as long as it runs', async () => {
    await program(
      'apt-get',
      `echo "$@" >>"$DIR/calls"
       case $* in *install*) code=0; "$POLICY" x start || code=$?; echo "policy $code" >>"$DIR/calls";; esac`,
    );
    await installPackages(machine(), ['one', 'two'], files());
    const calls = await readFile(path.join(dir, 'calls'), 'utf8');
    expect(calls).toMatch(/^-q update\n.*--no-install-recommends install one two\npolicy 101\n$/);
    await expect(stat(files().policy)).rejects.toThrow('ENOENT');
  });

  test('tries the update again, and gives up with what it said', async () => {
    await program('sleep', 'exit 0');
    await program('apt-get', 'echo x >>"$DIR/calls"; echo "no network" >&2; exit 100');
    await expect(installPackages(machine(), ['one'], files())).rejects.toThrow('no network');
    expect((await readFile(path.join(dir, 'calls'), 'utf8')).length).toBe(10);
  });

  test('leaves a policy that is there as it is, and is not asked where it lets daemons start', async () => {
    await program('apt-get', 'echo "$@" >>"$DIR/calls"');
    const forbids = await program('policy-rc.d', 'exit 101');
    await installPackages(machine(), ['one'], files());
    expect(await readFile(path.join(dir, 'policy-rc.d'), 'utf8')).toBe(forbids);
    await program('policy-rc.d', 'exit 0');
    await rm(path.join(dir, 'calls'));
    await expect(installPackages(machine(), ['one'], files())).rejects.toThrow(
      'lets daemons start',
    );
    await expect(stat(path.join(dir, 'calls'))).rejects.toThrow('ENOENT');
  });

  test('runs once at a time', async () => {
    // A folder can be made only once: a second run at the same time would fail.
    await program(
      'apt-get',
      'mkdir "$DIR/busy" || exit 1; sleep 0.05; rmdir "$DIR/busy"; echo "$@" >>"$DIR/calls"',
    );
    const install = () => installPackages(machine(), ['one'], files());
    await Promise.all([install(), install(), install()]);
    const calls = (await readFile(path.join(dir, 'calls'), 'utf8')).trim().split('\n');
    expect(calls).toHaveLength(6);
    await expect(stat(files().policy)).rejects.toThrow('ENOENT');
  });
});

describe('a program of a newer Debian', () => {
  const wanted = { suite: 'newer', name: 'some-server', program: 'usr/sbin/some-server' };
  const machine = (): Machine => ({
    ...thisMachine({ PATH: `${dir}:${process.env['PATH']}`, XDG_CACHE_HOME: dir, DIR: dir }),
    hasApt: true,
  });
  const unpack = `mkdir -p "$3/usr/sbin"; printf '#!/bin/sh\\n' >"$3/usr/sbin/some-server"
    chmod 755 "$3/usr/sbin/some-server"`;

  test.skipIf(!existsSync('/usr/share/keyrings/debian-archive-keyring.gpg'))(
    'is downloaded once, by the first of those that want it at the same time',
    async () => {
      await program('apt-get', 'echo "$@" >>"$DIR/calls"; case $* in *download*) : >x.deb;; esac');
      await program('dpkg-deb', unpack);
      const fetch = () => fetchSuiteProgram(machine(), wanted);
      const found = await Promise.all([fetch(), fetch(), fetch()]);
      expect(new Set(found).size).toBe(1);
      expect((await stat(found[0] ?? '')).mode & 0o111).not.toBe(0);
      const calls = (await readFile(path.join(dir, 'calls'), 'utf8')).trim().split('\n');
      expect(calls.map((call) => /update|download some-server/.exec(call)?.[0])).toEqual([
        'update',
        'download some-server',
      ]);
      expect(calls[0]).toContain('Dir::Etc::SourceList=/dev/null');
    },
  );

  test('that cannot be downloaded leaves nothing, and is not tried a second time', async () => {
    await program('apt-get', 'echo x >>"$DIR/calls"; echo "no such suite" >&2; exit 100');
    const fetch = () => fetchSuiteProgram(machine(), wanted);
    await expect(fetch()).rejects.toThrow(/no such suite|there is no/);
    await expect(fetch()).rejects.toThrow(/no such suite|there is no/);
    const calls = await readFile(path.join(dir, 'calls'), 'utf8').catch(() => 'x\n');
    expect(calls).toBe('x\n');
    const left = await readdir(path.join(dir, 'respool-test-servers')).catch(() => []);
    expect(left.filter((name) => !name.endsWith('.lock'))).toEqual([]);
  });
});

describe('docker', () => {
  const plan = {
    image: 'image:1',
    env: { NAME: 'value' },
    ports: [4222],
    args: ['-x'],
    urls: ([port]: readonly number[]) => ({ nats: `nats://127.0.0.1:${port}` }),
    isReady: async () => true,
  };
  const start = async (containers: string[] = []) => {
    const ledger = {
      add: () => undefined,
      remove: () => undefined,
      addContainer: (name: string) => void containers.push(name),
    };
    const site: Site = { dir, ledger, urlOf: async () => '' };
    const machine = thisMachine({ ...process.env, PATH: `${dir}:${process.env['PATH']}` });
    return startContainer(plan, site, { machine, tell: () => undefined });
  };

  test('is used where an engine answers: on loopback, and removed in the end', async () => {
    const port = 'if [ "$1" = port ]; then echo 127.0.0.1:49153; fi';
    await program('docker', `echo "$@" >>"${dir}/calls"; ${port}`);
    const containers: string[] = [];
    const server = await start(containers);
    if (typeof server === 'string') throw new Error(server);
    expect(server.urls.nats).toBe('nats://127.0.0.1:49153');
    for (const act of ['kill', 'freeze', 'thaw', 'restart', 'stop'] as const) await server[act]();
    const calls = (await readFile(path.join(dir, 'calls'), 'utf8')).trim().split('\n');
    const [name] = containers;
    expect(calls.slice(1)).toEqual([
      `run --detach --name ${name} --env NAME=value --publish 127.0.0.1::4222 image:1 -x`,
      `port ${name} 4222/tcp`,
      `kill ${name}`,
      `pause ${name}`,
      `unpause ${name}`,
      `restart --time 1 ${name}`,
      `rm --force --volumes ${name}`,
    ]);
  });

  test('is not used where none answers', async () => {
    await program('docker', 'exit 1');
    expect(await start()).toBe('no docker engine answers');
  });
});

interface World {
  readonly installed?: readonly string[];
  readonly isRoot?: boolean;
  readonly hasApt?: boolean;
  readonly aptFails?: boolean;
  readonly docker?: Server;
  readonly startFails?: number;
  /** What `fetch` of the recipe brings; without it the recipe has none. */
  readonly fetched?: Programs | Error;
}

async function get({ installed = [], isRoot = false, hasApt = false, ...world }: World) {
  const seen: string[] = [];
  const told: string[] = [];
  const { fetched } = world;
  const there = new Set(installed);
  let [fails, sites] = [world.startFails ?? 0, 0];
  const machine: Machine = {
    ...thisMachine({}),
    isRoot,
    hasApt,
    find: (name) => (there.has(name) ? `/bin/${name}` : undefined),
  };
  const recipe: Recipe = {
    name: 'nats',
    gives: ['nats'],
    packages: ['nats-server'],
    find: (on) => (on.find('nats-server') === undefined ? 'nats-server' : {}),
    ...(fetched === undefined
      ? {}
      : {
          fetch: () =>
            fetched instanceof Error ? Promise.reject(fetched) : Promise.resolve(fetched),
        }),
    async start({ 'nats-server': command }) {
      seen.push(command === undefined ? 'start' : `start ${command}`);
      fails -= 1;
      if (fails >= 0) throw new Error('port taken');
      return SERVER;
    },
    docker: { image: 'nats', ports: [], urls: () => ({}), isReady: async () => true },
  };
  const ways: Ways = {
    async install(_, packages) {
      seen.push(`install ${packages.join(' ')}`);
      if (world.aptFails === true) throw new Error('no network');
      for (const name of packages) there.add(name);
    },
    async contain() {
      if (world.docker === undefined) return 'no engine';
      seen.push('docker');
      return world.docker;
    },
  };
  const ledger = { add: () => undefined, remove: () => undefined, addContainer: () => undefined };
  const makeSite = async (): Promise<Site> => {
    sites += 1;
    return { dir, ledger, urlOf: async () => '' };
  };
  const server = await obtain(recipe, makeSite, {
    machine,
    tell: (news) => void told.push(news),
    ways,
  });
  return { server, seen, sites, told };
}

/** Writes a program into the folder that comes first in PATH. */
async function program(name: string, script: string): Promise<string> {
  const text = `#!/bin/sh\n${script}\n`;
  await writeFile(path.join(dir, name), text);
  await chmod(path.join(dir, name), 0o755);
  return text;
}
