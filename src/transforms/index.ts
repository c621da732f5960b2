/** transforms — compression and encryption of bodies; the public face of this room. */

export type {
  BodyReader,
  BodyWriter,
  ReadContext,
  Transform,
  WriteContext,
} from '../ports/transform.ts';
export type { Key, KeyFunction, KeySource, Keys } from './key.ts';
export { generateKey } from './key.ts';
