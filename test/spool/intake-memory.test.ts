/** What a large body costs while it comes in. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { createSpool } from 'respool';
import { filesystemBodies } from 'respool/stores/filesystem';
import { memory } from 'respool/stores/memory';
import { expect, test } from 'vitest';

// Regression: a race against the spool's stop kept every part until the last had come.
test('parts of a stream are let go of as soon as they are written', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-intake-'));
  const bodies = filesystemBodies({ path: folder });
  const spool = createSpool({ entries: memory(), bodies });
  const parts: WeakRef<Uint8Array>[] = [];
  let aliveAtTheEnd = Number.POSITIVE_INFINITY;
  async function* source(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < 100; at += 1) {
      const part = new Uint8Array(64 * 1024).fill(at);
      parts.push(new WeakRef(part));
      yield part;
      // A weak reference is kept until the turn of the loop is over.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    collect();
    aliveAtTheEnd = parts.filter((part) => part.deref() !== undefined).length;
  }
  try {
    await spool.enqueue({ topic: 'x', body: source() });
    expect(parts).toHaveLength(100);
    expect(aliveAtTheEnd).toBeLessThan(20);
  } finally {
    await spool.stop();
    await rm(folder, { recursive: true, force: true });
  }
});
