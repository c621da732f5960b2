/** Transforms and the seal of a configuration: as data, as objects, checked, and without a key shown. */

import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { inspect } from 'node:util';
import { compress, generateKey } from 'respool/transforms';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { describeConfig } from '../../src/config/describe.ts';
import { collectKeys, withoutKeys } from '../../src/config/load/encryption-keys.ts';
import { type LoadedConfig, loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { setConfig } from '../../src/config/edit.ts';
import { transformsOf } from '../../src/config/open/transforms.ts';
import { KnownSecrets } from '../../src/core/redact.ts';
import { bytesOf } from '../spool/setup.ts';
import { folderWith, type Given, load, refusal, textOf } from './setup.ts';

const KEY = generateKey();
const HEX = Buffer.from(generateKey(), 'base64').toString('hex');
const TEXT = 'a text that gets smaller, '.repeat(20);

/** Names and kinds of what a configuration makes. */
async function made(given: Given): Promise<string[]> {
  const { config, folder } = await load(given);
  return (await transformsOf(config, folder)).map(({ name, kind }) => `${kind} ${name}`);
}

/** What is stored of one message with the spool of a configuration, and its text read back. */
async function stored(loaded: LoadedConfig, deliver = true) {
  const { spool } = await createConfiguredSpool(loaded, { deliver });
  onTestFinished(() => spool.stop({ within: 0 }));
  const { id } = await spool.enqueue({ topic: 'a', body: TEXT, headers: { to: 'canary-header' } });
  const text = (await bytesOf(await spool.body(id))).toString();
  const entry = await spool.get(id);
  return {
    encodings: entry?.envelope.body.encodings ?? [],
    text,
    headers: entry?.envelope.headers,
  };
}

describe('as data', () => {
  test.each<[unknown, string[]]>([
    ['zstd', ['compression zstd']],
    [['gzip'], ['compression gzip']],
    [[], []],
    [{ compress: 'zstd', level: 'best' }, ['compression zstd']],
    [{ encrypt: { keys: { k1: 'env:K1' } } }, ['encryption aes-256-gcm']],
    [
      [
        { compress: 'brotli', level: 'fastest' },
        {
          encrypt: {
            keys: { k1: 'env:K1', k2: 'file:./k2' },
            primary: 'k2',
            cipher: 'chacha20-poly1305',
            pad: true,
          },
        },
      ],
      ['compression brotli', 'encryption chacha20-poly1305'],
    ],
    [
      ['zstd', { decrypt: { keys: { k1: KEY } } }],
      ['compression zstd', 'encryption decrypt'],
    ],
  ])('%j', async (transforms, expected) => {
    expect(await made({ config: { transforms } })).toEqual(expected);
    expect(await made({ yaml: JSON.stringify({ transforms }) })).toEqual(expected);
    const text = typeof transforms === 'string' ? transforms : JSON.stringify(transforms);
    expect(await made({ config: {}, env: { RESPOOL_TRANSFORMS: text } })).toEqual(expected);
  });

  test('bodies go through them, and come back', async () => {
    vi.stubEnv('TRANSFORMS_K1', KEY);
    onTestFinished(() => void vi.unstubAllEnvs());
    const encrypt = { keys: { k1: 'env:TRANSFORMS_K1' } };
    const config = { store: 'memory:', transforms: ['zstd', { encrypt }] };
    const { encodings, text } = await stored(await load({ config }));
    expect(encodings).toEqual(['zstd', 'aes-256-gcm;key=k1']);
    expect(text).toBe(TEXT);
  });

  test('a file of a key is found beside the configuration, or from where it was typed', async () => {
    const cwd = await folderWith({
      'respool.config.json': JSON.stringify({
        store: 'memory:',
        transforms: { encrypt: { keys: { k1: 'file:./k1.key' } } },
      }),
      'k1.key': `${KEY}\n`,
      'below/other.key': `${HEX}\n`,
    });
    const below = path.join(cwd, 'below');
    const beside = await stored(await loadConfig({ cwd: below, env: {} }));
    expect(beside.encodings).toEqual(['aes-256-gcm;key=k1']);
    const typed = JSON.stringify({ encrypt: { keys: { k2: 'file:other.key' } } });
    const flags = { transforms: typed };
    const here = await stored(await loadConfig({ cwd: below, env: {}, flags }));
    expect(here.encodings).toEqual(['aes-256-gcm;key=k2']);
  });
});

describe('in a program', () => {
  test('transforms of its own, ready-made ones and data stand side by side', async () => {
    const cwd = await folderWith({
      'respool.config.mjs': `
        import { compress } from 'respool/transforms';
        const reverse = {
          name: 'reverse',
          kind: 'other',
          writer: () => ({
            encoding: 'reverse',
            encode: (stream) => stream,
            encodeBytes: (bytes) => bytes.toReversed(),
          }),
          reader: (encoding) => encoding === 'reverse'
            ? { decode: (stream) => stream, decodeBytes: (bytes) => bytes.toReversed() }
            : undefined,
        };
        const key = new Uint8Array(32).fill(7);
        export default {
          store: 'memory:',
          transforms: [reverse, compress('gzip'), { encrypt: { keys: { k1: key } } }],
        };`,
    });
    const loaded = await loadConfig({ cwd, env: {} });
    const { encodings, text } = await stored(loaded);
    expect(encodings).toEqual(['reverse', 'gzip', 'aes-256-gcm;key=k1']);
    expect(text).toBe(TEXT);
    const lines = describeConfig(loaded).filter(({ key }) => key.startsWith('transforms'));
    expect(lines.map(({ key, value }) => [key, value])).toEqual([
      ['transforms[0]', '(other reverse)'],
      ['transforms[1]', '(compression gzip)'],
      ['transforms[2].encrypt.keys.k1', '(secret)'],
    ]);
  });

  test('the object itself is used, not a copy of it', async () => {
    const own = compress('zstd');
    expect(await transformsOf({ transforms: [own] }, '.')).toEqual([own]);
    expect((await transformsOf({ transforms: own }, '.'))[0]).toBe(own);
  });
});

describe('the seal', () => {
  test('hides headers in the store, and shows them to who has the key', async () => {
    const cwd = await folderWith({
      'respool.config.json': JSON.stringify({ seal: { keys: { k1: 'file:k1.key' } } }),
      'k1.key': KEY,
    });
    const { headers } = await stored(await loadConfig({ cwd, env: {} }));
    expect(headers).toEqual({ to: 'canary-header' });
    await writeFile(path.join(cwd, 'respool.config.json'), '{}');
    const { spool } = await createConfiguredSpool(await loadConfig({ cwd, env: {} }));
    onTestFinished(() => spool.stop({ within: 0 }));
    const { entries } = await spool.page();
    expect(JSON.stringify(entries)).not.toContain('canary-header');
  });

  test('may come from the environment', async () => {
    const RESPOOL_SEAL = JSON.stringify({ keys: { k1: 'env:K1', k2: 'env:K2' }, primary: 'k2' });
    const { config } = await load({ config: {}, env: { RESPOOL_SEAL } });
    expect(config.seal).toEqual(JSON.parse(RESPOOL_SEAL));
  });
});

describe('who only looks and steers', () => {
  test('needs no key until a body is written or read', async () => {
    const config = { transforms: { encrypt: { keys: { k1: 'env:TRANSFORMS_NOT_SET' } } } };
    const { spool } = await createConfiguredSpool(await load({ config }), { deliver: false });
    onTestFinished(() => spool.stop({ within: 0 }));
    expect((await spool.page()).entries).toEqual([]);
    const message = { topic: 'a', body: 'x' };
    await expect(spool.enqueue(message)).rejects.toMatchObject({ code: 'key.unavailable' });
    const serving = await createConfiguredSpool(await load({ config }));
    onTestFinished(() => serving.spool.stop({ within: 0 }));
    await expect(serving.spool.page()).rejects.toMatchObject({ code: 'key.unavailable' });
  });
});

describe('what is wrong is refused by its key, with what is allowed', () => {
  const encrypt = (options: unknown): object => ({ transforms: ['zstd', { encrypt: options }] });
  test.each<[object, string[]]>([
    [{ transforms: 'zst' }, ['"zst" as "transforms"', 'gzip | ', 'zstd', 'or JSON', '[] takes']],
    [{ transforms: ['zst'] }, ['"zst" as "transforms[0]"', 'zstd']],
    [{ transforms: 1 }, ['1 as "transforms"', 'a codec such as zstd']],
    [{ transforms: [1] }, ['a number as "transforms[0]"', '{ compress: "zstd", level }']],
    [{ transforms: [{}] }, ['"transforms[0]"', '{ encrypt: { keys, … } }']],
    [{ transforms: [{ encypt: {} }] }, ['"transforms[0].encypt"', 'did you mean "encrypt"?']],
    [{ transforms: [{ compress: 'zstd', pad: true }] }, ['"transforms[0].pad"']],
    [{ transforms: { compress: 'lzma' } }, ['"lzma" as "transforms.compress"', 'lz4']],
    [{ transforms: 's2' }, ['cannot compress with s2', 'use snappy']],
    [{ transforms: { compress: 's2', level: 'best' } }, ['transforms.compress', 'use snappy']],
    [{ transforms: [{ compress: 'zstd', level: 9 }] }, ['9 as "transforms[0].level"', 'best']],
    [{ transforms: [{ compress: 'zstd', encrypt: {} }] }, ['"transforms[0]"']],
    [encrypt('x'), ['a string as "transforms[1].encrypt"', '{ keys, primary, cipher, pad }']],
    [encrypt({ keys: {} }), ['transforms[1]', '0 keys', '1 to 1000']],
    [encrypt({ keys: { a: 'env:A', b: 'env:B' } }), ['transforms[1]', '"primary"']],
    [
      encrypt({ keys: { a: 'env:A' }, primary: 'b' }),
      ['"b" as "transforms[1].encrypt.primary"', '"a"'],
    ],
    [
      encrypt({ keys: { a: 'env:A' }, cipher: 'des' }),
      ['"des" as "transforms[1].encrypt.cipher"', 'aes-256-gcm | chacha20-poly1305'],
    ],
    [encrypt({ keys: { a: 'env:A' }, pad: 1 }), ['1 as "transforms[1].encrypt.pad"', 'true']],
    [encrypt({ keys: { a: 'env:A' }, key: 'k' }), ['"transforms[1].encrypt.key"', 'keys']],
    [{ transforms: [{ decrypt: { keys: { a: 'env:A' }, pad: true } }] }, ['.decrypt.pad"']],
    [
      { transforms: [{ encrypt: { keys: { a: 'env:A' } } }, 'zstd'] },
      ['"transforms"', 'put the compression first'],
    ],
    [{ transforms: ['zstd', 'gzip'] }, ['"transforms"', 'both compress']],
    [{ seal: 'x' }, ['a string as "seal"', '{ keys, primary }']],
    [{ seal: { keys: { a: 'env:A' }, cipher: 'x' } }, ['"seal.cipher"', 'keys, primary']],
    [{ seal: { keys: { a: 'env:A' }, primary: 'b' } }, ['"b" as "seal.primary"']],
  ])('%j', async (config, words) => {
    const said = await refusal({ config });
    for (const word of [...words, 'respool.config.json']) expect(said).toContain(word);
  });

  test('broken JSON in the environment', async () => {
    const RESPOOL_TRANSFORMS = `[{"encrypt":{"keys":{"k1":"${KEY}"}}`;
    const said = await refusal({ config: {}, env: { RESPOOL_TRANSFORMS } });
    expect(said).toContain('broken JSON as "transforms"');
    expect(said).toContain('RESPOOL_TRANSFORMS');
    expect(said).not.toContain(KEY);
  });
});

describe('no key is shown', () => {
  const places: [string, (key: string) => unknown][] = [
    ['in the list', (key) => [{ encrypt: { keys: { k1: key, k2: 'env:K2' }, primary: 'k1' } }]],
    ['alone', (key) => ({ decrypt: { keys: { k1: key } } })],
  ];
  for (const key of [KEY, HEX]) {
    test.each(places)('%s, in a file or in the environment', async (_, transforms) => {
      const given: Given[] = [
        { config: { transforms: transforms(key), seal: { keys: { s1: key } } } },
        { config: {}, env: { RESPOOL_TRANSFORMS: JSON.stringify(transforms(key)) } },
        { config: { transforms: transforms('${A_KEY}') }, env: { A_KEY: key } },
        { config: { transforms: transforms('env:K') }, env: { K: key } },
      ];
      for (const one of given) {
        const loaded = await load(one);
        const lines = describeConfig(loaded);
        expect(JSON.stringify(lines) + inspect(lines, { depth: 9 })).not.toContain(key);
        expect(loaded.hide(`the key is ${key}`)).toBe('the key is (secret)');
        expect(lines.map((line) => line.key).join()).toContain('keys.k1');
      }
    });

    test.each<[string, object]>([
      ['as the codec', { transforms: key }],
      ['in the place of a transform', { transforms: [key] }],
      ['as a codec', { transforms: { compress: key } }],
      ['as the options', { transforms: { encrypt: key } }],
      ['as the keys', { transforms: { encrypt: { keys: key } } }],
      ['as keys in a list', { transforms: { encrypt: { keys: [key] } } }],
      ['as an id', { transforms: { encrypt: { keys: { [key]: key } } } }],
      ['as the primary', { transforms: { encrypt: { keys: { k1: key }, primary: key } } }],
      ['as a cipher', { transforms: { encrypt: { keys: { k1: key }, cipher: key } } }],
      ['that is cut', { transforms: { encrypt: { keys: { k1: key.slice(1) } } } }],
      ['deeper', { transforms: { encrypt: { keys: { k1: { secret: key } } } } }],
      ['as a name', { transforms: { [key]: 'zstd' } }],
      ['as a name in the options', { transforms: { encrypt: { [key]: 'x' } } }],
      ['as a name in the seal', { seal: { keys: { k1: 'env:K1' }, [key]: 'x' } }],
      ['as a level', { transforms: { compress: 'zstd', level: key } }],
      ['as a variable', { transforms: { encrypt: { keys: { k1: `env:${key}` } } } }],
      ['as a file', { transforms: { encrypt: { keys: { k1: `file:${key}` } } } }],
      ['as the seal', { seal: key }],
      ['as a key of the seal', { seal: { keys: { k1: `${key}${key}` } } }],
    ])('in an error about one %s', async (_, config) => {
      const said = await refusal({ config });
      expect(said).not.toContain(key.slice(1, 20));
    });
  }

  test.each(['env', 'file'])('in the place of a name after %s:', async (kind) => {
    for (const key of [KEY, HEX]) {
      expect(withoutKeys({ keys: { k1: `${kind}:${key}` } })).toEqual({ keys: { k1: '(secret)' } });
      const secrets = new KnownSecrets();
      expect(collectKeys({ keys: { k1: `${kind}:${key}` } }, secrets, {})).toEqual([]);
      expect(secrets.hide(`cannot read ${key}`)).toBe('cannot read (secret)');
    }
  });

  const SHORT = 'CANARYshort9';
  test.each<Given>([
    { config: {}, env: { RESPOOL_TRANSFORMS: SHORT } },
    { config: { transforms: [SHORT] } },
    { config: { transforms: { compress: SHORT } } },
    { config: { transforms: { compress: 'zstd', level: SHORT } } },
    { config: { transforms: { [SHORT]: 'zstd' } } },
    { config: { transforms: { encrypt: { keys: { k1: 'env:K1' }, cipher: SHORT } } } },
    { config: { seal: { keys: { k1: 'env:K1' }, [SHORT]: 1 } } },
  ])('a short text that may be a part of one is counted: %j', async (given) => {
    const said = await refusal(given);
    expect(said).not.toContain('CANARY');
    expect(said).toContain('of 12 characters');
  });

  test('a variable of a key is no strange name', async () => {
    const env = { RESPOOL_KEY_1: KEY, RESPOOL_KEY_2: KEY };
    const config = { transforms: { encrypt: { keys: { k1: 'env:RESPOOL_KEY_1' } } } };
    const { warnings } = await load({ config, env });
    expect(warnings).toEqual(["the environment's RESPOOL_KEY_2 is no setting"]);
  });

  test('a place is shown', async () => {
    const keys = { k1: 'env:K1', k2: 'file:./k2' };
    const lines = describeConfig(
      await load({ config: { transforms: [{ encrypt: { keys, primary: 'k1', pad: true } }] } }),
    ).filter(({ key }) => key.startsWith('transforms'));
    expect(lines.map(({ key, value }) => [key, value])).toEqual([
      ['transforms[0].encrypt.keys.k1', 'env:K1'],
      ['transforms[0].encrypt.keys.k2', 'file:./k2'],
      ['transforms[0].encrypt.primary', 'k1'],
      ['transforms[0].encrypt.pad', true],
    ]);
  });
});

describe('set', () => {
  const LIST = ['zstd', { encrypt: { keys: { k1: 'env:K1' }, pad: true } }];
  const FILES: [string, string][] = [
    ['json', '{\n  "store": "memory:"\n}\n'],
    ['yaml', '# ours\nstore: "memory:" # here\n'],
    ['yml', '# ours\nstore: "memory:" # here\ntransforms: gzip # small\n'],
    ['yaml', 'transforms:\n  - gzip # small\n  - decrypt: { keys: { k1: env:K1 } }\n'],
  ];
  test.each(FILES)('changes a file of %s: %j', async (extension, text) => {
    const name = `respool.config.${extension}`;
    const cwd = await folderWith({ [name]: text });
    const set = (value: string): Promise<unknown> =>
      setConfig(name, 'transforms', value, { cwd, env: {} });
    const holds = async (): Promise<unknown> =>
      (await loadConfig({ cwd, env: {} })).config.transforms;
    await set('zstd');
    expect(await holds()).toBe('zstd');
    await set(JSON.stringify(LIST));
    expect(await holds()).toEqual(LIST);
    await set('[]');
    expect(await holds()).toEqual([]);
  });

  test('makes a file where there is none', async () => {
    const cwd = await folderWith();
    await setConfig(undefined, 'transforms', 'zstd', { cwd, env: {} });
    expect((await loadConfig({ cwd, env: {} })).config.transforms).toBe('zstd');
  });

  test.each(['ts', 'js', 'mjs'])('says the line for a program in %s', async (extension) => {
    const name = `respool.config.${extension}`;
    const cwd = await folderWith({ [name]: 'export default {};' });
    const value = JSON.stringify(LIST);
    const said = await textOf(setConfig(name, 'transforms', value, { cwd, env: {} }));
    expect(said).toContain(`write this line into it: transforms: ${value},`);
  });

  test('keeps ${NAME} in the place of a key, where that is set', async () => {
    const cwd = await folderWith({ 'respool.config.json': '{}' });
    const value = '{"encrypt":{"keys":{"k1":"${SPOOL_KEY}"}}}';
    const set = (env: Record<string, string>): Promise<unknown> =>
      setConfig('respool.config.json', 'transforms', value, { cwd, env });
    expect(await textOf(set({}))).toContain('the environment has no "SPOOL_KEY"');
    await set({ SPOOL_KEY: KEY });
    const text = await readFile(path.join(cwd, 'respool.config.json'), 'utf8');
    expect(text).toContain('${SPOOL_KEY}');
    expect(text).not.toContain(KEY);
  });

  test.each([
    ['zst', 'or JSON'],
    ['zst', '[] takes them away'],
    ['[{"compress"', '[] takes them away'],
    ['zst', 'zstd'],
    ['[{"compress"', 'broken JSON'],
    [`{"encrypt":{"keys":{"k1":"${KEY}"}}}`, 'does not belong on the command line'],
  ])('refuses %s', async (value, word) => {
    const cwd = await folderWith({ 'respool.config.json': '{}' });
    const set = setConfig('respool.config.json', 'transforms', value, { cwd, env: {} });
    const said = await textOf(set);
    expect(said).toContain(word);
    expect(said).not.toContain(KEY);
  });
});
