/**
 * raw-files — the honest rival of a file per message: create, write, fsync, close, rename, in a bare
 * synchronous loop.
 */

import {
  closeSync,
  fsyncSync,
  mkdtempSync,
  openSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sample } from './measure.ts';
import type { Load } from './ours.ts';

/** What an entry file weighs besides its body: one JSON line and the trailer. */
const FRAME_BYTES = 700;

/** Files per second. */
export async function rawFileRate(load: Load): Promise<Sample> {
  const path = mkdtempSync(join(tmpdir(), 'respool-raw-'));
  const bytes = new Uint8Array(load.bodyBytes + FRAME_BYTES).fill(7);
  try {
    const beganAt = performance.now();
    let files = 0;
    while (performance.now() < beganAt + load.forMs) {
      const temporary = join(path, `tmp-${files}`);
      const fd = openSync(temporary, 'wx', 0o600);
      writeSync(fd, bytes);
      fsyncSync(fd);
      closeSync(fd);
      renameSync(temporary, join(path, `message-${files}`));
      files += 1;
    }
    return { value: (files / (performance.now() - beganAt)) * 1_000 };
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
}
