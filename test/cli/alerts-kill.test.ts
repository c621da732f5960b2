/** A service with alerts, killed again and again: one firing and one resolution arrive. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { httpEar } from '../observe/alerts-ground.ts';
import { setup } from './setup.ts';

const MAIN = path.join(import.meta.dirname, '../../src/cli/main.ts');
const PATIENCE = { interval: 50 };

function launch(cwd: string): ChildProcess {
  const node = ['--conditions=respool-source', MAIN, 'serve'];
  const child = spawn(process.execPath, node, { cwd, stdio: 'ignore' });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

test('a service that is killed tells of an alert once, and once of its end', async () => {
  const ear = await httpEar();
  const shell = await setup({ hasStore: true });
  const config = {
    serve: { port: 0 },
    alerts: {
      every: '1s',
      to: { ops: { http: { url: ear.url, allow: ['127.0.0.1'] } } },
      rules: [{ name: 'held', when: 'count held > 0' }],
    },
  };
  await writeFile(path.join(shell.folder, 'respool.config.json'), JSON.stringify(config));
  const spool = shell.spool();
  await spool.enqueue({ topic: 'a', id: 'm1', delay: '1h' });
  await spool.operator({ by: 'ops' }).hold(['m1']);
  let child = launch(shell.folder);
  await expect.poll(() => ear.heard.length, PATIENCE).toBe(1);
  // n.b. Between the answer of a receiver and its record lies what no sender can promise.
  const active = () =>
    spool.operator({ by: 'ops' }).tally('state', { state: ['active'], topic: 'respool.alert.ops' });
  const isOver = async (): Promise<boolean> => (await active()).every(({ count }) => count === 0);
  await expect.poll(isOver, PATIENCE).toBe(true);
  await kill(child);
  child = launch(shell.folder);
  const phase = async (): Promise<unknown> =>
    (
      (await spool.operator({ by: 'ops' }).records.get('alert.state', 'held'))?.value as {
        phase?: string;
      }
    )?.phase;
  await spool.operator({ by: 'ops' }).release(['m1']);
  // The next one takes the turn when that of the dead one is over.
  await expect.poll(phase, PATIENCE).toBe('clearing');
  await kill(child);
  child = launch(shell.folder);
  await expect.poll(() => ear.heard.length, PATIENCE).toBe(2);
  await expect.poll(phase, PATIENCE).toBe('quiet');
  await kill(child);
  expect(ear.heard.map((notice) => `${notice.phase} ${notice.episode}`)).toEqual([
    'fired 1',
    'resolved 1',
  ]);
});
