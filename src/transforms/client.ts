/** client — the only way to the optional packages of compression: snappy and lz4-napi. */

import { RespoolError } from '../core/errors.ts';
import { importPeer } from '../system/peer.ts';

/** Packs a stream into frames. */
interface SnappyCompressor {
  update(plain: Uint8Array): Buffer;
  finish(): Promise<Buffer>;
}

/** The part of the package `snappy` that is used. */
export interface SnappyPackage {
  readonly Compressor: new () => SnappyCompressor;
  compressSync(plain: Buffer, options: { readonly copyOutputData: boolean }): Buffer;
  uncompressSync(
    packed: Buffer,
    options: { readonly asBuffer: boolean; readonly copyOutputData: boolean },
  ): Buffer;
}

/** The part of the package `lz4-napi` that is used. */
export interface Lz4Package {
  compressFrameSync(plain: Buffer, options: { readonly contentChecksum: boolean }): Buffer;
  decompressFrameSync(packed: Buffer): Buffer;
}

/** Loads `snappy`; `peer.missing` where it is not installed. */
export function loadSnappy(): Promise<SnappyPackage> {
  return load<SnappyPackage>('snappy', ['Compressor', 'compressSync', 'uncompressSync']);
}

/** Loads `lz4-napi`; `peer.missing` where it is not installed. */
export function loadLz4(): Promise<Lz4Package> {
  return load<Lz4Package>('lz4-napi', ['compressFrameSync', 'decompressFrameSync']);
}

/** An old release may lack what we call; better to know now than with the first body. */
async function load<T>(packageName: string, needed: readonly string[]): Promise<T> {
  const loaded = await importPeer(packageName, `compression with ${packageName}`);
  const missing = needed.find((name) => typeof loaded[name] !== 'function');
  if (missing === undefined) return loaded as T;
  throw new RespoolError(
    'peer.missing',
    `cannot use compression with ${packageName}: the installed package has no "${missing}"; ` +
      `run: npm install ${packageName}@latest`,
  );
}
