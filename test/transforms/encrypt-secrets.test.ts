/** No key is ever seen: not in an error, its causes or its stack, not in JSON or a print. */

import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { decrypt, encrypt, type Key } from 'respool/transforms';
import { KeyRing } from '../../src/transforms/key-ring.ts';
import {
  broken,
  CIPHERS,
  gather,
  load,
  pieces,
  readerOf,
  reused,
  smallChunks,
  someBytes,
  store,
  writerOf,
} from './encrypt-setup.ts';

const CANARY = Buffer.from(someBytes(32, 77));
const FORMS: readonly (() => Key)[] = [
  () => new Uint8Array(CANARY),
  () => CANARY.toString('base64'),
  () => CANARY.toString('hex'),
  () => () => CANARY,
  () => async () => CANARY.toString('base64url'),
];

/** So many bytes of a key in a row are no chance: three are, now and then, beside a ciphertext. */
const TRACE_BYTES = 8;

/** Every text that a key of these bytes could be seen as, cut into short pieces. */
function tracesOf(secret: Uint8Array): string[] {
  const bytes = Buffer.from(secret);
  return Array.from({ length: bytes.length - TRACE_BYTES + 1 }, (_, at) => {
    const some = bytes.subarray(at, at + TRACE_BYTES);
    // Base64 as it stands wherever three bytes begin, without what depends on those around them.
    const base64 = some.subarray(0, 6).toString('base64');
    return [
      some.toString('hex'),
      base64,
      base64.replaceAll('+', '-').replaceAll('/', '_'),
      [...some].join(','),
      [...some].join(', '),
      (some.toString('hex').match(/../g) ?? []).join(' '),
    ];
  }).flat();
}

/** What can be seen of a thing, its causes included. */
function seen(thing: unknown): string {
  const texts = [inspect(thing, { depth: 10, showHidden: true, getters: false })];
  texts.push(JSON.stringify(thing) ?? '');
  for (let one = thing; one instanceof Error; one = one.cause) {
    texts.push(String(one), one.stack ?? '', JSON.stringify(one));
  }
  return texts.join('\n').toLowerCase();
}

function expectUnseen(secrets: readonly Uint8Array[], things: readonly unknown[]): void {
  for (const thing of things) {
    const text = seen(thing);
    const found = secrets.flatMap(tracesOf).filter((trace) => text.includes(trace.toLowerCase()));
    expect(found).toEqual([]);
  }
}

async function failure(run: () => unknown): Promise<unknown> {
  try {
    await run();
  } catch (error) {
    return error;
  }
  throw new Error('it did not fail');
}

test('transforms, rings, writers and readers show nothing of a key', async () => {
  for (const cipher of CIPHERS) {
    for (const form of FORMS) {
      const transform = encrypt({ keys: { k1: form() }, primary: 'k1', cipher });
      await transform.open?.();
      const ring = new KeyRing('it', { keys: { k1: form() } });
      await ring.open();
      const writer = writerOf(transform, 'm1');
      const bytes = await writer.encodeBytes(someBytes(100));
      const stored = { id: 'm1', bytes, encoding: writer.encoding };
      const reader = readerOf(transform, stored);
      await reader.decodeBytes(bytes);
      const { digestKey } = reader;
      expect(digestKey).toBeDefined();
      const things = [transform, ring, writer, reader, decrypt({ keys: { k1: form() } }), stored];
      expectUnseen([CANARY, digestKey ?? CANARY], things);
    }
  }
});

test('no error of reading or writing holds a part of a key', async () => {
  const errors: unknown[] = [];
  for (const form of FORMS) {
    const transform = smallChunks({ keys: { k1: form() } });
    await transform.open?.();
    const stored = await store(transform, someBytes(100));
    for (let at = 0; at < stored.bytes.length; at += 5) {
      const bytes = Buffer.from(stored.bytes);
      bytes[at] = (bytes[at] ?? 0) ^ 0xff;
      errors.push(await failure(() => load(transform, { ...stored, bytes })));
      const reader = readerOf(transform, stored);
      errors.push((await broken(reader.decode(pieces(bytes, [9])))).error);
    }
    const full = smallChunks({ keys: { k1: form() } }, { firstCounter: 0xffff_ffff });
    await full.open?.();
    errors.push(await failure(() => writerOf(full, 'm1').encodeBytes(someBytes(100))));
    errors.push(
      await failure(() => gather(writerOf(full, 'm1').encode(reused(someBytes(100), [9])))),
    );
    const missing = { ...stored, encoding: 'aes-256-gcm;key=k9' };
    errors.push(await failure(() => load(decrypt({ keys: { k1: form() } }), missing)));
  }
  expectUnseen([CANARY], errors);
});

test('no error of making or fetching keys holds a part of one', async () => {
  const [hex, base64] = [CANARY.toString('hex'), CANARY.toString('base64')];
  const wrong: unknown[] = [
    `${hex}0`,
    hex.slice(2),
    `${base64}A`,
    base64.slice(3),
    `x${hex.slice(1)}`,
    `env:${hex}`,
    `file:${base64}`,
    `evn:${base64}`,
    CANARY.subarray(1),
    [...CANARY],
    { key: hex },
    { toString: () => hex },
  ];
  const errors: unknown[] = [];
  for (const source of wrong) {
    errors.push(await failure(() => encrypt({ keys: { k1: source as Key } })));
    const given = new KeyRing('it', { keys: { k1: () => source as string } });
    errors.push(await failure(() => given.open()));
  }
  for (const name of [hex, base64, hex.slice(3), base64.slice(1), CANARY.toString('base64url')]) {
    errors.push(await failure(() => encrypt({ keys: { k1: hex }, primary: name })));
    errors.push(await failure(() => encrypt({ keys: hex as never })));
  }
  errors.push(await failure(() => encrypt({ keys: { [hex]: hex } })));
  errors.push(await failure(() => encrypt({ keys: { [base64]: hex } })));
  errors.push(await failure(() => encrypt(hex as never)));
  expect(errors).toHaveLength(37);
  expectUnseen([CANARY], errors);
});
