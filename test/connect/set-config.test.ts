/** setConfig: one key, the rest as it was, checked first, whole or not at all (R202). */
import { chmod, readdir, readFile, stat, symlink } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { setConfig } from '../../src/connect/set-config.ts';
import { folderWith, textOf } from './setup.ts';

const YAML = `# Where messages lie.
store: sqlite:./respool # the default

serve:
  # Not the usual one.
  port: 8000
routes: []
`;

async function setup(file: string, text: string) {
  const folder = await folderWith({ [file]: text });
  const options = { cwd: folder, env: {} };
  return {
    folder,
    set: (key: string, value: string) => setConfig(path.join(folder, file), key, value, options),
    read: () => readFile(path.join(folder, file), 'utf8'),
  };
}

describe('in a YAML file', () => {
  test('a key is replaced, and comments and the rest stay', async () => {
    const { set, read, folder } = await setup('respool.config.yaml', YAML);
    const done = await set('store', 'file:./data');
    expect(done).toEqual({
      file: path.join(folder, 'respool.config.yaml'),
      isNew: false,
      removed: [],
    });
    expect(await read()).toBe(YAML.replace('sqlite:./respool', 'file:./data'));
  });

  test('a key that was not there is added, numbers as numbers', async () => {
    const { set, read } = await setup('respool.config.yaml', YAML);
    await set('lease', '90s');
    await set('serve.limits.events', '7');
    const text = await read();
    expect(text).toContain('lease: 90s');
    expect(text).toMatch(
      /serve:\n {2}# Not the usual one\.\n {2}port: 8000\n {2}limits:\n {4}events: 7\n/,
    );
  });

  test('one store for each takes out the one for both, and the other way round', async () => {
    const { set, read } = await setup('respool.config.yaml', YAML);
    expect((await set('entries', 'file:./e')).removed).toEqual(['store']);
    expect((await set('bodies', 'memory:')).removed).toEqual([]);
    expect(await read()).toContain('entries: file:./e\nbodies: "memory:"');
    expect((await set('store', 'memory:')).removed).toEqual(['entries', 'bodies']);
    expect(await read()).not.toContain('entries');
  });

  test('a group with nothing in it is filled', async () => {
    const { set, read } = await setup('respool.config.yaml', 'serve:\nlease: 5s\n');
    await set('serve.port', '80');
    await set('serve.limits.events', '3');
    expect(await read()).toBe('lease: 5s\nserve:\n  port: 80\n  limits:\n    events: 3\n');
    const empty = await setup('respool.config.yaml', '# later\n');
    await empty.set('log.level', 'warn');
    const deep = await setup('respool.config.yaml', 'serve: # all of it\n');
    await deep.set('serve.limits.events', '3');
    expect(await deep.read()).toContain('serve:\n  limits:\n    events: 3\n');
    expect(await empty.read()).toContain('log:\n  level: warn\n');
  });

  test('${NAME} stays as it is', async () => {
    const folder = await folderWith({ 'respool.config.yaml': 'lease: ${SPAN}\n' });
    const file = path.join(folder, 'respool.config.yaml');
    await setConfig(file, 'poll', '5s', { cwd: folder, env: { SPAN: '9s' } });
    expect(await readFile(file, 'utf8')).toBe('lease: ${SPAN}\npoll: 5s\n');
  });
});

test('in a JSON file a key is replaced, order and indentation stay', async () => {
  const text = '{\n\t"store": "memory:",\n\t"serve": {\n\t\t"port": 1\n\t}\n}\n';
  const { set, read } = await setup('respool.config.json', text);
  await set('serve.port', '8080');
  expect(await read()).toBe(text.replace('1', '8080'));
  expect((await set('bodies', 'memory:')).removed).toEqual(['store']);
  expect(JSON.parse(await read())).toEqual({ serve: { port: 8_080 }, bodies: 'memory:' });
});

test('without a file one is made, for the owner only', async () => {
  const folder = await folderWith();
  const options = { cwd: folder, env: {} };
  const done = await setConfig(undefined, 'store', 'file:./x', options);
  expect(done).toEqual({
    file: path.join(folder, 'respool.config.yaml'),
    isNew: true,
    removed: [],
  });
  expect(await readFile(done.file, 'utf8')).toBe('store: file:./x\n');
  expect((await stat(done.file)).mode & 0o777).toBe(0o600);
  expect(await textOf(setConfig(undefined, 'store', 'memory:', options))).toContain(
    'there is "respool.config.yaml" already',
  );
  expect(await readdir(folder)).toEqual(['respool.config.yaml']);
});

test('a second file is not made beside one of another kind', async () => {
  const folder = await folderWith({ 'respool.config.json': '{}' });
  const said = await textOf(setConfig(undefined, 'lease', '5s', { cwd: folder, env: {} }));
  expect(said).toContain('there is "respool.config.json" already');
  expect(await readdir(folder)).toEqual(['respool.config.json']);
});

test('a file that is not there is refused', async () => {
  const folder = await folderWith();
  const said = await textOf(setConfig('nowhere.yaml', 'lease', '5s', { cwd: folder, env: {} }));
  expect(said).toContain('nowhere.yaml');
});

test('a file keeps its mode, and a link to it stays a link', async () => {
  const folder = await folderWith({ 'real.yaml': 'lease: 5s\n' });
  await chmod(path.join(folder, 'real.yaml'), 0o640);
  const link = path.join(folder, 'respool.config.yaml');
  await symlink('real.yaml', link);
  await setConfig(link, 'lease', '6s', { cwd: folder, env: {} });
  expect(await readFile(path.join(folder, 'real.yaml'), 'utf8')).toBe('lease: 6s\n');
  expect((await stat(link)).mode & 0o777).toBe(0o640);
  expect((await readdir(folder)).toSorted()).toEqual(['real.yaml', 'respool.config.yaml']);
});

describe('is refused, and nothing is changed', () => {
  const cases: [string, string, string[]][] = [
    ['store', 'mysql:x', ['"mysql:x"', 'sqlite:DIR', 'nothing was changed']],
    ['store', 'file:./x?sync=maybe', ['"store?sync"', 'nothing was changed']],
    ['lease', '1ms', ['"lease"', '1s to 1d', 'nothing was changed']],
    ['stor', 'memory:', ['no such key', 'did you mean "store"?']],
    ['routes', '[]', ['more than one value']],
    ['serve.token', 'x', ['a secret does not belong on the command line']],
    ['__proto__.x', '1', ['no such key']],
  ];
  test.each(cases)('%s %s', async (key, value, words) => {
    const { set, read, folder } = await setup('respool.config.yaml', YAML);
    const said = await textOf(set(key, value));
    for (const word of words) expect(said).toContain(word);
    expect(await read()).toBe(YAML);
    expect(await readdir(folder)).toEqual(['respool.config.yaml']);
  });

  test('when the file is broken already', async () => {
    const yaml = await setup('respool.config.yaml', 'a: [\n');
    expect(await textOf(yaml.set('lease', '5s'))).toContain('line 2');
    const json = await setup('respool.config.json', '{"serve": 5}');
    expect(await textOf(json.set('serve.port', '5'))).toContain('"serve"');
    const flat = await setup('respool.config.yaml', 'serve: 5\n');
    expect(await textOf(flat.set('serve.port', '5'))).toContain('"serve"');
  });
});

test('a program is not changed: the line to write is told', async () => {
  const { set, read } = await setup('respool.config.ts', 'export default {};');
  expect(await textOf(set('store', "file:./it's"))).toContain(
    "this line into it: store: 'file:./it\\'s',",
  );
  expect(await textOf(set('serve.port', '80'))).toContain('serve: { port: 80 },');
  expect(await read()).toBe('export default {};');
});
