/** respool/transforms — the exports of compression, encryption and sealed stores. */

export type {
  BodyReader,
  BodyWriter,
  ReadContext,
  Transform,
  WriteContext,
} from '../ports/transform.ts';
export { decrypt, encrypt } from './encrypt.ts';
export type { Key, KeyFunction, KeySource, Keys } from './key-ring.ts';
export { generateKey } from './key-ring.ts';

export { compress } from './compress.ts';
export type { CompressionCodec } from './compress.ts';
export { type ReadCompressed, readCompressed } from './compress.ts';
export type {
  Cipher,
  CompressionLevel,
  CompressOptions,
  DecryptOptions,
  EncryptOptions,
  SealOptions,
} from './options.ts';
export { seal, type SealedStore } from './seal.ts';
