/** transforms — compression and encryption of bodies; the public face of this room. */

export type {
  BodyReader,
  BodyWriter,
  ReadContext,
  Transform,
  WriteContext,
} from '../ports/transform.ts';
export type { DecryptOptions, EncryptOptions } from './encrypt.ts';
export { decrypt, encrypt } from './encrypt.ts';
export type { Cipher } from './encrypt-header.ts';
export type { Key, KeyFunction, KeySource, Keys } from './key.ts';
export { generateKey } from './key.ts';

export { compress, type CompressOptions } from './compress.ts';
export type { CompressionCodec } from './compress-codecs.ts';
export { type ReadCompressed, readCompressed } from './compress-read.ts';
export type { CompressionLevel } from './codec.ts';
export { seal, type SealedStore, type SealOptions } from './seal.ts';
