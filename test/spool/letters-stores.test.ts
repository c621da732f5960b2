/** Replays and kept copies in every store: another topic, another body, what comes in archived. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PermanentError, type Spool } from 'respool';
import { describe, expect, test } from 'vitest';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import { ENTRIES, usePlaces } from './places.ts';
import { all, bytesOf } from './setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const LARGE = Buffer.alloc(60_000, 'large ');
const places = usePlaces();

/** Does something with a spool on a fresh place of this kind. */
async function withSpool(kind: string, work: (spool: Spool) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-letters-'));
  const config = {
    entries: places.address(kind, 'entries'),
    bodies: places.address(kind, 'bodies'),
  };
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(config));
  const { spool } = await createConfiguredSpool(await loadConfig({ cwd: folder, env: {} }));
  try {
    await work(spool);
  } finally {
    await spool.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

describe.each(ENTRIES)('in %s', (kind) => {
  test('a replay under another topic, with another body, is found and delivered there', async () => {
    await withSpool(kind, async (spool) => {
      const { id } = await spool.enqueue({ topic: 'old.topic', body: LARGE });
      await spool.process(id, () => {
        throw new PermanentError('x', 'no');
      });
      const body = Buffer.from('mended');
      const order = { replay: 'r1', topic: 'new.topic', change: { body } };
      expect(await spool.operator({ by: 'ops' }).replay([id], order)).toEqual([
        { id, result: 'done' },
      ]);
      expect(await all(spool.list({ topic: 'old.*' }))).toEqual([]);
      const [found] = await all(spool.list({ topic: 'new.*', state: 'incoming' }));
      expect(found?.status).toMatchObject({ replays: 1, attempts: 0, lane: 'delivery' });
      expect(await spool.operator({ by: 'ops' }).tally('topic')).toMatchObject([
        { key: 'new.topic', count: 1 },
      ]);
      const got = Promise.withResolvers<string>();
      spool.handle('new.topic', async (delivery) => got.resolve(await delivery.text()));
      await spool.start();
      expect(await got.promise).toBe('mended');
    });
  });

  test('copies lie archived, are counted there, and are never due', async () => {
    await withSpool(kind, async (spool) => {
      const copy = { id: 'x', topic: 'rabbit.q', headers: {}, reason: 'removed' };
      await spool.operator({ by: 'ops' }).keep([
        { ...copy, body: Buffer.from('small') },
        { ...copy, body: LARGE },
      ]);
      expect(await spool.count()).toMatchObject({ archived: 2, incoming: 0, active: 0 });
      expect(await internalsOf(spool).nextDueAt()).toBeNull();
      const found = await all(spool.list({ state: 'archived', code: 'letter.kept' }));
      const sizes = await Promise.all(
        found.map(
          async ({ envelope }) => (await bytesOf(await spool.body(envelope.id))).byteLength,
        ),
      );
      expect(sizes.toSorted((a, b) => a - b)).toEqual([5, LARGE.byteLength]);
      const [first] = found.map(({ envelope }) => envelope.id);
      expect(
        await spool.operator({ by: 'ops' }).replay([first ?? ''], { replay: 'r1' }),
      ).toMatchObject([{ result: 'done' }]);
      expect(await spool.count()).toMatchObject({ archived: 1, incoming: 1 });
    });
  });
});
