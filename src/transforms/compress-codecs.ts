/** compress-codecs — every codec by its name, and what an envelope records of a compression. */

import { RespoolError } from '../core/errors.ts';
import type { CodecSource } from './codec.ts';
import { lz4Source } from './codec-lz4.ts';
import { snappySource } from './codec-snappy.ts';
import { zlibSource } from './codec-zlib.ts';

/** The ways a body can be compressed. */
export const CODEC_NAMES = ['gzip', 'zlib', 'deflate', 'brotli', 'zstd', 'snappy', 'lz4'] as const;

/** The name of a codec; encodings begin with it. */
export type CompressionCodec = (typeof CODEC_NAMES)[number];

/**
 * A codec that stored bodies may name. Bodies under the name `s2` hold the bytes of snappy, as
 * former versions wrote them; S2 in its own format is neither written nor read.
 */
export type StoredCodec = CompressionCodec | 's2';

const STORED_NAMES: readonly StoredCodec[] = [...CODEC_NAMES, 's2'];

/** Refuses S2 where it is asked for, with what to use instead. */
export function refuseS2(codec: unknown): void {
  if (codec !== 's2') return;
  throw new RespoolError(
    'config.invalid',
    'cannot compress with s2: the S2 format and its levels are not implemented; use snappy, ' +
      'whose bytes readers of S2 take, or zstd, which has levels. Bodies that are stored under ' +
      'the name s2 stay readable',
  );
}

/** Where each codec comes from. */
export type CodecSources = Readonly<Record<StoredCodec, CodecSource>>;

/** What is recorded of a body that was left as it was. */
export const PLAIN = 'plain';

/** A body may unpack to this many times its size without saying so beforehand. */
const RATIO_MAX = 200;
/** Ratios count only past this many plain bytes: what is smaller harms nobody. */
export const RATIO_FREE_BYTES: number = 1024 * 1024;

const ENCODING_PATTERN = /^([a-z0-9]+)(?:;ratio=([1-9][0-9]{0,14}))?$/;

// Read under two names: former versions wrote it as s2, too.
const snappy = snappySource();

/** The codecs as they are used outside of tests. */
export const CODECS: CodecSources = {
  gzip: zlibSource('gzip'),
  zlib: zlibSource('zlib'),
  deflate: zlibSource('deflate'),
  brotli: zlibSource('brotli'),
  zstd: zlibSource('zstd'),
  snappy,
  s2: snappy,
  lz4: lz4Source(),
};

/** The record of a compressed body; `ratio` is the highest it passes on the way back. */
export function encodingOf(codec: CompressionCodec, ratio: number): string {
  return ratio > RATIO_MAX ? `${codec};ratio=${Math.ceil(ratio)}` : codec;
}

/** What a record says; undefined where it is none of a compression. */
export function parseEncoding(
  encoding: string,
): { readonly codec: StoredCodec; readonly ratioMax: number } | undefined {
  const [, name, ratio] = ENCODING_PATTERN.exec(encoding) ?? [];
  const codec = STORED_NAMES.find((known) => known === name);
  if (codec === undefined) return undefined;
  return { codec, ratioMax: Math.max(RATIO_MAX, Number(ratio ?? 0)) };
}
