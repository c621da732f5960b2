/** compress-peers.test — optional packages: loaded when needed, and a clear word when missing. */
import { RespoolError } from 'respool';
import { describe, expect, test } from 'vitest';
import { type CodecSource, loadLz4, loadSnappy } from '../../src/transforms/codec.ts';
import { lz4Source } from '../../src/transforms/codec-lz4.ts';
import { snappySource } from '../../src/transforms/codec-snappy.ts';
import {
  CODECS as SOURCES,
  type CodecSources,
  compressWith,
  createReadCompressed,
} from '../../src/transforms/compress.ts';
import { importPeer } from '../../src/system/peer.ts';
import { collect, KIB, parts, refusal, text } from './compress-setup.ts';

const missing = (): Promise<never> =>
  importPeer('no-such-package', 'compression') as Promise<never>;

/** How often the package was asked for, and what it then gives. */
function counted<T>(load: () => Promise<T>): { readonly load: () => Promise<T>; count: number } {
  const counter = {
    count: 0,
    load: () => {
      counter.count += 1;
      return load();
    },
  };
  return counter;
}

const peers = [
  { codec: 'snappy', make: (isThere: boolean) => counting(isThere, loadSnappy, snappySource) },
  { codec: 'lz4', make: (isThere: boolean) => counting(isThere, loadLz4, lz4Source) },
] as const;

function counting<T>(
  isThere: boolean,
  load: () => Promise<T>,
  make: (load: () => Promise<T>) => CodecSource,
): { readonly source: CodecSource; readonly counter: { readonly count: number } } {
  const counter = counted(isThere ? load : missing);
  return { source: make(counter.load), counter };
}

describe.each(peers)('$codec', ({ codec, make }) => {
  const setup = (isThere: boolean) => {
    const { source, counter } = make(isThere);
    const codecs: CodecSources = { ...SOURCES, [codec]: source };
    return { codecs, counter, transform: compressWith(codecs, codec) };
  };

  test('without its package, open() and every way fail with peer.missing', async () => {
    const { codecs, transform } = setup(false);
    const { message } = await refusal(() => transform.open?.(), 'peer.missing');
    expect(message).toContain('npm install');
    const writer = transform.writer?.({ id: 'a' });
    await refusal(() => writer?.encodeBytes(text(KIB)), 'peer.missing');
    await refusal(() => collect(writer?.encode(parts(text(KIB), [64])) ?? none()), 'peer.missing');
    const reader = createReadCompressed(codecs)(codec, { id: 'a', maxBytes: KIB });
    await refusal(() => reader?.decodeBytes(text(KIB)), 'peer.missing');
    await refusal(() => collect(reader?.decode(parts(text(KIB), [64])) ?? none()), 'peer.missing');
  });

  test('without its package, a stream that was given is not even begun', async () => {
    const { codecs, transform } = setup(false);
    let isBegun = false;
    async function* stream(): AsyncGenerator<Uint8Array, void, undefined> {
      isBegun = true;
      yield text(KIB);
    }
    const writer = transform.writer?.({ id: 'a' });
    await refusal(() => collect(writer?.encode(stream()) ?? none()), 'peer.missing');
    const reader = createReadCompressed(codecs)(codec, { id: 'a', maxBytes: KIB });
    await refusal(() => collect(reader?.decode(stream()) ?? none()), 'peer.missing');
    expect(isBegun).toBe(false);
  });

  test('without its package, a tiny body is still stored, as it is', () => {
    const { transform } = setup(false);
    const writer = transform.writer?.({ id: 'a' });
    expect(writer?.encodeBytes(text(10))).toEqual(text(10));
    expect(writer?.encoding).toBe('plain');
  });

  test('making a transform or a reader loads nothing; open() loads', async () => {
    const { codecs, counter, transform } = setup(true);
    transform.writer?.({ id: 'a' });
    createReadCompressed(codecs)(codec, { id: 'a', maxBytes: 1 });
    expect(counter.count).toBe(0);
    await transform.open?.();
    await transform.open?.();
    expect(counter.count).toBe(1);
    expect(transform.writer?.({ id: 'a' }).encodeBytes(text(KIB))).toBeInstanceOf(Uint8Array);
  });

  test('a reader without open() loads at its first body, and later bodies are read at once', async () => {
    const { transform } = setup(true);
    await transform.open?.();
    const packed = await transform.writer?.({ id: 'a' }).encodeBytes(text(KIB));
    const { codecs, counter } = setup(true);
    const read = () =>
      createReadCompressed(codecs)(codec, { id: 'a', maxBytes: KIB })?.decodeBytes(
        packed ?? text(0),
      );
    const first = read();
    expect(first).toBeInstanceOf(Promise);
    expect(text(KIB).equals((await first) ?? text(0))).toBe(true);
    expect(read()).toBeInstanceOf(Uint8Array);
    expect(counter.count).toBe(1);
  });

  test('a package that came later is found by the next try', async () => {
    let isThere = false;
    const { source } = make(true);
    const later: CodecSource = {
      ...source,
      load: () => (isThere ? source.load() : Promise.reject(new RespoolError('peer.missing', ''))),
    };
    const transform = compressWith({ ...SOURCES, [codec]: later }, codec);
    await refusal(() => transform.open?.(), 'peer.missing');
    isThere = true;
    await transform.open?.();
    expect(transform.writer?.({ id: 'a' }).encodeBytes(text(KIB))).toBeInstanceOf(Uint8Array);
  });
});

async function* none(): AsyncGenerator<Uint8Array, void, undefined> {}
