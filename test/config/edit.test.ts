/** setConfig: one key, the rest as it was, checked first, whole or not at all (R202). */
import { chmod, chown, readdir, readFile, stat, symlink } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { configFileOf } from '../../src/config/load/load-config.ts';
import { setConfig } from '../../src/config/edit.ts';
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
    expect(await read()).toBe('serve:\n  port: 80\n  limits:\n    events: 3\nlease: 5s\n');
    const empty = await setup('respool.config.yaml', '# later\n');
    await empty.set('log.level', 'warn');
    const deep = await setup('respool.config.yaml', 'serve: # all of it\n');
    await deep.set('serve.limits.events', '3');
    expect(await deep.read()).toBe('serve: # all of it\n  limits:\n    events: 3\n');
    expect(await empty.read()).toContain('log:\n  level: warn\n');
  });

  test('${NAME} stays as it is', async () => {
    const folder = await folderWith({ 'respool.config.yaml': 'lease: ${SPAN}\n' });
    const file = path.join(folder, 'respool.config.yaml');
    await setConfig(file, 'poll', '5s', { cwd: folder, env: { SPAN: '9s' } });
    expect(await readFile(file, 'utf8')).toBe('lease: ${SPAN}\npoll: 5s\n');
  });
});

describe('everything else stays as it is written', () => {
  const cases: [why: string, before: string, set: [string, string], after: string][] = [
    [
      'a comment above a key that has to go',
      '# top comment\nstore: file:./x # gone\n# of the lease\nlease: 5s\n',
      ['bodies', 'memory:'],
      '# top comment\n# of the lease\nlease: 5s\nbodies: "memory:"\n',
    ],
    [
      'a comment above the only key',
      '# top comment\n\nstore: file:./x\n',
      ['entries', 'file:./e'],
      '# top comment\n\nentries: file:./e\n',
    ],
    [
      'line ends of another system',
      '# one\r\nlease: 5s\r\n\r\nserve:\r\n  port: 1 # odd\r\n',
      ['serve.limits.events', '3'],
      '# one\r\nlease: 5s\r\n\r\nserve:\r\n  port: 1 # odd\r\n  limits:\r\n    events: 3\r\n',
    ],
    [
      'lists and objects in brackets, and the number of spaces',
      'serve:   {port: 1,   hosts: [a,b]}\nlease:    5s   # so\n',
      ['lease', '6s'],
      'serve:   {port: 1,   hosts: [a,b]}\nlease:    6s   # so\n',
    ],
    [
      'an object in brackets that gets a key',
      'serve: {port: 1, hosts: [a,b]}\n',
      ['serve.stopWithin', '3s'],
      'serve: {port: 1, hosts: [a,b], stopWithin: 3s}\n',
    ],
    [
      'what stands between groups',
      'serve:\n    port: 1\n    # last\n\n# Log.\nlog:\n    level: info\n',
      ['serve.host', 'localhost'],
      'serve:\n    port: 1\n    host: localhost\n    # last\n\n# Log.\nlog:\n    level: info\n',
    ],
    ['a last line without an end', 'lease: 5s', ['poll', '6s'], 'lease: 5s\npoll: 6s\n'],
    [
      'comments of a group with nothing in it',
      '# c\nserve: # all of it\n  # inner\nlease: # later\n',
      ['serve.port', '80'],
      '# c\nserve: # all of it\n  port: 80\n  # inner\nlease: # later\n',
    ],
    [
      'the comment of a key with nothing behind it',
      'lease: # later\npoll: 5s\n',
      ['lease', '6s'],
      'lease: 6s # later\npoll: 5s\n',
    ],
    ['quotes', 'store: "file:./a b"\n', ['lease', '6s'], 'store: "file:./a b"\nlease: 6s\n'],
    [
      'an object in a place of a word',
      'retention: {delivered: remove, removed: 1d}\n',
      ['retention.delivered', 'archive:2d'],
      'retention: {delivered: { archive: 2d }, removed: 1d}\n',
    ],
    [
      'line ends, also where the text is written anew',
      'retention:\r\n  delivered:\r\n    archive: 1d\r\nlease: 5s\r\n',
      ['retention.delivered', 'remove'],
      'retention:\r\n  delivered: remove\r\nlease: 5s\r\n',
    ],
    [
      'brackets without spaces, also where the text is written anew',
      'retention:\n  delivered:\n    archive: 1d\ncaretaker: {every: 1m}\n',
      ['retention.delivered', 'remove'],
      'retention:\n  delivered: remove\ncaretaker: {every: 1m}\n',
    ],
    [
      'several lines of one value',
      'store: >-\n  file:./x\n# so\nlease: 5s\n',
      ['store', 'memory:'],
      'store: >-\n  memory:\n# so\nlease: 5s\n',
    ],
  ];
  test.each(cases)('%s', async (_, before, [key, value], after) => {
    const { set, read } = await setup('respool.config.yaml', before);
    await set(key, value);
    expect(await read()).toBe(after);
  });

  test.each([
    [
      '{ "store": "memory:",\r\n  "serve": {"hosts": [ "a","b" ]} }',
      ['serve.port', '80'],
      '{ "store": "memory:",\r\n  "serve": {"hosts": [ "a","b" ], "port": 80} }',
    ],
    [
      '{\n  "lease": "5s",\n  "store": "memory:"\n}\n',
      ['bodies', 'memory:'],
      '{\n  "lease": "5s",\n  "bodies": "memory:"\n}\n',
    ],
    [
      '{\r\n\t"store": "memory:"\r\n}\r\n',
      ['bodies', 'memory:'],
      '{\r\n\t"bodies": "memory:"\r\n}\r\n',
    ],
    ['{"lease":"5s"}', ['log.level', 'warn'], '{"lease":"5s", "log": {"level":"warn"}}'],
  ] as const)('in JSON %j', async (before, [key, value], after) => {
    const { set, read } = await setup('respool.config.json', before);
    await set(key, value);
    expect(await read()).toBe(after);
  });
});

test('a value that is wrong can be mended: only what comes out is checked', async () => {
  const { set, read, folder } = await setup('respool.config.yaml', '# x\nstore: mysql:y # z\n');
  // The file is found without being read.
  const file = path.join(folder, 'respool.config.yaml');
  expect(await configFileOf({ cwd: folder, env: {} })).toBe(file);
  expect(await configFileOf({ cwd: '/', env: { RESPOOL_CONFIG: folder } })).toBe(file);
  await set('store', 'file:./y');
  expect(await read()).toBe('# x\nstore: file:./y # z\n');
});

test('${NAME} of .env beside the file is known, and the environment stays as it was', async () => {
  const folder = await folderWith({
    'respool.config.yaml': 'lease: ${SPAN}\n',
    '.env': 'SPAN=9s\n',
  });
  const env = {};
  const file = path.join(folder, 'respool.config.yaml');
  await setConfig(file, 'poll', '5s', { cwd: folder, env });
  expect(await readFile(file, 'utf8')).toBe('lease: ${SPAN}\npoll: 5s\n');
  expect(env).toEqual({});
});

test.skipIf(process.getuid?.() !== 0)('a file keeps its owner when root changes it', async () => {
  const { set, folder } = await setup('respool.config.yaml', 'lease: 5s\n');
  const file = path.join(folder, 'respool.config.yaml');
  await chmod(file, 0o640);
  await chown(file, 1_234, 2_345);
  await set('lease', '6s');
  const { uid, gid, mode } = await stat(file);
  expect({ uid, gid, mode: mode & 0o777 }).toEqual({ uid: 1_234, gid: 2_345, mode: 0o640 });
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
