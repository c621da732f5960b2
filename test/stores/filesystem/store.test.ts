/** The files a person finds, what a crash leaves behind, and the options. */
import {
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { filesystem, type FilesystemOptions } from 'respool/stores/filesystem';
import { claimAll, entryFiles, fileOf, listed, setup } from './setup.ts';

describe('the files', () => {
  test('show state, due time, revision, attempts and holder in their path', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a', { topic: 'mail.send' })]);
    expect(await entryFiles(path)).toEqual([
      'incoming/00/a,r1,due-20260101T000000000Z,a0,n0,l0,at-20260101T000000000Z',
    ]);
    await claimAll(store);
    expect(await entryFiles(path)).toEqual([
      'active/00/a,r2,due-20260101T000001000Z,a1,n0,l0,at-20260101T000000000Z' +
        `,from-incoming,by-${store.instance}:1`,
    ]);
  });

  test('can be read with cat: one JSON line, the body, a trailer', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a', { bytes: Buffer.from('hello, world') })]);
    const text = await readFile(await fileOf(path, 'a'), 'utf8');
    const [head = '', body, trailer] = text.split('\n');
    expect(JSON.parse(head)).toMatchObject({ respool: 1, envelope: { id: 'a' } });
    expect(body).toBe('hello, world');
    expect(trailer).toMatch(/^ *respool-end .* END$/);
  });

  test('are for their owner only', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a')]);
    const file = await fileOf(path, 'a');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await stat(dirname(file))).mode & 0o777).toBe(0o700);
  });

  test('are renamed by a claim, a heartbeat and a release, not written anew', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a')]);
    const { ino } = await stat(await fileOf(path, 'a'));
    const [entry] = await claimAll(store);
    const { status } = entry ?? sampleEntry('a');
    const { holder = '', claimedFrom: _claimedFrom, ...rest } = status;
    const longer = { ...status, revision: 3, dueAt: SAMPLE_AT + 9_000 };
    await store.commit([{ id: 'a', revision: 2, holder, to: longer }]);
    expect((await stat(await fileOf(path, 'a'))).ino).toBe(ino);
    const released = { ...rest, revision: 4, state: 'deferred' as const };
    await store.commit([{ id: 'a', revision: 3, holder, to: released }]);
    expect((await stat(await fileOf(path, 'a'))).ino).toBe(ino);
    expect((await store.get('a'))?.status).toEqual(released);
  });

  test('of removed messages are written over by later ones, and gone after closing', async () => {
    const { path, store } = await setup();
    await store.insert([sampleEntry('a')]);
    const { ino } = await stat(await fileOf(path, 'a'));
    await store.commit([{ id: 'a', revision: 1, to: 'remove' }]);
    const inodes: number[] = [];
    for (const entry of sampleEntries(40, 'm')) {
      await store.insert([entry]);
      inodes.push((await stat(await fileOf(path, entry.envelope.id))).ino);
    }
    expect(inodes).toContain(ino);
    await store.close();
    expect(await readdir(join(path, 'spare'))).toEqual([]);
  });

  test('of removed messages are removed at once when no spare files are wanted', async () => {
    const { path, store } = await setup({ spareFiles: 0 });
    await store.insert([sampleEntry('a')]);
    await store.commit([{ id: 'a', revision: 1, to: 'remove' }]);
    await store.flush();
    expect(await readdir(join(path, 'spare'))).toEqual([]);
  });

  test('of many messages are spread over directories of about a thousand', async () => {
    const { path, store } = await setup({ sync: 'none' });
    await store.insert(sampleEntries(2_500, 'm'));
    const shards = await readdir(join(path, 'incoming'));
    expect(shards.length).toBeGreaterThanOrEqual(3);
    expect(shards.length).toBeLessThanOrEqual(5);
  });
});

describe('after a crash', () => {
  test('half written files are removed, entries are as they were', async () => {
    const { path, store, reopen } = await setup();
    await store.insert(sampleEntries(3, 'm'));
    const again = await reopen(() => writeFile(join(path, 'spare', '77'), '{"respool":1,"env'));
    expect(await listed(again)).toEqual({ ids: ['m-00000', 'm-00001', 'm-00002'], corrupt: [] });
    // They go when the store has nothing better to do.
    await expect.poll(() => readdir(join(path, 'spare'))).not.toContain('77');
  });

  test('of two revisions of a message the higher one counts, the other goes', async () => {
    const { path, store, reopen } = await setup();
    await store.insert([sampleEntry('a')]);
    const old = await fileOf(path, 'a');
    const kept = join(path, 'kept');
    await cp(old, kept);
    const to = { ...sampleEntry('a').status, revision: 2, notes: { said: 'new' } };
    await store.commit([{ id: 'a', revision: 1, to }]);
    const again = await reopen(() => rename(kept, old));
    expect((await again.get('a'))?.status).toEqual(to);
    expect(await entryFiles(path)).toHaveLength(1);
    await again.commit([{ id: 'a', revision: 2, to: 'remove' }]);
    expect((await listed(again)).ids).toEqual([]);
  });

  test('a damaged new revision gives way to the whole old one, and is kept aside', async () => {
    const { path, store, reopen } = await setup();
    await store.insert([sampleEntry('a')]);
    const old = await fileOf(path, 'a');
    await cp(old, join(path, 'kept'));
    const to = { ...sampleEntry('a').status, revision: 2, notes: { said: 'new' } };
    await store.commit([{ id: 'a', revision: 1, to }]);
    const again = await reopen(async () => {
      await truncate(await fileOf(path, 'a'), 100);
      await rename(join(path, 'kept'), old);
    });
    expect((await again.get('a'))?.status.revision).toBe(1);
    expect((await listed(again)).corrupt).toHaveLength(1);
  });

  test('a claim of the former owner ends when lost holders are looked for', async () => {
    const { store, reopen } = await setup();
    await store.insert(sampleEntries(2, 'm'));
    await claimAll(store, 1);
    const again = await reopen();
    expect(await again.expireLost?.(SAMPLE_AT)).toBe(1);
    const [lost] = await claimAll(again, 1);
    expect(lost).toMatchObject({ status: { lost: 1, attempts: 1, claimedFrom: 'active' } });
  });
});

test('a list of what is due is answered in order, page by page', async () => {
  const { store } = await setup({ sync: 'none' });
  const entries = sampleEntries(60, 'm', (index) => ({
    state: index % 2 === 0 ? 'archived' : 'deferred',
    dueAt: SAMPLE_AT + ((index * 7) % 30),
    priority: index % 10,
  }));
  await store.insert([...entries, sampleEntry('held', { state: 'hold', dueAt: null })]);
  const seen: string[] = [];
  let after: string | undefined;
  do {
    const page = await store.list({
      states: ['archived', 'archived'],
      dueBefore: SAMPLE_AT + 20,
      order: 'dueAt',
      limit: 7,
      ...(after === undefined ? {} : { after }),
    });
    seen.push(...page.entries.map(({ envelope }) => envelope.id));
    after = page.next;
  } while (after !== undefined);
  const expected = entries
    .filter(({ status }) => status.state === 'archived' && (status.dueAt ?? 0) < SAMPLE_AT + 20)
    .sort((a, b) => (a.status.dueAt ?? 0) - (b.status.dueAt ?? 0))
    .map(({ envelope }) => envelope.id);
  expect(new Set(seen)).toEqual(new Set(expected));
  expect(seen).toHaveLength(expected.length);
});

describe('the options', () => {
  test('have the defaults that are written down', async () => {
    const store = filesystem({ path: 'somewhere' });
    expect(store.name).toBe('filesystem');
    expect(store.traits).toEqual({
      processes: 'one',
      wakes: false,
      ordered: false,
      inlineMaxBytes: 262_144,
      durability: 'power-loss',
    });
  });

  test('"sync" decides what a power cut may cost', () => {
    const durability = (sync: 'full' | 'batch' | 'none') =>
      filesystem({ path: 'somewhere', sync }).traits.durability;
    expect([durability('full'), durability('batch')]).toEqual(['power-loss', 'power-loss']);
    expect(durability('none')).toBe('process');
  });

  test.each([
    [{ path: '' }],
    [{ path: 'x', sync: 'sometimes' }],
    [{ path: 'x', spareFiles: -1 }],
    [{ path: 'x', spareFiles: 1.5 }],
    [{ path: 'x', synch: 'full' }],
  ])('%j is refused', (options) => {
    expect(() => filesystem(options as FilesystemOptions)).toThrow(
      expect.objectContaining({ code: 'config.invalid' }),
    );
  });

  test('an id that is no file name is refused', async () => {
    const { store } = await setup();
    const entry = sampleEntry('a');
    const bad = { ...entry, envelope: { ...entry.envelope, id: '../../escaped' } };
    await expect(store.insert([bad])).rejects.toMatchObject({ code: 'message.invalid' });
  });

  test('a body above the inline limit is refused', async () => {
    const { store } = await setup();
    const entry = sampleEntry('a', { bytes: new Uint8Array(262_145) });
    await expect(store.insert([entry])).rejects.toMatchObject({ code: 'limit.exceeded' });
    await store.insert([sampleEntry('b', { bytes: new Uint8Array(262_144) })]);
    expect((await store.get('b'))?.inlineBody).toHaveLength(262_144);
  });
});

describe('a folder without a store', () => {
  /** What opening a store in a folder with these files comes to, and what is in it afterwards. */
  async function opened(files: readonly string[], folders: readonly string[] = []) {
    const path = await mkdtemp(join(tmpdir(), 'respool-foreign-'));
    onTestFinished(() => rm(path, { recursive: true, force: true }));
    for (const name of files) await writeFile(join(path, name), 'x');
    for (const name of folders) await mkdir(join(path, name));
    const store = filesystem({ path });
    const error = await store.open().then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    await store.close();
    return { error, names: (await readdir(path)).toSorted() };
  }

  test.each<[string, readonly string[], readonly string[]]>([
    ['empty', [], []],
    ['hidden files and those of a disk', ['.gitkeep', '.DS_Store'], ['lost+found']],
    ['a configuration', ['respool.config.yaml'], []],
    ['bodies in files', [], ['0a', 'ff']],
    ['what a first start left behind', ['lock', 'layout.json.draft'], ['incoming', 'records']],
  ])('with %s is made one', async (_, files, folders) => {
    const { error, names } = await opened(files, folders);
    expect(error).toBeUndefined();
    expect(names).toContain('layout.json');
  });

  test.each<[readonly string[], readonly string[], string]>([
    [['photo.jpg'], [], '"photo.jpg")'],
    [['respool.db', 'notes.txt'], ['photos'], '"notes.txt" and 2 more)'],
    [['respool.db'], [], '"respool.db")'],
    [['notes.txt', 'lock'], ['incoming', 'photos'], '"notes.txt" and 1 more)'],
  ])(
    'with %j and the folders %j is refused, and nothing is made there',
    async (files, folders, text) => {
      const { error, names } = await opened(files, folders);
      expect(error).toMatchObject({ code: 'config.invalid' });
      expect(String(error)).toContain('it is not a Respool store of this kind');
      expect(String(error)).toContain(text);
      expect(names).toEqual([...files, ...folders].toSorted());
    },
  );

  test('which a store has been made of before may have other files', async () => {
    const { path, store } = await setup();
    await store.close();
    await writeFile(join(path, 'notes.txt'), 'x');
    const again = filesystem({ path });
    await again.open();
    await again.close();
  });
});
