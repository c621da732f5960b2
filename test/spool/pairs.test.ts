/** R37, R38: any entry store goes with any body store, made by code. */
import { describe, expect, test } from 'vitest';
import { sqlite, sqliteBodies } from 'respool/stores/sqlite';
import { s3 } from 'respool/stores/s3';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import { nats, natsBodies } from 'respool/stores/nats';
import { memory, memoryBodies } from 'respool/stores/memory';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { type BodyStore, createSpool, type EntryStore } from 'respool';
import { BODIES, ENTRIES, usePlaces } from './places.ts';

const places = usePlaces();

/** The folder, schema or bucket of a fresh address. */
function fresh(kind: string, holds: 'entries' | 'bodies'): string {
  const address = places.address(kind, holds);
  return (
    /^(?:file|sqlite):(.+)/.exec(address)?.[1] ?? /(?:schema|bucket)=(\w+)/.exec(address)?.[1] ?? ''
  );
}

/** All pairs connect at once, which takes a busy machine longer than the default of 5 s. */
const connectTimeout = '1m';

const MAKE_ENTRIES: Readonly<Record<string, () => EntryStore>> = {
  memory: () => memory(),
  filesystem: () => filesystem({ path: fresh('filesystem', 'entries') }),
  sqlite: () => sqlite({ path: fresh('sqlite', 'entries') }),
  postgres: () =>
    postgres({
      url: places.server('postgres'),
      schema: fresh('postgres', 'entries'),
      connectTimeout,
    }),
  nats: () => nats({ url: places.server('nats'), bucket: fresh('nats', 'entries') }),
};
const MAKE_BODIES: Readonly<Record<string, () => BodyStore>> = {
  memory: () => memoryBodies(),
  filesystem: () => filesystemBodies({ path: fresh('filesystem', 'bodies') }),
  sqlite: () => sqliteBodies({ path: fresh('sqlite', 'bodies') }),
  postgres: () =>
    postgresBodies({
      url: places.server('postgres'),
      schema: fresh('postgres', 'bodies'),
      connectTimeout,
    }),
  nats: () => natsBodies({ url: places.server('nats'), bucket: fresh('nats', 'bodies') }),
  s3: () => s3({ endpoint: places.server('s3'), bucket: places.freshName(), createBucket: true }),
};

describe.concurrent('entries and bodies', () => {
  for (const entriesName of ENTRIES) {
    for (const bodiesName of BODIES) {
      test(`in ${entriesName} and ${bodiesName} carry a message, also after a restart`, async () => {
        const entries = MAKE_ENTRIES[entriesName]?.();
        const bodies = MAKE_BODIES[bodiesName]?.();
        const spool = createSpool({ entries: entries as EntryStore, bodies: bodies as BodyStore });
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
          expect(await spool.count()).toMatchObject({ incoming: 2 });
          await spool.start();
          await spool.enqueue({ topic: 'x', body: large });
          await spool.enqueue({ topic: 'x', body: '' });
          await delivered;
          await spool.stop();
          expect(got.toSorted((a, b) => a - b)).toEqual([0, 5, 300_000, 300_000]);
          expect(await spool.count()).toMatchObject({ incoming: 0, active: 0, deferred: 0 });
        } finally {
          await spool.stop();
        }
      });
    }
  }
});
