/** respool/stores/s3 — bodies in a bucket of S3, or of a server that speaks it. */

export { type S3Bodies, s3 } from './body-store.ts';
export type { S3ClientLike, S3Credentials } from './connection.ts';
export type { S3Finding } from './diagnose.ts';
export type { S3Options } from './options.ts';
