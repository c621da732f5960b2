/** setup — S3 stores over the real server, each in a bucket of its own. */
import { randomBytes } from 'node:crypto';
import { S3Client } from '@aws-sdk/client-s3';
import { type S3Bodies, type S3Options, s3 } from 'respool/stores/s3';
import type { Clock } from 'respool';
import { systemClock } from '../../time.ts';

/** A name that no other test uses. */
export function newBucket(): string {
  return `test-${randomBytes(8).toString('hex')}`;
}

/** An opened store in a bucket of its own. */
export async function opened(
  endpoint: string,
  { client, ...options }: S3Options = {},
): Promise<S3Bodies> {
  const place = client === undefined ? { endpoint } : { client };
  const store = s3({ ...place, bucket: newBucket(), createBucket: true, ...options });
  await store.open();
  return store;
}

/** A client as a user has it. */
export function clientOf(url: string): S3Client {
  const { username, password, origin } = new URL(url);
  return new S3Client({
    endpoint: origin,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: username, secretAccessKey: password },
  });
}

export async function* chunksOf(...texts: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

/** So many bytes in pieces of 256 KiB. */
export async function* pieces(size: number): AsyncGenerator<Uint8Array> {
  const piece = 256 * 1_024;
  for (let at = 0; at < size; at += piece) {
    yield new Uint8Array(Math.min(piece, size - at)).fill(at / piece);
  }
}

export async function bytesOf(store: S3Bodies, ref: string): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of store.get(ref)) chunks.push(chunk);
  return Buffer.concat(chunks);
}

export async function allRefs(store: S3Bodies, before: number): Promise<readonly string[]> {
  const refs: string[] = [];
  for await (const { ref } of store.refs(before)) refs.push(ref);
  return refs.sort();
}

const REQUEST_TIMEOUT_MS = 1_013;

/** The `requestTimeout` of a store, in the hands of a test. */
export interface RequestTime {
  readonly options: { readonly requestTimeout: number; readonly clock: Clock };
  /** From now on it passes, or stands still again: a busy machine may take a second for an answer. */
  pass(isPassing: boolean): void;
  /** It is over for whatever is measured at this moment. */
  end(): void;
}

export function requestTime(): RequestTime {
  const measured = new Set<() => void>();
  let isPassing = false;
  const after: Clock['after'] = (ms, call) => {
    if (ms !== REQUEST_TIMEOUT_MS || isPassing) return systemClock.after(ms, call);
    measured.add(call);
    return () => void measured.delete(call);
  };
  return {
    options: { requestTimeout: REQUEST_TIMEOUT_MS, clock: { ...systemClock, after } },
    pass: (passes) => {
      isPassing = passes;
    },
    end: () => {
      for (const call of measured) call();
    },
  };
}
