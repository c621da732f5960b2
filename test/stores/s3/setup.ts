/** setup — S3 stores over the real server, each in a bucket of its own. */
import { randomBytes } from 'node:crypto';
import { S3Client } from '@aws-sdk/client-s3';
import { type S3Bodies, type S3Options, s3 } from 'respool/stores/s3';

/** A name that no other test uses. */
export function newBucket(): string {
  return `test-${randomBytes(8).toString('hex')}`;
}

/** An opened store in a bucket of its own. */
export async function opened(endpoint: string, options: S3Options = {}): Promise<S3Bodies> {
  const store = s3({ endpoint, bucket: newBucket(), createBucket: true, ...options });
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
