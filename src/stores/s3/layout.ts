/**
 * layout — the names of bodies in a bucket.
 *
 *   <prefix><shard>/<ref>           a body; written once, never changed
 *   <prefix>probe/respool-<random>  for a moment, while the store opens
 *
 * The shard is a hash of the ref: ids that begin with the time would all go to one partition of the
 * server. An upload that is not finished has no object yet; its name here is made of the ref and of
 * the server's id of the upload.
 */

import { createHash } from 'node:crypto';
import { checkRef, REF_PATTERN } from '../../core/limits.ts';

/** An upload that was begun. */
export interface UnfinishedUpload {
  readonly ref: string;
  readonly uploadId: string;
}

const SHARD = /^[0-9a-f]{2}$/;
/** n.b. No dash in what follows the ref: the id of a message ends at the last one. */
const PART = /^([0-9a-z][0-9a-z_-]{0,63})\.([0-9a-f]+)\.part$/;

/** The key of a body. */
export function keyOf(prefix: string, ref: string): string {
  return `${prefix}${shardOf(ref)}/${checkRef(ref)}`;
}

/** The ref of a key; undefined for what is not our own body. */
export function refOfKey(prefix: string, key: string): string | undefined {
  if (!key.startsWith(prefix)) return undefined;
  const [shard = '', ref = '', ...rest] = key.slice(prefix.length).split('/');
  const isOurs = rest.length === 0 && SHARD.test(shard) && REF_PATTERN.test(ref);
  return isOurs && shard === shardOf(ref) ? ref : undefined;
}

/** The name under which an unfinished upload is listed and removed. */
export function partNameOf({ ref, uploadId }: UnfinishedUpload): string {
  return `${ref}.${Buffer.from(uploadId).toString('hex')}.part`;
}

/** The upload a name stands for; undefined where it is the name of a body. */
export function uploadOfName(name: string): UnfinishedUpload | undefined {
  const [, ref, hex] = PART.exec(name) ?? [];
  if (ref === undefined || hex === undefined) return undefined;
  return { ref, uploadId: Buffer.from(hex, 'hex').toString() };
}

function shardOf(ref: string): string {
  return createHash('sha256').update(ref).digest('hex').slice(0, 2);
}
