/** A spool whose large bodies lie in a bucket. */
import { createHash, randomBytes } from 'node:crypto';
import { createSpool } from 'respool';
import { memory } from 'respool/stores/memory';
import { expect, test } from 'vitest';
import { withService } from '../../services/index.ts';
import { allRefs, newBucket, opened } from './setup.ts';

withService('s3', (url) => {
  test('bodies go through the bucket and are gone when their messages are', async () => {
    const bucket = newBucket();
    const bodies = await opened(url(), { bucket, prefix: 'app' });
    await bodies.close();
    const spool = createSpool({ entries: memory(), bodies });
    const sent = new Map<string, string>();
    const found = new Map<string, string>();
    const done = new Promise<void>((resolve) => {
      spool.handle('report', async (delivery) => {
        const bytes = await delivery.body({ maxBytes: 20_000_000 });
        found.set(delivery.id, digest(bytes));
        if (found.size === 3) resolve();
      });
    });
    await spool.start();
    for (const size of [20_000, 1_000_000, 12_000_000]) {
      const body = randomBytes(size);
      const { id } = await spool.enqueue({ topic: 'report', body });
      sent.set(id, digest(body));
    }
    await done;
    await spool.stop();
    expect(found).toEqual(sent);
    await bodies.open();
    expect(await allRefs(bodies, 8e15)).toEqual([]);
    await bodies.close();
  });
});

function digest(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
