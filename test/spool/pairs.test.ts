/** R37, R38: any entry store goes with any body store. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createSpool } from '../../src/index.ts';
import type { BodyStore } from '../../src/ports/body-store.ts';
import type { EntryStore } from '../../src/ports/entry-store.ts';
import { filesystem, filesystemBodies } from '../../src/stores/filesystem/index.ts';
import { memory, memoryBodies } from '../../src/stores/memory/index.ts';
import { sqlite, sqliteBodies } from '../../src/stores/sqlite/index.ts';

const ENTRIES: Readonly<Record<string, (path: string) => EntryStore>> = {
  memory: () => memory(),
  filesystem: (path) => filesystem({ path: join(path, 'entries') }),
  sqlite: (path) => sqlite({ path }),
};
const BODIES: Readonly<Record<string, (path: string) => BodyStore>> = {
  memory: () => memoryBodies(),
  filesystem: (path) => filesystemBodies({ path: join(path, 'bodies') }),
  sqlite: (path) => sqliteBodies({ path: join(path, 'bodies') }),
};

describe('entries and bodies', () => {
  for (const [entriesName, entries] of Object.entries(ENTRIES)) {
    for (const [bodiesName, bodies] of Object.entries(BODIES)) {
      test(`in ${entriesName} and ${bodiesName} carry a message, also after a restart`, async () => {
        const path = await mkdtemp(join(tmpdir(), 'respool-pair-'));
        const spool = createSpool({ entries: entries(path), bodies: bodies(path) });
        const large = Buffer.alloc(300_000, 7);
        const got: number[] = [];
        const delivered = new Promise<void>((resolve) => {
          spool.handle('x', async (delivery) => {
            got.push((await delivery.body()).byteLength);
            if (got.length === 4) resolve();
          });
        });
        try {
          await spool.enqueue({ topic: 'x', body: large });
          await spool.enqueue({ topic: 'x', body: 'small' });
          // A stop closes the stores; the next call opens them again.
          await spool.stop();
          await spool.enqueue({ topic: 'x', body: large });
          await spool.start();
          await spool.enqueue({ topic: 'x', body: '' });
          await delivered;
          await spool.stop();
          expect(got.toSorted((a, b) => a - b)).toEqual([0, 5, 300_000, 300_000]);
          expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
        } finally {
          await spool.stop();
          await rm(path, { recursive: true, force: true });
        }
      });
    }
  }
});
