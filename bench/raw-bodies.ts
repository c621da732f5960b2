/**
 * raw-bodies — bodies as plain files, and as objects of S3 through its package.
 */

import {
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { bytes, type Load } from './ours.ts';
import { dropObjects, newName, s3Client } from './places.ts';
import type { RawBodies, RawEntries } from './raw.ts';

/** What an entry file weighs besides its body: one JSON line and the trailer. */
const FRAME_BYTES = 700;
/** As the spool has it by default. */
const INLINE_BYTES: number = 16 * 1_024;

/** One file per message: create, write, fsync, rename, fsync the folder; rename again; remove. */
export function rawFileEntries(path: string, load: Load): RawEntries {
  const isInline = load.bodyBytes <= (load.inlineBytes ?? INLINE_BYTES);
  const content = bytes(FRAME_BYTES + (isInline ? load.bodyBytes : 0));
  let made = 0;
  return {
    isSingle: false,
    async insert(count) {
      return Array.from({ length: count }, () => {
        made += 1;
        const file = join(path, `message-${made}`);
        writeFile(file, content);
        return file;
      });
    },
    async claim(inserted) {
      return (inserted as readonly string[]).map((file) => {
        renameSync(file, `${file}-active`);
        readFileSync(`${file}-active`);
        return `${file}-active`;
      });
    },
    async remove(claimed) {
      for (const file of claimed as readonly string[]) unlinkSync(file);
    },
    close: async () => undefined,
  };
}

/** One file per body. */
export function rawFileBodies(path: string, load: Load): RawBodies {
  const folder = join(path, 'raw-bodies');
  mkdirSync(folder);
  const body = bytes(load.bodyBytes);
  return {
    async put(refs) {
      for (const ref of refs) writeFile(join(folder, ref), body);
    },
    async read(refs) {
      for (const ref of refs) readFileSync(join(folder, ref));
    },
    async remove(refs) {
      for (const ref of refs) unlinkSync(join(folder, ref));
    },
    close: async () => undefined,
  };
}

/** With the same promise as ours: without its directory, a power cut may take the name back. */
function writeFile(file: string, content: Uint8Array): void {
  const fd = openSync(`${file}.tmp`, 'wx', 0o600);
  writeSync(fd, content);
  fsyncSync(fd);
  closeSync(fd);
  renameSync(`${file}.tmp`, file);
  const folder = openSync(dirname(file), 'r');
  fsyncSync(folder);
  closeSync(folder);
}

/** One object per body, all on their way at once. */
export async function rawS3Bodies(url: string, load: Load): Promise<RawBodies> {
  const bucket = newName();
  const client = s3Client(url);
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  const body = bytes(load.bodyBytes);
  const of = (ref: string): { Bucket: string; Key: string } => ({ Bucket: bucket, Key: ref });
  return {
    async put(refs) {
      await Promise.all(
        refs.map((ref) => client.send(new PutObjectCommand({ ...of(ref), Body: body }))),
      );
    },
    async read(refs) {
      await Promise.all(
        refs.map(async (ref) => {
          const { Body } = await client.send(new GetObjectCommand(of(ref)));
          await Body?.transformToByteArray();
        }),
      );
    },
    async remove(refs) {
      await Promise.all(refs.map((ref) => client.send(new DeleteObjectCommand(of(ref)))));
    },
    async close() {
      client.destroy();
      await dropObjects(url, bucket);
    },
  };
}
