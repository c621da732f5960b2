/**
 * diagnose — what a bucket is like: there, writable, safe for bodies. Asked when the store opens,
 * and again for the doctor.
 */

import { HOUR_MS, type Millis } from '../../core/duration.ts';
import { RespoolError, textOf } from '../../core/errors.ts';
import type { Calls } from './connection.ts';
import type { LifecycleRule } from './connection.ts';
import {
  codeOf,
  isConditionFailed,
  isForbidden,
  isUnsupported,
  statusOf,
  storeError,
} from './errors.ts';
import { ARCHIVES } from './options.ts';

/** One thing about a bucket: right, worth knowing, or a danger. As `StoreFinding` of the others. */
export interface S3Finding {
  /** Stable: `bucket`, `conditional-writes`, `lifecycle`, `versions`, `unfinished-uploads`. */
  readonly id: string;
  readonly level: 'ok' | 'note' | 'unsafe';
  readonly text: string;
  /** How to fix it; none where nothing needs fixing. */
  readonly todo?: string;
}

/** Where to look. */
interface InspectOptions {
  readonly calls: Calls;
  readonly bucket: string;
  readonly prefix: string;
}

/** Makes sure that the bucket is there, or makes it. */
export async function checkBucket(
  { calls, bucket }: InspectOptions,
  createBucket: boolean,
): Promise<void> {
  const doing = `open bucket "${bucket}"`;
  try {
    await calls.send('HeadBucket', {});
    return;
  } catch (error) {
    if (statusOf(error) !== 404) throw storeError(doing, error);
    if (!createBucket) {
      throw new RespoolError(
        'config.invalid',
        `cannot ${doing}: there is no such bucket; make it, or set createBucket: true`,
        { cause: error },
      );
    }
  }
  try {
    await calls.send('CreateBucket', {});
  } catch (error) {
    // Another process was as quick; the object belongs to this store.
    if (codeOf(error) === 'BucketAlreadyOwnedByYou') return;
    throw storeError(`make bucket "${bucket}"`, error);
  }
}

/**
 * Writes an object twice, the second time on condition that there is none, and removes it. Proves
 * the right to write, list and remove; tells whether the server keeps to the condition. Removes
 * also what a process left that was killed in the middle of this.
 */
export async function probe(parts: InspectOptions, name: string, now: Millis): Promise<boolean> {
  const { calls, bucket } = parts;
  const folder = probeFolder(parts);
  const key = `${folder}${name}`;
  let isConditional: boolean;
  let left: readonly string[];
  try {
    await calls.send('PutObject', { Key: key, Body: new Uint8Array(1), ContentLength: 1 });
    left = await oldProbes(calls, folder, now);
    isConditional = await refusesSecond(calls, key);
  } catch (error) {
    // Also where the first write failed: it may have happened anyway.
    await calls.send('DeleteObject', { Key: key }).catch(() => undefined);
    throw storeError(`write to bucket "${bucket}"`, error);
  }
  try {
    for (const one of [key, ...left]) await calls.send('DeleteObject', { Key: one });
  } catch (error) {
    throw storeError(`remove from bucket "${bucket}"`, error);
  }
  return isConditional;
}

/** Age after which a probe counts as abandoned. */
const PROBE_OLD_MS: number = HOUR_MS;
/** More than a few at once can only be left by many crashes; the next opening takes the rest. */
const PROBES_LISTED_MAX = 100;

/** n.b. Not only `probe/`: what others keep in the bucket under such a name is not ours. */
function probeFolder({ prefix }: InspectOptions): string {
  return `${prefix}probe/respool-`;
}

async function oldProbes(calls: Calls, folder: string, now: Millis): Promise<readonly string[]> {
  const input = { Prefix: folder, MaxKeys: PROBES_LISTED_MAX };
  const { Contents = [] } = await calls.send('ListObjectsV2', input);
  const old = Contents.filter(
    ({ LastModified }) => LastModified !== undefined && LastModified.getTime() < now - PROBE_OLD_MS,
  );
  return old.flatMap(({ Key }) => (Key === undefined ? [] : [Key]));
}

async function refusesSecond(calls: Calls, key: string): Promise<boolean> {
  const body = { Body: new Uint8Array(1), ContentLength: 1 };
  try {
    await calls.send('PutObject', { Key: key, ...body, IfNoneMatch: '*' });
    return false;
  } catch (error) {
    if (isConditionFailed(error)) return true;
    if (isUnsupported(error)) return false;
    throw error;
  }
}

/** Everything worth telling a person about the bucket. */
export async function inspect(
  parts: InspectOptions,
  isConditional: boolean,
): Promise<readonly S3Finding[]> {
  const [lifecycle, versions, uploads] = await Promise.all([
    inspectLifecycle(parts),
    inspectVersions(parts),
    inspectUploads(parts),
  ]);
  return [conditional(isConditional), ...lifecycle, ...versions, ...uploads];
}

function conditional(isConditional: boolean): S3Finding {
  const id = 'conditional-writes';
  if (isConditional) return { id, level: 'ok', text: 'the server refuses to overwrite a body' };
  return {
    id,
    level: 'note',
    text:
      'the server ignores If-None-Match: whether there is a body is asked before it is written, ' +
      'and two processes that write one ref at the same moment cannot be distinguished',
    todo: 'nothing while refs are made by Respool: each is used once',
  };
}

async function inspectLifecycle({ calls, prefix }: InspectOptions): Promise<readonly S3Finding[]> {
  const id = 'lifecycle';
  let rules: readonly LifecycleRule[];
  try {
    rules = (await calls.send('GetBucketLifecycleConfiguration', {})).Rules ?? [];
  } catch (error) {
    if (statusOf(error) !== 404) return [unknown(id, 'the lifecycle rules', error)];
    rules = [];
  }
  return lifecycleFindings(rules, prefix);
}

/** What rules mean for bodies below a prefix. */
export function lifecycleFindings(
  rules: readonly LifecycleRule[],
  prefix: string,
): readonly S3Finding[] {
  const id = 'lifecycle';
  const ours = rules.filter((rule) => rule.Status === 'Enabled' && concerns(rule, prefix));
  const findings = ours.flatMap((rule): S3Finding[] => {
    const name = `the lifecycle rule "${rule.ID ?? ''}"`;
    const end = expiry(rule);
    const archive = rule.Transitions?.find(({ StorageClass = '' }) =>
      ARCHIVES.includes(StorageClass),
    );
    return [
      ...(end === undefined ? [] : [danger(id, `${name} removes bodies ${end}`)]),
      ...(archive === undefined
        ? []
        : [
            danger(
              id,
              `${name} moves bodies to ${archive.StorageClass}, where they cannot be read`,
            ),
          ]),
    ];
  });
  const aborts = ours.some((rule) => rule.AbortIncompleteMultipartUpload !== undefined);
  if (!aborts) {
    findings.push({
      id: 'unfinished-uploads',
      level: 'note',
      text: 'no lifecycle rule ends unfinished uploads; the caretaker does',
      todo: 'add AbortIncompleteMultipartUpload after 7 days, for when no process runs',
    });
  }
  const isSafe = findings.every(({ level }) => level !== 'unsafe');
  const text = 'no lifecycle rule removes or archives bodies';
  return isSafe ? [{ id, level: 'ok', text }, ...findings] : findings;
}

/** Whether a rule may hold for a key that begins with this prefix. */
function concerns({ Prefix, Filter }: LifecycleRule, prefix: string): boolean {
  const its = Filter?.And?.Prefix ?? Filter?.Prefix ?? Prefix ?? '';
  // Our objects have no tags.
  if (Filter?.Tag !== undefined || (Filter?.And?.Tags ?? []).length > 0) return false;
  return its.startsWith(prefix) || prefix.startsWith(its);
}

function expiry({ Expiration }: LifecycleRule): string | undefined {
  if (Expiration?.Days !== undefined) return `after ${Expiration.Days} days`;
  return Expiration?.Date === undefined ? undefined : `on ${Expiration.Date.toISOString()}`;
}

function danger(id: string, text: string): S3Finding {
  const todo = 'limit the rule to another prefix, or let it wait longer than any message is kept';
  return { id, level: 'unsafe', text, todo };
}

async function inspectVersions({ calls }: InspectOptions): Promise<readonly S3Finding[]> {
  const id = 'versions';
  try {
    const { Status } = await calls.send('GetBucketVersioning', {});
    if (Status !== 'Enabled' && Status !== 'Suspended') {
      return [{ id, level: 'ok', text: 'the bucket keeps no versions' }];
    }
    const text =
      Status === 'Enabled'
        ? 'the bucket keeps versions: a removed body stays, is paid for, and can be read'
        : 'versions of the bucket are suspended: those of before stay, and every removed body ' +
          'leaves a marker';
    return [
      {
        id,
        level: 'note',
        text,
        todo: 'add NoncurrentVersionExpiration of 1 day, or keep bodies in a bucket without',
      },
    ];
  } catch (error) {
    return [unknown(id, 'whether the bucket keeps versions', error)];
  }
}

async function inspectUploads({ calls, prefix }: InspectOptions): Promise<readonly S3Finding[]> {
  try {
    await calls.send('ListMultipartUploads', { Prefix: prefix, MaxUploads: 1 });
    return [];
  } catch (error) {
    return [
      {
        ...unknown('unfinished-uploads', 'unfinished uploads', error),
        todo: 'allow s3:ListBucketMultipartUploads, so that what a crash leaves is swept',
      },
    ];
  }
}

function unknown(id: string, what: string, error: unknown): S3Finding {
  const because = isForbidden(error) ? 'the keys do not allow to ask' : textOf(error);
  return { id, level: 'note', text: `cannot tell ${what}: ${because}` };
}
