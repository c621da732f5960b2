/** However a run ends, no process and no folder of its servers stays. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, test } from 'vitest';
import { cleanLeftovers } from '../../scripts/services/ledger.ts';
import { isAlive } from '../../scripts/services/processes.ts';
import { startBroker } from './global-setup.ts';
import { withService } from './index.ts';

withService('nats', () => {
  describe('the servers of a run end with it', () => {
    test.each(['SIGINT', 'SIGTERM', 'SIGKILL'] as const)('when it gets %s', async (signal) => {
      const run = await startRun();
      run.owner.kill(signal);
      await isAllGone(run);
    });

    test('when their keeper is killed', async () => {
      const run = await startRun();
      process.kill(run.keeper, 'SIGKILL');
      await isAllGone(run);
      run.owner.kill('SIGKILL');
    });

    test('at the latest when the next one begins, if keeper and guard were killed', async () => {
      const run = await startRun();
      for (const pid of [run.guard, run.keeper]) process.kill(pid, 'SIGKILL');
      run.owner.kill('SIGKILL');
      await expect.poll(() => [run.keeper, run.guard].filter(isAlive)).toEqual([]);
      // Somebody else's run may have been quicker at cleaning.
      await cleanLeftovers();
      await isAllGone(run);
    });
  });
});

describe('the broker', () => {
  test('starts no keeper when nobody asks for a server', async () => {
    let starts = 0;
    const broker = await startBroker(
      async () => {
        starts += 1;
        return { door: '', end: async () => undefined };
      },
      async () => undefined,
    );
    await broker.stop();
    expect(starts).toBe(0);
    expect(existsSync(path.dirname(broker.door))).toBe(false);
  });

  test('starts one for all who ask, and ends it', async () => {
    const seen: string[] = [];
    const broker = await startBroker(
      async () => {
        seen.push('start');
        return { door: '/nowhere', end: async () => void seen.push('end') };
      },
      async () => undefined,
    );
    await Promise.all([knock(broker.door), knock(broker.door), knock(broker.door)]);
    await broker.stop();
    expect(seen).toEqual(['start', 'end']);
  });

  test('removes the door of a run that was killed, and no other', async () => {
    const child = spawn(process.execPath, ['-e', '']);
    await new Promise((resolve) => child.once('exit', resolve));
    const dead = path.join(tmpdir(), `respool-broker-${child.pid}-abcdef`);
    const alive = path.join(tmpdir(), `respool-broker-${process.pid}-abcdef`);
    for (const dir of [dead, alive]) mkdirSync(dir);
    const broker = await startBroker(
      async () => ({ door: '', end: async () => undefined }),
      async () => undefined,
    );
    await broker.stop();
    expect([existsSync(dead), existsSync(alive)]).toEqual([false, true]);
    rmdirSync(alive);
  });

  test('uses the servers that stand', async () => {
    let starts = 0;
    const broker = await startBroker(
      async () => {
        starts += 1;
        return { door: '', end: async () => undefined };
      },
      async () => '/nowhere',
    );
    await knock(broker.door);
    await broker.stop();
    expect(starts).toBe(0);
  });
});

interface Run {
  readonly owner: ChildProcess;
  readonly dir: string;
  readonly keeper: number;
  readonly guard: number;
  readonly servers: readonly number[];
}

async function startRun(): Promise<Run> {
  const program = path.join(import.meta.dirname, 'owner-child.ts');
  const owner = spawn(process.execPath, ['--conditions=respool-source', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const line = await new Promise<string>((resolve, reject) => {
    createInterface({ input: owner.stdout }).once('line', resolve);
    owner.once('exit', () => reject(new Error('the owner ended')));
  });
  const dir = path.dirname((JSON.parse(line) as { readonly door: string }).door);
  const record = JSON.parse(readFileSync(path.join(dir, 'record.json'), 'utf8')) as {
    readonly keeper: { readonly pid: number };
    readonly pids: readonly { readonly pid: number }[];
  };
  const servers = record.pids.map(({ pid }) => pid);
  expect(servers).toHaveLength(1);
  return { owner, dir, keeper: record.keeper.pid, guard: guardOf(dir), servers };
}

/** The guard has the folder in its command line, as its last word. */
function guardOf(dir: string): number {
  const found = readdirSync('/proc').find((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8').split('\0');
      return words.includes('respool-guard') && words.includes(dir);
    } catch {
      return false;
    }
  });
  return Number(found);
}

async function isAllGone({ dir, keeper, guard, servers }: Run): Promise<void> {
  const left = (): readonly (string | number)[] => [
    ...[dir].filter((one) => existsSync(one)),
    ...[keeper, guard, ...servers].filter(isAlive),
  ];
  await expect.poll(left).toEqual([]);
}

function knock(door: string): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(door);
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
    socket.resume();
  });
}
