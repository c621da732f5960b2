/** Whatever is done to stored bytes is found, and nothing that was not proved right comes out. */

import { createDecipheriv, createSecretKey, hkdfSync } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decrypt, generateKey } from 'respool/transforms';
import {
  Chunks,
  createHeader,
  type EncryptHeader,
  parseHeader,
} from '../../src/transforms/encrypt-format.ts';
import {
  BLOCK_BYTES,
  broken,
  CHUNK_BYTES,
  CIPHERS,
  gather,
  KEY,
  load,
  loadStream,
  pieces,
  readerOf,
  refusal,
  type Stored,
  smallChunks,
  someBytes,
  store,
  TAG_BYTES,
} from './encrypt-setup.ts';

const HEADER_BYTES = 53;
const PLAIN = someBytes(4 * CHUNK_BYTES + 5);

/** Header and chunks with their tags. */
function parts({ bytes }: Stored): Uint8Array[] {
  const found = [bytes.subarray(0, HEADER_BYTES)];
  for (let at = HEADER_BYTES; at < bytes.length; at += BLOCK_BYTES) {
    found.push(bytes.subarray(at, at + BLOCK_BYTES));
  }
  return found;
}

function joined(stored: Stored, list: readonly (Uint8Array | undefined)[]): Stored {
  return { ...stored, bytes: Buffer.concat(list.filter((one) => one !== undefined)) };
}

/** Both ways of reading fail as damaged, and the stream gave out whole chunks of `plain` at most. */
async function expectFound(
  stored: Stored,
  { plain = PLAIN, sizes = [7], transform = smallChunks() } = {},
): Promise<string> {
  const error = await refusal(() => load(transform, stored));
  expect(error.code).toBe('body.corrupt');
  expect(error.message).toContain(`"${stored.id}"`);
  const stream = await broken(readerOf(transform, stored).decode(pieces(stored.bytes, sizes)));
  expect(stream.error.code).toBe('body.corrupt');
  const { out } = stream;
  expect(Buffer.compare(out, plain.subarray(0, out.length))).toBe(0);
  return error.message;
}

describe.each(CIPHERS)('%s', (cipher) => {
  const setup = (id = 'm1') => store(smallChunks({ cipher }), PLAIN, id);

  test('a flipped bit is found wherever it is, and no byte of its chunk comes out', async () => {
    const stored = await setup();
    for (let at = 0; at < stored.bytes.length; at += 1) {
      const bytes = Buffer.from(stored.bytes);
      bytes[at] = (bytes[at] ?? 0) ^ (1 << (at % 8));
      await expectFound({ ...stored, bytes }, { sizes: [1 + (at % 90)] });
      const chunk = Math.max(0, Math.floor((at - HEADER_BYTES) / BLOCK_BYTES));
      const reader = readerOf(smallChunks(), stored);
      const { out } = await broken(reader.decode(pieces(bytes, [1_000])));
      expect(out.length).toBe(at < HEADER_BYTES ? 0 : chunk * CHUNK_BYTES);
    }
  });

  test('a body that was cut is found, also between two chunks and inside the header', async () => {
    const stored = await setup();
    for (let length = 0; length < stored.bytes.length; length += 1) {
      const bytes = stored.bytes.subarray(0, length);
      await expectFound({ ...stored, bytes }, { sizes: [1 + (length % 90)] });
    }
  });

  test('bytes put in front, behind or between are found', async () => {
    const stored = await setup();
    await fc.assert(
      fc.asyncProperty(
        fc.nat(stored.bytes.length),
        fc.uint8Array({ minLength: 1, maxLength: 3 * BLOCK_BYTES }),
        async (at, more) => {
          const { bytes } = stored;
          await expectFound(joined(stored, [bytes.subarray(0, at), more, bytes.subarray(at)]));
        },
      ),
      { numRuns: 200 },
    );
  });

  test('chunks that were exchanged, doubled or left out are found', async () => {
    const stored = await setup();
    const [header, ...chunks] = parts(stored);
    for (const [one, chunk] of chunks.entries()) {
      await expectFound(joined(stored, [header, ...chunks.toSpliced(one, 1)]));
      await expectFound(joined(stored, [header, ...chunks.toSpliced(one, 0, chunk)]));
      for (let other = 0; other < one; other += 1) {
        const order = chunks.with(one, chunks[other] ?? chunk).with(other, chunk);
        await expectFound(joined(stored, [header, ...order]));
      }
    }
    await expectFound(joined(stored, [header]));
    await expectFound(joined(stored, [...chunks, header]));
  });

  test('chunks of another body are found, of the same message too', async () => {
    const stored = await setup();
    const [header, ...chunks] = parts(stored);
    for (const other of [await setup(), await setup('m2')]) {
      const [otherHeader, ...otherChunks] = parts(other);
      for (const [at, chunk] of otherChunks.entries()) {
        await expectFound(joined(stored, [header, ...chunks.with(at, chunk)]));
      }
      await expectFound(joined(stored, [otherHeader, ...chunks]));
      await expectFound(joined(stored, [header, ...otherChunks]));
      // The end of the other after the beginning of this one.
      await expectFound(joined(stored, [header, ...chunks.slice(0, 2), ...otherChunks.slice(2)]));
    }
  });

  test('a body under the id of another message is found', async () => {
    await expectFound({ ...(await setup('m2')), id: 'm1' });
    await expectFound({ ...(await setup('m1')), id: 'm11' });
  });

  test('a header whose fields were exchanged is found', async () => {
    const [stored, other] = [await setup(), await setup()];
    const [header, otherHeader] = [headerOf(stored), headerOf(other)];
    const changes: Partial<EncryptHeader>[] = [
      { salt: otherHeader.salt },
      { prefix: otherHeader.prefix },
      { isPadded: true },
      { chunkBytes: CHUNK_BYTES + 1 },
      { chunkBytes: CHUNK_BYTES * 2 },
      { cipher: CIPHERS.find((name) => name !== cipher) ?? cipher },
      { keyId: 'k2' },
      { keyId: 'k12' },
    ];
    for (const change of changes) {
      const [, ...chunks] = parts(stored);
      await expectFound(joined(stored, [createHeader({ ...header, ...change }).bytes, ...chunks]));
    }
  });

  test('a record that names the other cipher or key is found, with a changed header too', async () => {
    const stored = await setup();
    const [, ...chunks] = parts(stored);
    const other = CIPHERS.find((name) => name !== cipher) ?? cipher;
    const transform = smallChunks({ keys: { k1: KEY, k2: generateKey() }, primary: 'k1' });
    const records: Partial<EncryptHeader>[] = [{ cipher: other }, { keyId: 'k2' }];
    for (const record of records) {
      const header = { ...headerOf(stored), ...record };
      const encoding = `${header.cipher};key=${header.keyId}`;
      await expectFound({ ...stored, encoding }, { transform });
      const changed = joined({ ...stored, encoding }, [createHeader(header).bytes, ...chunks]);
      await expectFound(changed, { transform });
    }
  });

  test('a tag that was shortened is found, which Node alone would accept', async () => {
    const stored = await store(smallChunks({ cipher }), someBytes(5));
    for (let tagBytes = 0; tagBytes < TAG_BYTES; tagBytes += 1) {
      const bytes = stored.bytes.subarray(0, HEADER_BYTES + 5 + tagBytes);
      await expectFound({ ...stored, bytes }, { plain: someBytes(5) });
    }
    const empty = await store(smallChunks({ cipher }), new Uint8Array(0));
    for (const tagBytes of [4, 8, 12, 15]) {
      const bytes = empty.bytes.subarray(0, HEADER_BYTES + tagBytes);
      await expectFound({ ...empty, bytes }, { plain: new Uint8Array(0) });
    }
  });

  test('another key under the same id is found as damage', async () => {
    const stored = await setup();
    const text = await expectFound(stored, {
      transform: smallChunks({ keys: { k1: generateKey() } }),
    });
    expect(text).toContain('the key of that id is another one now');
  });

  test('padding that is missing, and an empty last chunk after others, are found', async () => {
    const header = { ...headerOf(await setup()), cipher };
    const forge = (isPadded: boolean, blocks: readonly Uint8Array[]): Stored => {
      const forged = createHeader({ ...header, isPadded });
      const chunks = new Chunks(forged, createSecretKey(Buffer.from(KEY, 'base64')), 'm1');
      const bytes = blocks.flatMap((block, at) => chunks.encrypt(block, at === blocks.length - 1));
      return joined({ id: 'm1', bytes: PLAIN, encoding: `${cipher};key=k1` }, [
        forged.bytes,
        ...bytes,
      ]);
    };
    const whole = PLAIN.subarray(0, CHUNK_BYTES);
    const zeros = new Uint8Array(CHUNK_BYTES);
    const none = new Uint8Array(0);
    expect(await load(smallChunks(), forge(false, [whole, whole]))).toHaveLength(2 * CHUNK_BYTES);
    const twice = Buffer.concat([whole, whole]);
    await expectFound(forge(false, [whole, none]));
    for (const blocks of [[whole, whole], [none], [whole.subarray(0, 3)]]) {
      expect(await expectFound(forge(true, blocks), { plain: twice })).toContain('padding');
    }
    const unmarked = forge(true, [zeros, zeros]);
    expect(await expectFound(unmarked, { plain: Buffer.concat([zeros, zeros]) })).toContain(
      'padding',
    );
  });
});

test('Node takes a quarter of a tag unless 16 bytes are asked for: why they are', async () => {
  const stored = await store(smallChunks(), someBytes(5));
  const { salt, prefix } = headerOf(stored);
  const key = Buffer.from(KEY, 'base64');
  const derived = Buffer.from(hkdfSync('sha256', key, salt, 'respool/v1|m1', 64));
  const nonce = Buffer.concat([prefix, Buffer.from([0, 0, 0, 0, 1])]);
  const at = HEADER_BYTES + 5;
  const read = (authTagLength: number, tagBytes: number): string => {
    const work = createDecipheriv('aes-256-gcm', derived.subarray(0, 32), nonce, { authTagLength });
    work.setAAD(Buffer.concat([stored.bytes.subarray(0, HEADER_BYTES), Buffer.from('m1')]));
    work.setAuthTag(stored.bytes.subarray(at, at + tagBytes));
    const plain = work.update(stored.bytes.subarray(HEADER_BYTES, at));
    return Buffer.concat([plain, work.final()]).toString('hex');
  };
  expect(read(4, 4)).toBe(Buffer.from(someBytes(5)).toString('hex'));
  expect(read(16, 16)).toBe(read(4, 4));
  expect(() => read(16, 4)).toThrow('Invalid authentication tag length');
});

test.each<[string, (header: Buffer) => unknown, string]>([
  ['no magic', (header) => header.write('RSPX', 0), 'does not begin'],
  ['an unknown version', (header) => header.writeUInt8(0, 4), 'no version 0'],
  ['a newer version', (header) => header.writeUInt8(2, 4), 'newer version of respool; update'],
  ['an unknown cipher', (header) => header.writeUInt8(3, 5), 'no cipher 3'],
  ['unknown flags', (header) => header.writeUInt8(2, 6), 'no flags 2'],
  ['chunks of nothing', (header) => header.writeUInt32BE(0, 7), 'chunk of 0 bytes'],
  ['chunks too large', (header) => header.writeUInt32BE(1_048_577, 7), 'of 1048577 bytes'],
  ['the largest chunks', (header) => header.writeUInt32BE(0xffff_ffff, 7), '4294967295 bytes'],
  ['a key without an id', (header) => header.writeUInt8(0, 50), 'key'],
  ['a key id too long', (header) => header.writeUInt8(65, 50), 'key'],
  ['a key id past the end', (header) => header.writeUInt8(255, 50), 'ends inside its header'],
  ['a key id that is none', (header) => header.write('k/', 51), 'id is none'],
])('a header with %s is refused before it is used', async (_, change, text) => {
  const stored = await store(smallChunks(), PLAIN);
  const bytes = Buffer.from(stored.bytes);
  change(bytes);
  expect(await expectFound({ ...stored, bytes })).toContain(text);
});

test('a newer version of any length and layout is told as one', async () => {
  for (const length of [5, 20, 60, 400]) {
    const bytes = Buffer.concat([Buffer.from('RSPE\x02'), someBytes(length - 5)]);
    const stored = { id: 'm1', bytes, encoding: 'aes-256-gcm;key=k1' };
    expect(await expectFound(stored)).toContain('newer version');
  }
});

test.each(['aes-256-gcm', 'aes-256-gcm;', 'aes-256-gcm;key=', 'aes-256-gcm;kid=k1'])(
  'a record %j is refused as damaged',
  async (encoding) => {
    for (const more of ['', ';key=k1', ';v=2']) {
      const read = () => decrypt({ keys: { k1: KEY } }).reader(encoding + more, CONTEXT);
      if (encoding + more === 'aes-256-gcm;key=k1') continue;
      const error = await refusal(read);
      expect(error.code).toBe('body.corrupt');
      expect(error.message).toContain('update this one');
    }
  },
);

const CONTEXT = { id: 'm1', maxBytes: Number.POSITIVE_INFINITY };

test('any bytes at all are refused as damaged, none crashes', async () => {
  const begun = fc.constantFrom('', 'RSPE', 'RSPE\x01', 'RSPE\x01\x01\x00\x00\x00\x00\x10');
  await fc.assert(
    fc.asyncProperty(
      begun,
      fc.uint8Array({ maxLength: 300 }),
      fc.integer({ min: 1, max: 100 }),
      async (start, rest, size) => {
        const bytes = Buffer.concat([Buffer.from(start, 'latin1'), rest]);
        const stored = { id: 'm1', bytes, encoding: 'aes-256-gcm;key=k1' };
        await expectFound(stored, { plain: new Uint8Array(0), sizes: [size] });
      },
    ),
    { numRuns: 500 },
  );
});

test('what is undamaged still comes back, so that the above proves something', async () => {
  const stored = await store(smallChunks(), PLAIN);
  const [header, ...chunks] = parts(stored);
  const again = joined(stored, [createHeader(headerOf(stored)).bytes, ...chunks]);
  expect(header).toHaveLength(HEADER_BYTES);
  expect(Buffer.compare(await load(smallChunks(), again), PLAIN)).toBe(0);
  expect(Buffer.compare(await loadStream(smallChunks(), again), PLAIN)).toBe(0);
  const reader = readerOf(smallChunks(), stored);
  expect(() => reader.digestKey).toThrow('nothing of it was read');
  await gather(reader.decode(pieces(stored.bytes, [9])));
  expect(reader.digestKey).toHaveLength(32);
});

function headerOf({ bytes }: Stored): EncryptHeader {
  const header = parseHeader(bytes.subarray(0, HEADER_BYTES));
  if (typeof header === 'string') throw new Error(header);
  return header;
}
