/** `npm run services`, and a run of the tests without servers. */
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { withService } from './index.ts';

const ROOT = path.join(import.meta.dirname, '../..');

withService('nats', () => {
  test('servers stay up until they are taken down, and leave nothing', async () => {
    await using dir = await folder();
    const services = (...args: readonly string[]) =>
      run([path.join(ROOT, 'scripts/services.ts'), ...args], { TMPDIR: dir.path });
    expect((await services('status')).text).toContain('nothing is running');
    const [up, again] = [await services('up', 'nats'), await services('up', 'nats')];
    expect(up).toMatchObject({ code: 0, text: expect.stringMatching(/^nats: nats:\/\/127/) });
    expect(again.text).toBe(up.text);
    const url = up.text.trim().split(' ')[1] ?? '';
    expect((await services('status')).text).toContain(`nats: running nats ${url}`);
    expect(await services('down')).toMatchObject({ code: 0, text: 'all servers have ended\n' });
    expect(await readdir(dir.path)).toEqual([]);
    expect((await services('down')).text).toContain('nothing is running');
  });
});

test('a wrong word is told with those that are known', async () => {
  const script = path.join(ROOT, 'scripts/services.ts');
  const wrong = await run([script, 'upp'], {});
  expect(wrong).toMatchObject({ code: 2, text: expect.stringContaining('up [postgres|') });
  const name = await run([script, 'up', 'mysql'], {});
  expect(name).toMatchObject({ code: 2, text: expect.stringContaining('"mysql"') });
});

test('tests of servers that are to be skipped are skipped, and no server is started', async () => {
  await using dir = await folder();
  const { code, text } = await run(
    [path.join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', 'test/services/servers.test.ts'],
    { TMPDIR: dir.path, RESPOOL_TEST_SKIP: 'postgres,pgbouncer,nats,s3,rabbitmq' },
  );
  expect(code, text).toBe(0);
  expect(text).toMatch(/\d+ skipped/);
  expect((await readdir(dir.path)).filter((name) => /servers|broker/.test(name))).toEqual([]);
});

function run(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<{ readonly code: number | null; readonly text: string }> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--conditions=respool-source', ...args], {
      cwd: ROOT,
      // A run within a run: what vitest set for this one is not for that one.
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (bytes: Buffer) => {
        text += bytes.toString();
      });
    }
    child.once('close', (code) => resolve({ code, text }));
  });
}

async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const made = await mkdtemp(path.join(tmpdir(), 'respool-commands-'));
  return {
    path: made,
    [Symbol.asyncDispose]: () => rm(made, { recursive: true, force: true }),
  };
}
