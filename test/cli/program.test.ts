/** program — words in, output and exit code out. */
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import {
  CommandError,
  errorCodeOf,
  EXIT,
  EXIT_CODES,
  exitCodeOf,
} from '../../src/cli/exit-codes.ts';
import { ERROR_CODES, RespoolError } from 'respool';
import { setup } from './setup.ts';

const root = path.join(import.meta.dirname, '../..');

describe('help', () => {
  test('names every command, the options of all, and the exit codes', async () => {
    const { cli } = await setup({ hasStore: true });
    const { code, stdout } = await cli(['--help']);
    expect(code).toBe(0);
    for (const { name } of commands) expect(stdout).toMatch(new RegExp(`^  ${name}\\b`, 'm'));
    for (const { meaning } of EXIT_CODES) expect(stdout).toContain(meaning);
    expect(stdout).not.toContain('--token ');
  });

  test.each(commands.map(({ name }) => name))('of %s has its examples', async (name) => {
    const { cli } = await setup({ hasStore: true });
    const { code, stdout } = await cli([name, '--help']);
    expect(code).toBe(0);
    const spec = commands.find((command) => command.name === name);
    for (const { line } of spec?.examples ?? []) expect(stdout).toContain(line);
    for (const { flags } of spec?.options ?? []) expect(stdout).toContain(flags);
    expect(await cli(['help', name])).toMatchObject({ code: 0, stdout });
  });

  test('is what no words at all lead to, as wrong usage', async () => {
    const { cli } = await setup({ hasStore: true });
    const ran = await cli([]);
    expect(ran).toMatchObject({ code: 2, stdout: '' });
    expect(ran.stderr).toMatch(/^Usage: respool/);
  });
});

test('--version prints the version of the package', async () => {
  const { cli } = await setup({ hasStore: true });
  const manifest = await readFile(path.join(root, 'package.json'), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  expect(await cli(['--version'])).toMatchObject({ code: 0, stdout: `${version}\n` });
  expect((await cli(['--version', '--json'])).objects()).toEqual([{ version }]);
});

describe('wrong usage ends with 2 and the nearest name', () => {
  test.each([
    [['lst'], 'unknown command "lst"; did you mean "list"?'],
    [['list', '--stat', 'hold'], 'unknown option "--stat"; did you mean "--state"?'],
    [['help', 'nope'], 'unknown command "nope"; see: respool --help'],
    [['help', 'lst'], 'unknown command "lst"; did you mean "list"?'],
    [['list', '--token', 'x'], 'unknown option "--token"; see: respool list --help'],
    [['show'], 'missing required argument "id"; see: respool show --help'],
    [['pause', 'a', 'b'], 'too many arguments for "pause"'],
    [['bench', '--seconds', 'x'], '1 to 60; see: respool bench --help'],
    [
      ['completion', 'fish'],
      'cannot use "fish" as <shell>: allowed is bash, zsh; see: respool completion --help',
    ],
    [
      ['config', 'set', 'stor', 'x'],
      'cannot use "stor" as <key>: allowed is store, entries, bodies, transforms (did you mean ' +
        '"store"?); ' +
        'see: respool config set --help',
    ],
    [['list', '--state'], 'option "--state <state>" argument missing'],
  ])('%j', async (words, text) => {
    const { cli } = await setup({ hasStore: true });
    const ran = await cli(words);
    expect(ran).toMatchObject({ code: 2, stdout: '' });
    expect(ran.stderr).toContain(text);
    const json = await cli(['--json', ...words]);
    const { error } = JSON.parse(json.stderr) as { error: Record<string, string> };
    expect(error['code']).toBe('usage.invalid');
    expect(error['message']).toContain(text);
  });
});

describe('options of every command', () => {
  test('stand before or after its name', async () => {
    const { cli } = await setup({ hasStore: true });
    expect((await cli(['--json', 'pause', 'a'])).objects()).toHaveLength(1);
    expect((await cli(['pause', 'a', '--json'])).objects()).toHaveLength(1);
  });

  test('--store chooses where messages are stored', async () => {
    const { cli, folder } = await setup();
    await cli(['--store', 'sqlite:./elsewhere', 'enqueue', 'a', '--body', 'x']);
    expect(await readdir(folder)).toEqual(['elsewhere']);
    const ran = await cli(['list', '--store', 'sqlite:./elsewhere', '--json']);
    expect(ran.objects()).toHaveLength(1);
  });

  test('--config chooses the configuration', async () => {
    const { cli, folder } = await setup({ hasStore: true });
    await mkdir(path.join(folder, 'deep'));
    await writeFile(path.join(folder, 'deep', 'respool.config.json'), '{"store":"sqlite:./here"}');
    const words = ['--config', 'deep/respool.config.json', 'enqueue', 'a', '--body', 'x'];
    expect((await cli(words)).code).toBe(0);
    expect(await readdir(path.join(folder, 'deep'))).toContain('here');
  });

  test('--quiet prints results only, --verbose says more', async () => {
    const { cli } = await setup({ hasStore: true });
    expect((await cli(['list', '--quiet'])).stderr).toBe('');
    expect((await cli(['list', '--verbose'])).stderr).toMatch(/^on the store itself: sqlite /);
  });

  test('--no-color, NO_COLOR and a pipe have no colours; a terminal has', async () => {
    const { cli, spool } = await setup({ hasStore: true });
    const own = spool();
    await own.enqueue({ topic: 'a' });
    await own.stop();
    const tty = ['stdout' as const];
    expect((await cli(['list'], { tty })).stdout).toContain('\u001b[');
    expect((await cli(['list', '--no-color'], { tty })).stdout).not.toContain('\u001b');
    expect((await cli(['--no-color', 'list'], { tty })).stdout).not.toContain('\u001b');
    expect((await cli(['list'], { tty, env: { NO_COLOR: '1' } })).stdout).not.toContain('\u001b');
    expect((await cli(['list'], { tty, env: { TERM: 'dumb' } })).stdout).not.toContain('\u001b');
    expect((await cli(['list'])).stdout).not.toContain('\u001b');
    expect((await cli(['list'], { env: { FORCE_COLOR: '1' } })).stdout).toContain('\u001b[');
  });
});

describe('exit codes', () => {
  test('every error of ours has one that is in the table', () => {
    const known = EXIT_CODES.map(({ code }) => code);
    for (const code of ERROR_CODES) {
      expect(known).toContain(exitCodeOf(new RespoolError(code, 'x')));
      expect(exitCodeOf(new RespoolError(code, 'x'))).not.toBe(0);
      expect(errorCodeOf(new RespoolError(code, 'x'))).toBe(code);
    }
    expect(exitCodeOf(new Error('x'))).toBe(EXIT.refused);
    expect(errorCodeOf(new Error('x'))).toBe('unexpected');
    expect(exitCodeOf(new CommandError('interrupted', 'x'))).toBe(130);
    expect(exitCodeOf(new CommandError('not.confirmed', 'x'))).toBe(4);
  });

  test('a configuration that is wrong ends with 2', async () => {
    const { cli, folder } = await setup({ hasStore: true });
    await writeFile(path.join(folder, 'respool.config.json'), '{"stor":"x"}');
    const ran = await cli(['list', '--json']);
    expect(ran.code).toBe(2);
    expect(JSON.parse(ran.stderr)).toMatchObject({ error: { code: 'config.invalid' } });
  });

  test('a store that cannot be used ends with 3', async () => {
    const { cli, folder } = await setup();
    await writeFile(path.join(folder, 'respool'), 'a file where a folder should be');
    const ran = await cli(['list', '--json']);
    expect(ran).toMatchObject({ code: 3, stdout: '' });
    expect(ran.stderr).toMatch(/"code":"store\./);
  });
});

describe('bin/respool.js', () => {
  const bin = path.join(root, 'bin/respool.js');
  const node = promisify(execFile);

  test('runs a command, and its exit code is passed on', async () => {
    const { folder } = await setup({ hasStore: true });
    const options = { cwd: folder, timeout: 240_000 };
    const { stdout } = await node(process.execPath, [bin, 'enqueue', 'a', '--body', 'x'], options);
    expect(stdout).toMatch(/^[0-9a-f-]{36}\n$/);
    await expect(node(process.execPath, [bin, 'lst'], options)).rejects.toMatchObject({ code: 2 });
  });

  test('says in a sentence that Node is too old', async () => {
    const { folder } = await setup({ hasStore: true });
    const old = path.join(folder, 'old.mjs');
    const versions = "{ ...process.versions, node: '18.20.0' }";
    await writeFile(old, `Object.defineProperty(process, 'versions', { value: ${versions} });`);
    const ran = node(process.execPath, ['--import', old, bin, '--version']);
    await expect(ran).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/needs Node 22\.19 or newer, and this is 18\.20\.0/) as string,
    });
  });

  test('a reader of the remarks that is gone takes neither the output nor the exit code', async () => {
    const { folder } = await setup();
    const script = [
      `"${process.execPath}" "${bin}" enqueue a --body x --id one >/dev/null`,
      `"${process.execPath}" "${bin}" list --json --verbose 2> >(exec true) | wc -l`,
      `"${process.execPath}" "${bin}" show nobody --verbose 2> >(exec true)`,
      'echo $?',
    ].join('\n');
    const { stdout } = await node('bash', ['-c', script], { cwd: folder, timeout: 240_000 });
    expect(stdout.trim().split(/\s+/)).toEqual(['1', '1']);
  });

  test('a reader that has seen enough is no error', async () => {
    const { folder, spool } = await setup({ hasStore: true });
    const own = spool();
    await own.enqueueMany(Array.from({ length: 3_000 }, () => ({ topic: 'a' })));
    await own.stop();
    const line = `"${process.execPath}" "${bin}" list --json | head -n 1; echo "\${PIPESTATUS[0]}"`;
    const { stdout, stderr } = await node('bash', ['-c', line], { cwd: folder, timeout: 240_000 });
    expect(stdout.trim().split('\n').at(-1)).toBe('0');
    expect(stderr).toBe('');
  });
});

test('every command is tested here', async () => {
  const files = await readdir(import.meta.dirname);
  const texts = await Promise.all(
    files
      .filter((file) => file.endsWith('.test.ts') && file !== 'program.test.ts')
      .map((file) => readFile(path.join(import.meta.dirname, file), 'utf8')),
  );
  const untested = commands
    .map(({ name }) => name)
    .filter((name) => !texts.some((text) => text.includes(`['${name}'`)));
  expect(untested).toEqual([]);
});
