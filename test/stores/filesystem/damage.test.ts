/** Damaged files are put aside, told of and never delivered; their neighbours do not notice. */
import { cp, open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntries, sampleEntry } from 'respool/testkit';
import { claimAll, fileOf, listed, setup } from './setup.ts';

describe('damaged files', () => {
  async function flip(file: string, at: number): Promise<void> {
    const handle = await open(file, 'r+');
    const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, at);
    await handle.write(Buffer.of((buffer[0] ?? 0) ^ 1), 0, 1, at);
    await handle.close();
  }

  test.each([
    ['cut off', (file: string) => truncate(file, 1_000)],
    ['emptied', (file: string) => truncate(file, 0)],
    ['changed by one bit in its head', (file: string) => flip(file, 40)],
    ['changed by one bit in its trailer', (file: string) => flip(file, 4_095 - 30)],
    ['replaced by something else', (file: string) => writeFile(file, 'hello')],
  ])('that were %s are put aside when the store opens; the others are fine', async (_, damage) => {
    const { path, store, reopen } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    const again = await reopen(async () => damage(await fileOf(path, 'm-00001')));
    const { ids, corrupt } = await listed(again);
    expect(ids).toEqual(['m-00000', 'm-00002']);
    expect(corrupt).toMatchObject([{ id: 'm-00001' }]);
    expect(corrupt[0]?.where.startsWith(join(path, 'corrupt'))).toBe(true);
    expect((await stat(corrupt[0]?.where ?? '')).isFile()).toBe(true);
    const reason: unknown = JSON.parse(await readFile(`${corrupt[0]?.where}.reason`, 'utf8'));
    expect(reason).toMatchObject({ id: 'm-00001', reason: corrupt[0]?.reason });
    expect((await claimAll(again)).map(({ envelope }) => envelope.id)).toEqual(ids);
  });

  test('that a claim meets are put aside; the claim goes on without them', async () => {
    const { path, store } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    await flip(await fileOf(path, 'm-00001'), 50);
    const taken = await claimAll(store);
    expect(taken.map(({ envelope }) => envelope.id)).toEqual(['m-00000', 'm-00002']);
    expect((await listed(store)).corrupt).toMatchObject([{ id: 'm-00001' }]);
    expect(await store.tally('state', {})).toMatchObject([{ key: 'active', count: 2 }]);
  });

  test('that a change meets are put aside, and the change is stale', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a'), sampleEntry('b')]);
    await flip(await fileOf(path, 'a'), 50);
    const changes = ['a', 'b'].map((id) => {
      const to = { ...sampleEntry(id).status, revision: 2, notes: { n: '1' } };
      return { id, revision: 1, to };
    });
    expect(await store.commit(changes)).toEqual(['stale', 'done']);
    expect((await listed(store)).corrupt).toMatchObject([{ id: 'a' }]);
  });

  test('that a list meets are told of on the page and kept from the next', async () => {
    const { path, store } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    await flip(await fileOf(path, 'm-00001'), 50);
    const { ids, corrupt } = await listed(store);
    expect(ids).toEqual(['m-00000', 'm-00002']);
    expect(corrupt).toMatchObject([{ id: 'm-00001' }]);
    await expect(store.get('m-00001')).rejects.toMatchObject({ code: 'store.corrupt' });
  });

  test('that somebody took away are told of and not claimed', async () => {
    const { path, store } = await setup();
    await store.insert(sampleEntries(2, 'm'));
    await rm(await fileOf(path, 'm-00000'));
    expect(await claimAll(store)).toMatchObject([{ envelope: { id: 'm-00001' } }]);
    expect((await listed(store)).corrupt).toMatchObject([{ reason: 'the file is gone' }]);
  });

  test('with a name that we do not give are put aside', async () => {
    const { path, store, reopen } = await setup();
    await store.insert([sampleEntry('a')]);
    const again = await reopen(async () => {
      await writeFile(join(path, 'incoming', '00', 'notes.txt'), 'mine');
      await cp(await fileOf(path, 'a'), join(path, 'incoming', '00', 'copy of a'));
    });
    const { ids, corrupt } = await listed(again);
    expect(ids).toEqual(['a']);
    expect(corrupt).toHaveLength(2);
  });
});
