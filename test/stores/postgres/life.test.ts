/** Opening and closing, in whatever order they come: nothing is left open. */

import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { postgres, postgresBodies } from 'respool/stores/postgres';
import type { BodyStore, EntryStore } from 'respool';
import { withService } from '../../services/index.ts';
import { atEnd, ownSchema, serverUrl } from './setup.ts';

type Store = EntryStore | BodyStore;

async function setup(kind: string) {
  const pool = new pg.Pool({ connectionString: await serverUrl(), max: 2 });
  atEnd(() => pool.end());
  const options = { pool, schema: ownSchema() };
  const store: Store = kind === 'entries' ? postgres(options) : postgresBodies(options);
  const use = async (): Promise<unknown> =>
    'insert' in store ? store.get('a') : store.remove(['a']);
  // Whoever has opened it listens once.
  return { store, use, listeners: () => pool.listenerCount('error') };
}

withService('postgres', () => {
  // Regression: each of two opens at once opened a pool, and one of them was never closed.
  describe.each(['entries', 'bodies'])('a store of %s', (kind) => {
    test('that is opened twice at once is open once, and closed by one close', async () => {
      const { store, use, listeners } = await setup(kind);
      await Promise.all([store.open(), store.open()]);
      await store.open();
      expect(listeners()).toBe(1);
      await use();
      await store.close();
      expect(listeners()).toBe(0);
      await store.close();
    });

    test('that is closed while it opens is closed in the end, and can be opened again', async () => {
      const { store, use, listeners } = await setup(kind);
      await Promise.all([store.open(), store.close()]);
      expect(listeners()).toBe(0);
      await expect(use()).rejects.toThrow(/not open/);
      await store.open();
      await use();
      const closing = store.close();
      await expect(use()).rejects.toThrow(/not open/);
      await closing;
    });
  });
});
