/** transforms — compression and encryption of bodies; the public face of this room. */

export type {
  BodyReader,
  BodyWriter,
  ReadContext,
  Transform,
  WriteContext,
} from '../ports/transform.ts';
