/** completion — scripts for real shells, from the table of commands. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { commands } from '../../src/cli/commands.ts';
import { completionPlaces } from '../../src/cli/commands/start/completion.ts';
import { GLOBAL_OPTIONS } from '../../src/cli/program.ts';
import { setup } from './setup.ts';

const run = promisify(execFile);
const ZSH = ['/bin/zsh', '/usr/bin/zsh', '/usr/local/bin/zsh'].find((file) => existsSync(file));

test('what is offered everywhere is what every command takes', () => {
  const [, , ...places] = completionPlaces(commands);
  const flags = GLOBAL_OPTIONS.map(({ flags: text }) => text.split(' ')[0] ?? '');
  for (const { path: words, options } of places) {
    const offered = options.flatMap(({ names }) => names);
    for (const flag of flags) expect(offered, words.join(' ')).toContain(flag);
  }
  const [beginning] = completionPlaces([]);
  const everywhere = (beginning?.options ?? []).flatMap(({ names }) => names);
  expect(everywhere.toSorted()).toEqual([...flags, '-h', '--help', '--version'].toSorted());
});

describe('bash', () => {
  /** What a real bash offers after these words; the last is being typed. */
  async function offers(...words: string[]): Promise<string[]> {
    const { cli, folder } = await setup();
    const script = path.join(folder, 'completion.bash');
    await writeFile(script, (await cli(['completion', 'bash'])).bytes);
    const list = words.map((word) => `'${word}'`).join(' ');
    const program = [
      `source '${script}'`,
      `COMP_WORDS=(respool ${list})`,
      `COMP_CWORD=${words.length}`,
      '_respool',
      'printf "%s\\n" "${COMPREPLY[@]}"',
    ].join('\n');
    const { stdout } = await run('bash', ['-u', '-c', program]);
    return stdout.split('\n').filter((word) => word !== '');
  }

  test('every command is offered first', async () => {
    const offered = await offers('');
    expect(offered.toSorted()).toEqual([...commands.map(({ name }) => name), 'help'].toSorted());
  });

  test.each<[string[], string[]]>([
    [['po'], ['policy']],
    [
      ['policy', ''],
      ['explain', 'list', 'set'],
    ],
    [
      ['completion', ''],
      ['bash', 'zsh'],
    ],
    [['config', 'set', 'b'], ['bodies']],
    [
      ['init', '--format', ''],
      ['ts', 'mjs', 'json', 'yaml'],
    ],
    [
      ['init', '--fo'],
      ['--format', '--force'],
    ],
    [['--store', 'sqlite:./x', 'do'], ['doctor']],
    [['--quiet', 'token', 'create', '--role', 'p'], ['post']],
    [['help', 'doc'], ['doctor']],
    [['list', '--config', ''], []],
  ])('after %j it offers %j', async (words, wanted) => {
    expect(await offers(...words)).toEqual(wanted);
  });
});

test('the zsh script has a function for every command and quotes its texts', async () => {
  const { cli, folder } = await setup();
  const { stdout, code, bytes } = await cli(['completion', 'zsh']);
  expect(code).toBe(0);
  expect(stdout.startsWith('#compdef respool\n')).toBe(true);
  for (const { path: words } of completionPlaces(commands)) {
    expect(stdout).toContain(`\n${['_respool', ...words].join('_')}() {\n`);
  }
  // Outside of quotes an apostrophe would swallow the rest of the script.
  const unquoted = stdout.replaceAll(/'(?:[^']|'\\'')*'/g, '');
  expect(unquoted).not.toContain("'");
  // Where there is a zsh, it reads the whole of it.
  if (ZSH === undefined) return;
  const script = path.join(folder, '_respool');
  await writeFile(script, bytes);
  await expect(run(ZSH, ['-n', script])).resolves.toMatchObject({ stderr: '' });
});

test('another shell is wrong usage', async () => {
  const { cli } = await setup();
  expect((await cli(['completion', 'fish'])).code).toBe(2);
});
