/** main — the process itself: where its output goes, and how it ends. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test } from 'vitest';
import { fill } from './fill.ts';
import { setup } from './setup.ts';

const MAIN = path.join(import.meta.dirname, '../../src/cli/main.ts');
const SLOWEST_MS = 240_000;

/** A command in a process of its own; stdout goes where it is told to. */
function launch(cwd: string, words: readonly string[], stdout: 'pipe' | number = 'pipe') {
  const child: ChildProcess = spawn(
    process.execPath,
    ['--conditions=respool-source', MAIN, ...words],
    { cwd, stdio: ['ignore', stdout, 'pipe'], timeout: SLOWEST_MS },
  );
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

async function ran(cwd: string, words: readonly string[], stdout: 'pipe' | number = 'pipe') {
  const child = launch(cwd, words, stdout);
  const [out, err] = await Promise.all([
    child.stdout === null ? '' : text(child.stdout),
    child.stderr === null ? '' : text(child.stderr),
    once(child, 'exit'),
  ]);
  return { code: child.exitCode, stdout: out, stderr: err };
}

async function configured(program: string) {
  const shell = await setup({ hasStore: true });
  await writeFile(path.join(shell.folder, 'respool.config.mjs'), program);
  return shell;
}

describe('a configuration that is a program', () => {
  test('may leave something running: a command ends all the same', async () => {
    const { folder } = await configured('setInterval(() => {}, 1_000); export default {};');
    const { code, stdout } = await ran(folder, ['enqueue', 'a', '--body', 'x', '--id', 'one']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'one\n' });
  });

  test('may print, and what it prints is no part of a result', async () => {
    const { folder } = await configured(
      "console.log('hello'); console.info('hello'); export default {};",
    );
    const { code, stdout, stderr } = await ran(folder, ['stats', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toHaveProperty('states');
    expect(stderr).toBe('hello\nhello\n');
  });

  test.each(['await new Promise(() => {});', 'process.exit(0);'])(
    'that never comes to its end (%s) is said, and ends with 2',
    async (line) => {
      const { folder } = await configured(`${line} export default {};`);
      const { code, stdout, stderr } = await ran(folder, ['list']);
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toMatch(/^respool: the process ended before the command did.*\n$/);
    },
  );
});

describe.runIf(process.platform === 'linux')('a stdout that takes nothing', () => {
  async function full(): Promise<number> {
    const device = await open('/dev/full', 'w');
    onTestFinished(() => device.close());
    return device.fd;
  }

  test.each([['list'], ['list', '--json'], ['stats', '--watch']])(
    'ends %s %s with 1, and is said once',
    async (...words) => {
      const shell = await setup({ hasStore: true });
      await fill(shell);
      const { code, stderr } = await ran(shell.folder, words, await full());
      expect(code).toBe(1);
      expect(stderr).toMatch(/^respool: cannot write to stdout: ENOSPC.*\n$/);
    },
  );

  test('does not end serve, and is said once', async () => {
    const { folder } = await setup();
    const child = launch(folder, ['serve', '--port', '0', '--store', 'memory:'], await full());
    let said = '';
    const isSaid = Promise.withResolvers<void>();
    child.stderr?.on('data', (piece: Buffer) => {
      said += piece.toString('utf8');
      isSaid.resolve();
    });
    await isSaid.promise;
    expect(child.exitCode).toBeNull();
    child.kill('SIGTERM');
    await once(child, 'exit');
    // Without anybody to stop it, it would not have got as far as to say that it was stopped.
    expect(child.exitCode).toBe(0);
    expect(said).toMatch(/^warning: cannot write the log: ENOSPC.*deliveries continue\n$/);
  });
});
