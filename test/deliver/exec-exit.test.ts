/** What becomes of running commands when our own process ends without waiting for them. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { exec } from 'respool/deliver';
import { brief, folder, script } from './setup.ts';

const DELIVER = pathToFileURL(path.resolve('src/deliver/index.ts')).href;

// Regression: after a second signal commands went on for ever, without anybody to stop them.
test('a command and what it started are killed when our process exits at once', async () => {
  const dir = await folder();
  const command = await script(
    `trap '' TERM; sleep 300 & echo "$$ $!" > '${dir}/new'; mv '${dir}/new' '${dir}/pids'; wait`,
  );
  const program = path.join(dir, 'program.mjs');
  await writeFile(
    program,
    `import { watch, existsSync } from 'node:fs';
    import { exec } from '${DELIVER}';
    const envelope = { enqueuedAt: 0, body: { size: 0 } };
    const signal = new AbortController().signal;
    const delivery = { id: 'a', topic: 'a', lane: 'delivery', attempt: 1, headers: {}, envelope,
      signal, note() {}, async *stream() {} };
    watch('${dir}', () => existsSync('${dir}/pids') && process.exit(3));
    exec(['${command}'])(delivery);`,
  );
  const child = spawn(process.execPath, ['--conditions=respool-source', program]);
  const errors: Buffer[] = [];
  child.stderr.on('data', (part: Buffer) => errors.push(part));
  const [code] = (await once(child, 'close')) as [number];
  expect([code, Buffer.concat(errors).toString()]).toEqual([3, '']);
  const pids = (await readFile(path.join(dir, 'pids'), 'utf8')).trim().split(' ').map(Number);
  onTestFinished(() => pids.forEach(killIfThere));
  expect(pids).toHaveLength(2);
  // The kernel takes a moment to end what was killed; without a kill this never gets true.
  await expect.poll(() => Promise.all(pids.map(isRunning))).toEqual([false, false]);
});

test('there is one listener for all commands, and none when no command runs', async () => {
  const before = process.listenerCount('exit');
  const dir = await folder();
  const handler = exec([
    await script(`until [ -e '${dir}/go' ]; do sleep 0.02; done; echo >> '${dir}/ran'`),
  ]);
  expect(process.listenerCount('exit')).toBe(before);
  const both = [brief(handler), brief(handler)];
  expect(process.listenerCount('exit')).toBe(before + 1);
  await writeFile(path.join(dir, 'go'), '');
  expect(await Promise.all(both)).toEqual(['delivered', 'delivered']);
  expect(process.listenerCount('exit')).toBe(before);
});

async function isRunning(pid: number): Promise<boolean> {
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') X');
  return !/\) [ZX]/.test(state);
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It is gone, as it should be.
  }
}
