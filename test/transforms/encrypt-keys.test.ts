/** Keys: their forms, their places, and the ring that fetches and keeps them. */

import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { decrypt, encrypt, generateKey, type Key, type Keys } from 'respool/transforms';
import { SimClock } from 'respool/testkit';
import { KeyRing, parseKey } from '../../src/transforms/key-ring.ts';
import { load, loadStream, refusal, someBytes, store } from './encrypt-setup.ts';

const KEY = randomBytes(32);
const NAME = 'ENCRYPT_TEST_KEY';

const folders: string[] = [];

afterEach(async () => {
  vi.unstubAllEnvs();
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true });
});

async function makeFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-keys-'));
  folders.push(folder);
  return folder;
}

/** Whether a ring over this source gives exactly the key. */
async function gives(source: Key): Promise<boolean> {
  const ring = new KeyRing('the test', { keys: { k1: source } });
  return (await ring.fetch('k1')).equals(createSecretKey(KEY));
}

describe('the forms of a key', () => {
  test.each<[string, Key]>([
    ['bytes', new Uint8Array(KEY)],
    ['base64', KEY.toString('base64')],
    ['base64 without its end', KEY.toString('base64').replace('=', '')],
    ['the base64 of URLs', KEY.toString('base64url')],
    ['hex', KEY.toString('hex')],
    ['hex in capitals', KEY.toString('hex').toUpperCase()],
    ['text with blanks around it', `  ${KEY.toString('base64')}\n`],
    ['a function', () => KEY],
    ['a function that takes its time', async () => KEY.toString('hex')],
  ])('%s', async (_, source) => {
    expect(await gives(source)).toBe(true);
  });

  test.each([KEY.toString('base64'), `${KEY.toString('hex')}\n`])(
    'a variable, a file, and a function that names one',
    async (text) => {
      const folder = await makeFolder();
      const file = path.join(folder, 'key');
      await writeFile(file, text);
      vi.stubEnv(NAME, text);
      expect(await gives(`env:${NAME}`)).toBe(true);
      expect(await gives(`file:${file}`)).toBe(true);
      expect(await gives(() => `file:${file}`)).toBe(true);
      expect(await gives((id) => (id === 'k1' ? `env:${NAME}` : undefined))).toBe(true);
    },
  );

  test('a generated key is the base64 of 32 bytes, another one each time', () => {
    const keys = Array.from({ length: 100 }, generateKey);
    expect(new Set(keys).size).toBe(100);
    for (const key of keys) expect(Buffer.from(key, 'base64')).toHaveLength(32);
    expect(keys.every((key) => typeof parseKey(key) === 'object')).toBe(true);
  });

  test('the bytes are copied: what the caller does with its own later changes nothing', async () => {
    const bytes = new Uint8Array(KEY);
    const ring = new KeyRing('the test', { keys: { k1: bytes } });
    bytes.fill(7);
    expect((await ring.fetch('k1')).equals(createSecretKey(KEY))).toBe(true);
  });
});

const HEX = KEY.toString('hex');

describe('what is refused when the ring is made', () => {
  test.each<[string, unknown, string]>([
    ['no keys', undefined, 'allowed is { id: key'],
    ['a list', [HEX], 'allowed is { id: key'],
    ['bytes', KEY, 'allowed is { id: key'],
    ['a key without an id', HEX, 'allowed is { id: key'],
    ['an empty list', {}, '0 keys'],
    ['too many', Object.fromEntries(someBytes(1_001).entries()), '1001 keys'],
    ['a short key', { k1: HEX.slice(1) }, 'text of 63 characters'],
    ['a long key', { k1: `${HEX}0` }, 'text of 65 characters'],
    ['a key with a typing error', { k1: `x${HEX.slice(1)}` }, 'no base64 or hex'],
    ['base64 that ends wrongly', { k1: `${'A'.repeat(42)}B=` }, 'no base64 or hex'],
    ['an empty text', { k1: ' ' }, 'it is empty'],
    ['16 bytes', { k1: KEY.subarray(16) }, 'it is 16 bytes'],
    ['zeros', { k1: new Uint8Array(32) }, 'all its bytes are zero'],
    ['zeros as text', { k1: '0'.repeat(64) }, 'all its bytes are zero'],
    ['a number', { k1: 12 }, 'it is a number'],
    ['nothing', { k1: null }, 'it is missing'],
    ['a variable without a name', { k1: 'env:' }, 'the name of a variable'],
    ['a file without a name', { k1: 'file:' }, 'the path of a file'],
    ['a key as a variable', { k1: `env:${HEX}` }, 'leave out "env:"'],
    ['a key as a file', { k1: `file:${KEY.toString('base64')}` }, 'leave out "file:"'],
    ['an id that is none', { 'k 1': HEX }, '"k 1"'],
    ['an id too long', { ['k'.repeat(65)]: HEX }, 'a text of 65 characters'],
    ['a key as an id', { [HEX]: HEX }, 'looks like a key'],
    ['a key of URLs as an id', { [KEY.toString('base64url')]: HEX }, 'looks like a key'],
    ['a key in base64 as an id', { [KEY.toString('base64')]: HEX }, 'cannot use'],
  ])('%s', async (_, keys, text) => {
    const error = await refusal(() => new KeyRing('the test', { keys: keys as Keys }));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toContain(text);
    expectNoKey(error);
  });

  test.each<[string, Keys, unknown, string]>([
    ['a primary that is not there', { k1: HEX }, 'k2', 'known are "k1"'],
    ['a primary that is a key', { k1: HEX }, HEX, 'looks like a key'],
    ['a primary that is most of a key', { k1: HEX }, HEX.slice(4), 'text of 60 characters'],
    ['a primary that is no text', { k1: HEX }, 3, 'a number'],
    ['none of several', { k1: HEX, k2: HEX }, undefined, 'there are several; set "primary"'],
    ['none of a function', () => HEX, undefined, 'keys is a function; set "primary"'],
  ])('%s', async (_, keys, primary, text) => {
    const options = { keys, primary: primary as string };
    const error = await refusal(() => KeyRing.forWriting('the test', options));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toContain(text);
    expectNoKey(error);
  });

  test('the key that writes is the only one, or the one that is named', () => {
    const keys = { k1: HEX, k2: generateKey() };
    expect(KeyRing.forWriting('the test', { keys: { k1: HEX } }).primary).toBe('k1');
    expect(KeyRing.forWriting('the test', { keys, primary: 'k2' }).primary).toBe('k2');
    expect(new KeyRing('the test', { keys }).primary).toBeUndefined();
  });
});

describe('what is refused when a key is fetched', () => {
  test.each<[string, Key, string]>([
    ['a variable that is not set', `env:${NAME}`, `env:${NAME}`],
    ['a file that is not there', 'file:/nowhere/key', 'ENOENT'],
    ['a folder', `file:${tmpdir()}`, 'EISDIR'],
    ['a function without the key', () => undefined, 'knows no such key'],
    ['a function with half a key', () => HEX.slice(32), 'text of 32 characters'],
    ['a function with a function', () => (() => HEX) as never, 'it is a function'],
    ['a function with a key as a place', () => `env:${HEX}`, 'leave out "env:"'],
  ])('%s', async (_, source, text) => {
    const ring = new KeyRing('the test', { keys: { k1: source } });
    for (const run of [() => ring.open(), () => ring.fetch('k1')]) {
      const error = await refusal(run);
      expect(error.code).toBe('key.unavailable');
      expect(error.message).toContain('"k1"');
      expect(error.message).toContain(text);
      expectNoKey(error);
    }
  });

  test('a variable and a file that hold no key', async () => {
    const folder = await makeFolder();
    const file = path.join(folder, 'key');
    for (const text of [HEX.slice(1), `${HEX} ${HEX}`, 'x'.repeat(10_000)]) {
      await writeFile(file, text);
      vi.stubEnv(NAME, text);
      for (const source of [`env:${NAME}`, `file:${file}`]) {
        const error = await refusal(() => new KeyRing('it', { keys: { k1: source } }).fetch('k1'));
        expect(error.code).toBe('key.unavailable');
        expect(error.message).toContain(source);
        expectNoKey(error);
      }
    }
  });

  test('an id that no key has, by its name, with those that there are', async () => {
    const ring = new KeyRing('the test', { keys: { k1: HEX, k2: HEX } });
    const error = await refusal(() => ring.fetch('k9'));
    expect(error.code).toBe('key.unavailable');
    expect(error.message).toContain('"k9"');
    expect(error.message).toContain('known are "k1", "k2"');
    for (const id of ['__proto__', 'constructor', 'toString']) {
      expect((await refusal(() => ring.fetch(id))).code).toBe('key.unavailable');
    }
  });

  test('a function that fails is an outage, not a missing key; its error is the cause', async () => {
    const outage = new Error('connect ECONNREFUSED');
    for (const source of [() => Promise.reject(outage), () => raise(outage)]) {
      const error = await refusal(() => new KeyRing('it', { keys: { k1: source } }).open());
      expect(error.code).toBe('store.unavailable');
      expect(error.message).toContain('"k1"');
      expect(error.message).toContain('ECONNREFUSED');
      expect(error.cause).toBe(outage);
    }
  });
});

describe('fetching', () => {
  test('keys in the configuration are there at once; open fetches the primary alone', async () => {
    const asked: string[] = [];
    const later = (id: string): Uint8Array => {
      asked.push(id);
      return KEY;
    };
    const ring = new KeyRing('it', { keys: { k1: HEX, k2: later, k3: later }, primary: 'k2' });
    expect(ring.loaded('k1')).toBeDefined();
    expect(ring.loaded('k2')).toBeUndefined();
    await ring.open();
    expect(ring.loaded('k2')).toBeDefined();
    expect(ring.loaded('k3')).toBeUndefined();
    expect(asked).toEqual(['k2']);
    await Promise.all([ring.fetch('k3'), ring.fetch('k2'), ring.open()]);
    expect(asked).toEqual(['k2', 'k3']);
  });

  test('whoever asks meanwhile shares the fetch, and later ones need none', async () => {
    const gate = Promise.withResolvers<Uint8Array>();
    const source = vi.fn(() => gate.promise);
    const ring = new KeyRing('it', { keys: source, primary: 'k1' });
    const asking = [ring.fetch('k1'), ring.fetch('k1'), ring.open()];
    gate.resolve(KEY);
    const [one, other] = await Promise.all(asking);
    expect(one).toBe(other);
    await ring.fetch('k1');
    expect(source).toHaveBeenCalledExactlyOnceWith('k1');
  });

  test('a fetch that failed is tried again by the next who asks', async () => {
    const answers = [() => raise(new Error('down')), () => undefined, () => KEY];
    const ring = new KeyRing('it', { keys: () => answers.shift()?.(), primary: 'k1' });
    const first = [ring.fetch('k1'), ring.fetch('k1')];
    for (const asked of first) expect((await refusal(() => asked)).code).toBe('store.unavailable');
    expect((await refusal(() => ring.fetch('k1'))).code).toBe('key.unavailable');
    await ring.open();
    expect(ring.loaded('k1')).toBeDefined();
  });

  test('a key that does not come within 30 s is an outage, and the next who asks tries anew', async () => {
    const clock = new SimClock();
    const answers = [new Promise<Uint8Array>(() => {}), Promise.resolve(KEY)];
    const source = vi.fn(() => answers.shift());
    const ring = new KeyRing('it', { keys: source, primary: 'k1', clock });
    const over = vi.fn();
    const opening = refusal(() => ring.open()).finally(over);
    await clock.advance(29_999);
    expect(over).not.toHaveBeenCalled();
    await clock.advance(1);
    const error = await opening;
    expect(error.code).toBe('store.unavailable');
    expect(error.message).toContain('"k1"');
    expect(error.message).toContain('30 s');
    await ring.open();
    expect(source).toHaveBeenCalledTimes(2);
  });

  test('a key that comes too late is kept, and one that fails late hurts nobody', async () => {
    const clock = new SimClock();
    const [late, failed] = [Promise.withResolvers<Uint8Array>(), Promise.withResolvers<never>()];
    const ring = new KeyRing('it', {
      keys: { k1: () => late.promise, k2: () => failed.promise },
      primary: 'k1',
      clock,
    });
    const asked = [refusal(() => ring.fetch('k1')), refusal(() => ring.fetch('k2'))];
    await clock.advance('30s');
    for (const one of asked) expect((await one).code).toBe('store.unavailable');
    late.resolve(KEY);
    failed.reject(new Error('down'));
    await clock.advance(1);
    expect(ring.loaded('k1')).toBeDefined();
    expect(ring.loaded('k2')).toBeUndefined();
  });
});

describe('a body whose key', () => {
  test('is not there is refused with key.unavailable, on both ways', async () => {
    const stored = await store(encrypt({ keys: { k1: KEY } }), someBytes(9));
    const reading = decrypt({ keys: { k2: KEY } });
    for (const read of [load, loadStream]) {
      const error = await refusal(() => read(reading, stored));
      expect(error.code).toBe('key.unavailable');
      expect(error.message).toContain('"k1"');
    }
  });

  test('cannot be fetched now is refused with store.unavailable, and read later', async () => {
    const stored = await store(encrypt({ keys: { k1: KEY } }), someBytes(9));
    let isDown = true;
    const reading = decrypt({ keys: () => (isDown ? raise(new Error('down')) : KEY) });
    for (const read of [load, loadStream]) {
      expect((await refusal(() => read(reading, stored))).code).toBe('store.unavailable');
    }
    isDown = false;
    expect(Buffer.compare(await load(reading, stored), someBytes(9))).toBe(0);
  });

  test('is to write but was not fetched is refused, and written after open', async () => {
    const transform = encrypt({ keys: () => KEY, primary: 'k1' });
    const error = await refusal(() => transform.writer?.({ id: 'm1' }));
    expect(error.code).toBe('key.unavailable');
    expect(error.message).toContain('open()');
    await transform.open?.();
    expect((await store(transform, someBytes(9))).encoding).toBe('aes-256-gcm;key=k1');
  });
});

test.each<[string, object, string]>([
  ['an unknown option', { key: HEX }, 'no option "key"'],
  ['an unknown cipher', { keys: { k1: HEX }, cipher: 'aes-128-gcm' }, 'aes-256-gcm | chacha20'],
  ['padding that is no claim', { keys: { k1: HEX }, pad: 'yes' }, 'true | false'],
])('encrypt refuses %s', async (_, options, text) => {
  const error = await refusal(() => encrypt(options as never));
  expect(error.code).toBe('config.invalid');
  expect(error.message).toContain(text);
});

test('encrypt and decrypt say what they need where it is missing', async () => {
  for (const make of [encrypt, decrypt]) {
    const error = await refusal(() => make(undefined as never));
    expect(error.code).toBe('config.invalid');
    expect(error.message).toContain('{ keys }');
  }
  const error = await refusal(() => decrypt({ keys: { k1: HEX }, primary: 'k1' } as never));
  expect(error.message).toContain('no option "primary"');
});

/** No eight characters of the key in any of its forms. */
function expectNoKey(error: Error): void {
  const shown = `${error.message} ${error.stack?.split('\n')[0]} ${JSON.stringify(error)}`;
  for (const form of [HEX, KEY.toString('base64'), KEY.toString('base64url')]) {
    for (let at = 0; at + 8 <= form.length; at += 1) {
      expect(shown).not.toContain(form.slice(at, at + 8));
    }
  }
}

function raise(error: Error): never {
  throw error;
}
