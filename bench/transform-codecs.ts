/** transform-codecs — every codec at its default level, beside the one-shot call of its library. */

import { type CompressionCodec, compress, readCompressed } from 'respool/transforms';
import { compressFrameSync, decompressFrameSync } from 'lz4-napi';
import { Compressor, Decompressor } from 'snappy';
import * as zlib from 'node:zlib';
import { drain, drainReusing, partsOf, type TransformStep } from './transform-step.ts';

interface OneShot {
  readonly pack: (body: Buffer) => Buffer | Promise<Buffer>;
  readonly unpack: (packed: Buffer) => unknown;
}

const { BROTLI_PARAM_QUALITY, ZSTD_c_compressionLevel } = zlib.constants;

/** The whole body in one go, in the format with frames and checksums; the other one has neither. */
const onSnappy: OneShot = {
  pack: (body) => inOneGo(new Compressor(), body),
  unpack: (packed) => inOneGo(new Decompressor(), packed),
};

/** The same levels as ours, and nothing else. */
const ONE_SHOTS: Readonly<Record<CompressionCodec, OneShot>> = {
  gzip: { pack: (body) => zlib.gzipSync(body, { level: 6 }), unpack: zlib.gunzipSync },
  zlib: { pack: (body) => zlib.deflateSync(body, { level: 6 }), unpack: zlib.inflateSync },
  deflate: { pack: (body) => zlib.deflateRawSync(body, { level: 6 }), unpack: zlib.inflateRawSync },
  brotli: {
    pack: (body) => zlib.brotliCompressSync(body, { params: { [BROTLI_PARAM_QUALITY]: 4 } }),
    unpack: zlib.brotliDecompressSync,
  },
  zstd: {
    pack: (body) => zlib.zstdCompressSync(body, { params: { [ZSTD_c_compressionLevel]: 3 } }),
    unpack: zlib.zstdDecompressSync,
  },
  snappy: onSnappy,
  lz4: {
    pack: (body) => compressFrameSync(body, { contentChecksum: true }),
    unpack: decompressFrameSync,
  },
};

/** Encode and decode of every codec. */
export const codecSteps: readonly TransformStep[] = Object.entries(ONE_SHOTS).flatMap(
  ([codec, oneShot]) => [
    encodeStep(codec as CompressionCodec, oneShot),
    decodeStep(codec as CompressionCodec, oneShot),
  ],
);

async function inOneGo(codec: Compressor | Decompressor, bytes: Buffer): Promise<Buffer> {
  const first = codec.update(bytes);
  const rest = await codec.finish();
  return rest.length === 0 ? first : Buffer.concat([first, rest]);
}

function encodeStep(codec: CompressionCodec, { pack }: OneShot): TransformStep {
  return {
    name: `${codec} encode`,
    prepare: async (body) => {
      const transform = compress(codec);
      await transform.open?.();
      return {
        ours: () => {
          const writer = transform.writer?.({ id: 'bench' });
          if (writer === undefined) throw new Error(`${codec} does not write`);
          return drain(writer.encode(partsOf(body)));
        },
        theirs: () => pack(body),
      };
    },
  };
}

function decodeStep(codec: CompressionCodec, { pack, unpack }: OneShot): TransformStep {
  return {
    name: `${codec} decode`,
    prepare: async (body) => {
      const transform = compress(codec);
      await transform.open?.();
      const writer = transform.writer?.({ id: 'bench' });
      if (writer === undefined) throw new Error(`${codec} does not write`);
      const stored = await writer.encodeBytes(body);
      const packed = await pack(body);
      return {
        ours: async () => {
          // The size is in the envelope, so the reader knows it.
          const context = { id: 'bench', maxBytes: body.length };
          const reader = readCompressed(writer.encoding, context);
          if (reader === undefined) throw new Error(`nobody reads ${writer.encoding}`);
          const bytes = await drainReusing(reader.decode(partsOf(stored)));
          if (bytes !== body.length) throw new Error(`${codec} lost bytes`);
        },
        theirs: () => unpack(packed),
      };
    },
  };
}
