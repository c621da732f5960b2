/**
 * image — a file system of its own that can be pulled out from under a program: ext4 in a file, or
 * memory of a fixed size. Needs root; ask `cannotMount` first.
 */
import { mkdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run, withSbin } from './tools.ts';

/** A mounted ext4 image. */
export interface Image {
  /** Where it is mounted. */
  readonly path: string;
  /**
   * Mounts what has reached the disk at this moment, and nothing that only memory knows: what would
   * be there after a power cut. Stop whoever writes meanwhile: power goes at once, a copy does not.
   */
  cut<Value>(look: (path: string) => Promise<Value>): Promise<Value>;
}

const IMAGE_BYTES = 96 * 2 ** 20;

/** Runs `work` on a fresh image below this folder. */
export async function withImage<Value>(
  folder: string,
  work: (image: Image) => Promise<Value>,
): Promise<Value> {
  const file = join(folder, 'disk.img');
  await writeFile(file, '');
  await truncate(file, IMAGE_BYTES);
  await run('mkfs.ext4', ['-q', '-F', file], { env: withSbin() });
  // The kernel writes by itself every 300 s only: what is in the file was asked to be there. And a
  // name that is synced does not take the bytes along, as ext4 otherwise does and others do not.
  const options = 'loop,commit=300,data=writeback';
  return mounted(join(folder, 'disk'), ['-o', options, file], async (path) => {
    let cuts = 0;
    return work({
      path,
      async cut(look) {
        cuts += 1;
        const copy = join(folder, `cut-${cuts}.img`);
        await run('cp', ['--sparse=always', file, copy]);
        try {
          return await mounted(join(folder, `cut-${cuts}`), ['-o', 'loop', copy], look);
        } finally {
          await run('rm', ['-f', copy]);
        }
      },
    });
  });
}

/** Runs `work` in memory of this size. */
export function withSmallDisk<Value>(
  folder: string,
  bytes: number,
  work: (path: string) => Promise<Value>,
): Promise<Value> {
  return mounted(join(folder, 'small'), ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs'], work);
}

async function mounted<Value>(
  path: string,
  args: readonly string[],
  work: (path: string) => Promise<Value>,
): Promise<Value> {
  await mkdir(path);
  await run('mount', [...args, path]);
  try {
    return await work(path);
  } finally {
    // Lazy: a child that was killed a moment ago may still be on its way out.
    await run('umount', ['-l', path]);
  }
}
