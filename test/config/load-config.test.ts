/** loadConfig: which file, what it says, and what is wrong with it (R202, R216, R217). */
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { show } from '../../src/core/errors.ts';
import { at, folderWith, load, refusal, textOf } from './setup.ts';

const PROGRAM = `
import { defineConfig, fixed } from 'respool';
export default defineConfig({
  store: 'memory:',
  policies: { default: fixed('3s', { attempts: 4 }) },
  routes: [{ topic: 'a.*', deliver: () => undefined }],
});
`;
const TYPED = `${PROGRAM}\nexport const answer: number = 42;\n`;
const DATA = {
  store: 'memory:',
  policies: { default: { fixed: '3s', attempts: 4 } },
  routes: [{ topic: 'a.*', deliver: { http: { url: 'https://example.com/' } } }],
};
const YAML = `
store: 'memory:' # kept nowhere
policies:
  default: { fixed: 3s, attempts: 4 }
routes:
  - topic: a.*
    deliver: { http: { url: 'https://example.com/' } }
`;

describe('a file of each kind says the same', () => {
  const files = {
    'respool.config.ts': TYPED,
    'respool.config.mts': TYPED,
    'respool.config.js': PROGRAM,
    'respool.config.mjs': PROGRAM,
    'respool.config.json': JSON.stringify(DATA),
    'respool.config.yaml': YAML,
    'respool.config.yml': YAML,
  };
  test.each(Object.entries(files))('%s', async (name, text) => {
    const folder = await folderWith({ [name]: text });
    const { file, config, ...loaded } = await loadConfig({ cwd: folder, env: {} });
    expect({ file, folder: loaded.folder }).toEqual({ file: path.join(folder, name), folder });
    expect(config.store).toBe('memory:');
    expect(config.policies['default']).toMatchObject({
      maxAttempts: 4,
      backoff: { kind: 'fixed', delayMs: 3_000 },
    });
    expect(config.routes).toMatchObject([{ topic: 'a.*', concurrency: 10, timeout: '15m' }]);
    expect(config.routes[0]?.deliver).toBeTypeOf('function');
  });
});

describe('the file', () => {
  test('is found upwards from the working directory, the nearest first', async () => {
    const folder = await folderWith({
      'respool.config.json': '{"lease":"10s"}',
      'inner/respool.config.yaml': 'lease: 20s',
      'inner/deep/er/here.txt': '',
    });
    const from = (cwd: string) => loadConfig({ cwd: path.join(folder, cwd), env: {} });
    const deep = await from('inner/deep/er');
    expect(deep.config.lease).toBe('20s');
    expect(deep.folder).toBe(path.join(folder, 'inner'));
    expect((await from('.')).config.lease).toBe('10s');
  });

  test('may be named as a file or as a folder, from the working directory', async () => {
    const folder = await folderWith({
      'respool.config.json': '{"lease":"10s"}',
      'other/respool.config.yaml': 'lease: 20s',
      'other/mine.json': '{"lease":"30s"}',
    });
    const named = async (file: string) =>
      (await loadConfig({ cwd: folder, env: {}, file })).config.lease;
    expect(await named('other')).toBe('20s');
    expect(await named('other/mine.json')).toBe('30s');
    expect(await named(path.join(folder, 'respool.config.json'))).toBe('10s');
  });

  test('may be named by RESPOOL_CONFIG, which --config goes before', async () => {
    const folder = await folderWith({
      'a.json': '{"lease":"10s"}',
      'b.json': '{"lease":"20s"}',
    });
    const env = { RESPOOL_CONFIG: 'a.json' };
    expect((await loadConfig({ cwd: folder, env })).config.lease).toBe('10s');
    expect((await loadConfig({ cwd: folder, env, file: 'b.json' })).config.lease).toBe('20s');
  });

  test('that is named and not there, or is of another kind, is refused', async () => {
    const folder = await folderWith({ 'x.toml': '' });
    await mkdir(path.join(folder, 'empty'));
    const said = (file: string) => textOf(loadConfig({ cwd: folder, env: {}, file }));
    expect(await said('nowhere.json')).toContain('"nowhere.json": there is no such file');
    expect(await said('x.toml')).toContain('must end in ts, mts, js, mjs, json, yaml, yml');
    expect(await said('empty')).toContain('none of respool.config.ts');
  });

  test('that cannot be read is refused', async () => {
    const folder = await folderWith({ 'respool.config.json/x': '' });
    const said = await textOf(loadConfig({ cwd: folder, env: {} }));
    expect(said).toContain('respool.config.json": it is a folder');
    expect(said).not.toContain('EISDIR');
  });

  test.each(['respool.config.yaml', 'respool.config.json', '.env'])(
    'that is not UTF-8 is refused: %s',
    async (name) => {
      const folder = await folderWith({ 'respool.config.yaml': '', [name]: '' });
      if (name.endsWith('.json')) await rm(path.join(folder, 'respool.config.yaml'));
      await writeFile(
        path.join(folder, name),
        Buffer.from('RESPOOL_STORE=sqlite:./M\u00FCll', 'latin1'),
      );
      const said = await textOf(loadConfig({ cwd: folder, env: {} }));
      expect(said).toBe(`cannot use ${path.join(folder, name)}: it is not UTF-8; save it as UTF-8`);
    },
  );

  test('that is a link to nothing is refused, and none further up is taken for it', async () => {
    const folder = await folderWith({ 'respool.config.json': '{}', 'inner/x': '' });
    const inner = path.join(folder, 'inner');
    await symlink('nowhere.yaml', path.join(inner, 'respool.config.yaml'));
    for (const file of [undefined, 'respool.config.yaml', '.']) {
      const said = await textOf(loadConfig({ cwd: inner, env: {}, file }));
      expect(said).toContain('it is a link to a file that is not there');
    }
    expect((await loadConfig({ cwd: folder, env: {} })).file).toContain('respool.config.json');
  });

  test('is one: two in a folder are refused by their names, and none of them runs', async () => {
    const folder = await folderWith({
      'respool.config.ts': 'throw new Error("this one ran");',
      'respool.config.yaml': 'lease: 20s',
    });
    const text = await textOf(loadConfig({ cwd: folder, env: {} }));
    expect(text).toContain('"respool.config.ts" and "respool.config.yaml"');
    expect(text).not.toContain('ran');
    const file = 'respool.config.yaml';
    expect((await loadConfig({ cwd: folder, env: {}, file })).config.lease).toBe('20s');
  });

  test('may be missing: then the defaults hold, from the working directory', async () => {
    const root = path.parse(import.meta.dirname).root;
    const loaded = await loadConfig({ cwd: root, env: {} });
    expect({ file: loaded.file, folder: loaded.folder }).toEqual({ file: undefined, folder: root });
    expect(loaded.config).toMatchObject({ store: 'sqlite:./respool', concurrency: 10, routes: [] });
    expect(loaded.config.serve).toMatchObject({ host: '127.0.0.1', port: 7667, tokens: [] });
    expect(loaded.warnings).toEqual([]);
  });
});

describe('a broken file is refused with its name and the place', () => {
  const broken: Record<string, { file: string; text: string; words: string[] }> = {
    'JSON, a comma too many': {
      file: 'respool.config.json',
      text: '{\n  "lease": "10s",\n}',
      words: ['line 3, column 1'],
    },
    'JSON, a bare word': {
      file: 'respool.config.json',
      text: '{\n  "a": [1, {"b": "\\u00e9"}],\n  "lease": ten }',
      words: ['line 3, column 12'],
    },
    'JSON, too short': {
      file: 'respool.config.json',
      text: '{"lease": [1, 2',
      words: ['line 1, column 16', 'ends too early'],
    },
    'JSON, a key twice': {
      file: 'respool.config.json',
      text: '{\n  "serve": { "port": 1 },\n  "lease": "1s", "l\\u0065ase": "2s"\n}',
      words: ['line 3, column 18', 'duplicate key'],
    },
    'JSON, a key twice further in': {
      file: 'respool.config.json',
      text: '{"serve": {"port": 1, "host": "a", "port": 2}}',
      words: ['line 1, column 36', 'duplicate key'],
    },
    'JSON, deeper than can be': {
      file: 'respool.config.json',
      text: '['.repeat(200_000),
      words: ['line 1, column'],
    },
    'JSON, empty': { file: 'respool.config.json', text: '', words: ['line 1, column 1'] },
    'JSON, a list': { file: 'respool.config.json', text: '[1]', words: ['it holds a list'] },
    'YAML, a bad indent': {
      file: 'respool.config.yaml',
      text: 'serve:\n  port: 1\n   host: x\n',
      words: ['line 2, column', 'one line holds one key'],
    },
    'YAML, less indented than before': {
      file: 'respool.config.yaml',
      text: 'serve:\n    port: 1\n  host: x\n',
      words: ['line 3, column', 'keys of one group stand in the same column'],
    },
    'YAML, a tab': {
      file: 'respool.config.yaml',
      text: 'serve:\n\tport: 1\n',
      words: ['line 2, column', 'indent with spaces'],
    },
    'YAML, an open bracket': {
      file: 'respool.config.yaml',
      text: 'serve: { port: 1\nlease: 5s\n',
      words: ['line 2, column 1', 'is a bracket open?'],
    },
    'YAML, a key twice': {
      file: 'respool.config.yaml',
      text: 'lease: 1s\nlease: 2s\n',
      words: ['line 2, column 1', 'duplicate key: it stands above already'],
    },
    'YAML, a text': { file: 'respool.config.yaml', text: 'hello', words: ['it holds "hello"'] },
    'a program that throws': {
      file: 'respool.config.mjs',
      text: 'throw new TypeError("no such thing\\nsecond line");',
      words: ['cannot load', 'TypeError: no such thing'],
    },
    'a program that throws, with its line': {
      file: 'respool.config.mjs',
      text: 'const a = 1;\n\nmissing(a);\n',
      words: ['line 3: ReferenceError: missing is not defined'],
    },
    'a program that is none': {
      file: 'respool.config.mjs',
      text: 'export default {\n  lease: 5s,\n};',
      words: ['cannot load'],
    },
    'a program that imports what is not there': {
      file: 'respool.config.mjs',
      text: 'import "./nowhere.mjs"; export default {};',
      words: ['cannot load', 'nowhere.mjs'],
    },
    'a program without a default export': {
      file: 'respool.config.mjs',
      text: 'export const config = {};',
      words: ['its default export is nothing', 'export default defineConfig('],
    },
    'a program that exports a function': {
      file: 'respool.config.mjs',
      text: 'export default () => ({});',
      words: ['its default export is a function'],
    },
    'a program that exports a list': {
      file: 'respool.config.mjs',
      text: 'export default [];',
      words: ['its default export is a'],
    },
  };
  test.each(Object.entries(broken))('%s', async (_, { file, text, words }) => {
    const folder = await folderWith({ [file]: text });
    const said = await textOf(loadConfig({ cwd: folder, env: {} }));
    for (const word of [...words, path.join(folder, file)]) expect(said).toContain(word);
    expect(said).not.toContain('\n');
    expect(said).not.toContain(' at ');
  });

  test('one that is too large', async () => {
    expect(await refusal({ yaml: `# ${'x'.repeat(2 ** 20)}` })).toContain('allowed are 1048576');
  });

  test('an empty YAML file and empty keys are as if they were not there', async () => {
    const { config } = await load({ yaml: '# nothing yet\n' });
    expect(config.lease).toBe('60s');
    const empty = await load({ yaml: 'serve:\nroutes:\nlease:\n' });
    expect(empty.config).toMatchObject({ lease: '60s', routes: [], serve: { port: 7667 } });
  });
});

test('YAML may name a part once and use it again', async () => {
  const { config } = await load({
    yaml: `
routes:
  - &usual { topic: a, deliver: { exec: ['true'] }, concurrency: 3 }
  - { <<: *usual, topic: b }
`,
  });
  expect(config.routes).toMatchObject([
    { topic: 'a', concurrency: 3 },
    { topic: 'b', concurrency: 3 },
  ]);
});

test('YAML that names itself many times over is refused', async () => {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]'];
  for (let at = 1; at < 9; at += 1) {
    lines.push(
      `a${at}: &a${at} [${Array(10)
        .fill(`*a${at - 1}`)
        .join(', ')}]`,
    );
  }
  expect(await refusal({ yaml: lines.join('\n') })).toContain('alias');
});

describe('${NAME} in JSON and YAML', () => {
  const env = { PORT: '8123', WHERE: './here', PASS: 'x y', N: '3' };

  test('is filled in from the environment, as a number where one is meant', async () => {
    const loaded = await load({
      config: {
        store: 'file:${WHERE}/spool',
        serve: { port: '${PORT}', behindProxy: '${YES}' },
        retention: { delivered: '${KEEP}' },
        routes: [
          {
            topic: 'a',
            concurrency: '${N}',
            deliver: { http: { url: 'https://h/', headers: { 'x-n': '${N}' } } },
          },
        ],
      },
      env: { ...env, YES: 'true', KEEP: 'archive:2d' },
    });
    expect(loaded.config.store).toBe('file:./here/spool');
    expect(loaded.config.serve).toMatchObject({ port: 8123, behindProxy: true });
    expect(loaded.config.retention?.delivered).toEqual({ archive: '2d' });
    expect(loaded.config.routes[0]?.concurrency).toBe(3);
  });

  test('comes from .env too', async () => {
    const { config } = await load({ config: { lease: '${SPAN}' }, dotEnv: 'SPAN=11s\n' });
    expect(config.lease).toBe('11s');
  });

  test('that is not set is refused with the key and the variable', async () => {
    const said = await refusal({
      config: { routes: [{ topic: 'a', deliver: { http: { url: 'https://${HOST}/' } } }] },
    });
    expect(said).toContain('"routes[0].deliver.http.url"');
    expect(said).toContain('"HOST"');
  });

  test('is written with two dollars when it is meant as it stands', async () => {
    const { config } = await load({ config: { store: 'file:./$${WHERE}' }, env });
    expect(config.store).toBe('file:./${WHERE}');
  });
});

describe('.env', () => {
  test('beside the file is read; the real environment goes before it', async () => {
    const { config, origins } = await load({
      config: {},
      dotEnv: 'RESPOOL_LEASE=11s\nRESPOOL_POLL="12s"\n# no\n',
      env: { RESPOOL_POLL: '13s' },
    });
    expect(config).toMatchObject({ lease: '11s', poll: '13s' });
    expect(origins.get('lease')).toEqual({ from: 'environment', name: 'RESPOOL_LEASE in .env' });
    expect(origins.get('poll')).toEqual({ from: 'environment', name: 'RESPOOL_POLL' });
  });

  test('lies beside the file, not in the working directory', async () => {
    const folder = await folderWith({
      'respool.config.json': '{}',
      '.env': 'RESPOOL_LEASE=11s',
      'inner/.env': 'RESPOOL_LEASE=22s',
    });
    const { config } = await loadConfig({ cwd: path.join(folder, 'inner'), env: {} });
    expect(config.lease).toBe('11s');
  });

  test('reaches the environment before a configuration that is a program runs', async () => {
    const name = `CONNECT_TEST_${process.pid}`;
    const folder = await folderWith({
      'respool.config.mjs': `export default { lease: process.env.${name} };`,
      '.env': `${name}=17s`,
    });
    try {
      const { config } = await loadConfig({ cwd: folder, env: process.env });
      expect(config.lease).toBe('17s');
    } finally {
      delete process.env[name];
    }
  });
});

describe('a name that nobody knows', () => {
  const cases: [object, string[]][] = [
    [{ stor: 'memory:' }, ['"stor"', 'did you mean "store"?']],
    [{ serve: { prot: 1 } }, ['"serve.prot"', 'did you mean "port"?']],
    [{ serve: { limits: { connection: 1 } } }, ['"serve.limits.connection"', '"connections"']],
    [{ serve: { tls: { kye: 'x' } } }, ['"serve.tls.kye"', 'did you mean "key"?']],
    [{ log: { levle: 'info' } }, ['"log.levle"', 'did you mean "level"?']],
    [{ retention: { deliverd: 'remove' } }, ['"retention.deliverd"', '"delivered"']],
    [{ routes: [{ topik: 'a' }] }, ['"routes[0].topik"', 'did you mean "topic"?']],
    [{ zebra: 1 }, ['"zebra"', 'known are store, entries']],
    [JSON.parse('{"__proto__": {"lease": 1}}') as object, ['__proto__']],
    [{ constructor: 1 }, ['"constructor"']],
    [{ serve: 5 }, ['5', '"serve"', 'host, port']],
    [{ limits: [] }, ['"limits"']],
  ];
  test.each(cases)('%j is refused with the nearest that exists', async (config, words) => {
    const said = await refusal({ yaml: JSON.stringify(config) });
    for (const word of [...words, 'respool.config.yaml']) expect(said).toContain(word);
  });

  test('in the environment is a warning, since others may mean it', async () => {
    const { warnings } = await load({
      config: {},
      env: {
        RESPOOL_SERVE_PROT: '1',
        RESPOOL_ROUTES: '[]',
        RESPOOL_URL: 'x',
        RESPOOL_TOKEN: 'a-token-that-is-long',
        RESPOOL_TEST_SEED: '1',
        RESPOOL_HEADER_X: 'y',
        RESPOOL_ID: 'z',
        OTHER: '1',
      },
    });
    expect(warnings).toEqual([
      "the environment's RESPOOL_ROUTES is no setting",
      'the environment\'s RESPOOL_SERVE_PROT is no setting (did you mean "RESPOOL_SERVE_PORT"?)',
    ]);
  });

  test('among the flags is refused', async () => {
    expect(await refusal({ config: {}, flags: { 'serve.prot': 1 } })).toContain('"serve.prot"');
    expect(await refusal({ config: {}, flags: { routes: [] } })).toContain('"routes"');
  });
});

test('relative paths start from the folder of the file', async () => {
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({ serve: { tls: { key: 'k.pem', cert: '../c.pem' } } }),
    'inner/x': '',
  });
  const loaded = await loadConfig({ cwd: path.join(folder, 'inner'), env: {} });
  expect(at(loaded, 'serve.tls')).toEqual({
    key: path.join(folder, 'k.pem'),
    cert: path.join(folder, '../c.pem'),
  });
});

describe('a relative path that was typed', () => {
  const files = { 'respool.config.yaml': 'store: file:./a\n', 'inner/x': '' };

  test.each([
    ['store', 'sqlite:./x?thread=true', 'sqlite:', '/inner/x?thread=true'],
    ['store', 'file:../x', 'file:', '/x'],
    ['entries', 'file:x', 'file:', '/inner/x'],
    ['bodies', 'file:x', 'file:', '/inner/x'],
    ['store', 'sqlite:/x', '', 'sqlite:/x'],
    ['store', 'memory:', '', 'memory:'],
  ])('starts from the working directory: %s %s', async (key, text, scheme, rest) => {
    const folder = await folderWith({ ...files, 'respool.config.yaml': 'lease: 5s\n' });
    const cwd = path.join(folder, 'inner');
    const whole = scheme === '' ? rest : `${scheme}${folder}${rest}`;
    const flagged = await loadConfig({ cwd, env: {}, flags: { [key]: text } });
    expect(at(flagged, key)).toBe(whole);
    expect(describeConfig(flagged)).toContainEqual({ key, value: whole, from: `flag --${key}` });
    const env = { [`RESPOOL_${key.toUpperCase()}`]: text };
    expect(at(await loadConfig({ cwd, env }), key)).toBe(whole);
  });

  test('stays as it is where the file lies in the working directory', async () => {
    const folder = await folderWith(files);
    const loaded = await loadConfig({ cwd: folder, env: {}, flags: { store: 'sqlite:./x' } });
    expect(loaded.config.store).toBe('sqlite:./x');
  });

  test('goes for the files of TLS too', async () => {
    const folder = await folderWith(files);
    const cwd = path.join(folder, 'inner');
    const flags = { 'serve.tls.key': 'k.pem', 'serve.tls.cert': '/c.pem' };
    const loaded = await loadConfig({ cwd, env: {}, flags });
    expect(at(loaded, 'serve.tls')).toEqual({ key: path.join(cwd, 'k.pem'), cert: '/c.pem' });
  });

  test('is not meant by .env, however often it is read, nor by the file', async () => {
    const folder = await folderWith({ ...files, '.env': 'RESPOOL_ENTRIES=file:./e\nWHERE=./w\n' });
    const cwd = path.join(folder, 'inner');
    expect((await loadConfig({ cwd, env: {} })).config.store).toBe('file:./a');
    await writeFile(path.join(folder, 'respool.config.yaml'), 'bodies: file:${WHERE}\n');
    const env = {};
    for (const _ of ['first', 'second']) {
      const { config, origins } = await loadConfig({ cwd, env });
      expect(config).toMatchObject({ entries: 'file:./e', bodies: 'file:./w' });
      expect(origins.get('entries')?.name).toBe('RESPOOL_ENTRIES in .env');
    }
  });

  test('is refused where the address could not say it', async () => {
    const folder = await folderWith({ 'respool.config.yaml': '', 'in?ner/x': '' });
    const cwd = path.join(folder, 'in?ner');
    const said = await textOf(loadConfig({ cwd, env: {}, flags: { store: 'file:x' } }));
    expect(said).toContain('a place without "?" in its whole path');
  });
});

test('files of TLS that cannot be read are a warning, for whoever delivers', async () => {
  const tls = { key: 'k.pem', cert: 'folder' };
  const folder = await folderWith({
    'respool.config.json': JSON.stringify({ serve: { tls } }),
    'folder/x': '',
  });
  const { warnings } = await loadConfig({ cwd: folder, env: {} });
  expect(warnings).toEqual([
    `serve.tls.key: cannot read ${show(path.join(folder, 'k.pem'))}: there is no such file`,
    `serve.tls.cert: ${show(path.join(folder, 'folder'))} is no file`,
  ]);
  await writeFile(path.join(folder, 'k.pem'), '');
  expect((await loadConfig({ cwd: folder, env: {} })).warnings).toHaveLength(1);
  expect((await loadConfig({ cwd: folder, env: {}, routes: false })).warnings).toEqual([]);
});

describe('a command of which a word is no text', () => {
  test.each([
    [
      '[sleep, 6]',
      'cannot use 6 as "routes[0].deliver.exec[1]": allowed is text; write "6" in quotes',
    ],
    [
      '{ command: [test, true] }',
      'deliver.exec.command[1]": allowed is text; write "true" in quotes',
    ],
    ['[sleep, {}]', 'deliver.exec[1]": allowed is text'],
  ])('is refused with what to write: %s', async (command, words) => {
    const yaml = `routes:\n  - topic: a\n    deliver: { exec: ${command} }\n`;
    expect(await refusal({ yaml })).toContain(words);
  });
});
