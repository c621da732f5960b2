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
export type { Cipher } from './encrypt-format.ts';
export type { Key, KeyFunction, KeySource, Keys } from './key-ring.ts';
export { generateKey } from './key-ring.ts';

export { compress, type CompressOptions } from './compress.ts';
export type { CompressionCodec } from './compress.ts';
export { type ReadCompressed, readCompressed } from './compress.ts';
export type { CompressionLevel } from './codec.ts';
export { seal, type SealedStore, type SealOptions } from './seal.ts';
