/** Bodies as files: what a crash leaves, which refs are taken, and several processes at once. */
import { mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { filesystemBodies, type FilesystemBodiesOptions } from 'respool/stores/filesystem';
import type { BodyStore, StoredBody } from 'respool';
import { systemClock } from '../../time.ts';

const cleanups: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function setup() {
  const path = await mkdtemp(join(tmpdir(), 'respool-bodies-'));
  cleanups.push(() => rm(path, { recursive: true, force: true }));
  return { path, bodies: await openBodies(path) };
}

async function openBodies(path: string): Promise<BodyStore> {
  const bodies = filesystemBodies({ path });
  await bodies.open();
  cleanups.push(() => bodies.close());
  return bodies;
}

async function* chunks(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

async function refsBefore(bodies: BodyStore, at: number): Promise<readonly StoredBody[]> {
  const refs: StoredBody[] = [];
  for await (const each of bodies.refs(at)) refs.push(each);
  return refs;
}

test('a body is a file under its ref, for its owner only', async () => {
  const { path, bodies } = await setup();
  await bodies.put('b-1', chunks('hello ', 'world'));
  const names = await readdir(path, { recursive: true });
  expect(names.filter((name) => name.includes('/'))).toEqual([
    expect.stringMatching(/^[0-9a-f]{2}\/b-1$/),
  ]);
  const { mode, size } = await stat(join(path, names.find((name) => name.includes('/')) ?? ''));
  expect([mode & 0o777, size]).toEqual([0o600, 11]);
});

test('what a crash left half written is listed by age and can be removed', async () => {
  const { path, bodies } = await setup();
  await bodies.put('b-1', chunks('x'));
  const [shard = ''] = await readdir(path);
  const part = 'b-1.abcdefghijkl.part';
  await writeFile(join(path, shard, part), 'half');
  const longAgo = (systemClock.now() - 86_400_000) / 1_000;
  await utimes(join(path, shard, part), longAgo, longAgo);
  const old = await refsBefore(bodies, systemClock.now() - 3_600_000);
  expect(old).toEqual([{ ref: part, writtenAt: Math.floor(longAgo * 1_000) }]);
  await bodies.remove(old.map(({ ref }) => ref));
  expect(await readdir(join(path, shard))).toEqual(['b-1']);
});

test.each(['', '..', '../../etc/passwd', 'a/b', 'A', '.hidden', 'a.part', 'x'.repeat(129), 'ü'])(
  'the ref %j is refused everywhere',
  async (ref) => {
    const { bodies } = await setup();
    const refused = { code: 'message.invalid' };
    await expect(bodies.put(ref, chunks('x'))).rejects.toMatchObject(refused);
    await expect(bodies.remove([ref])).rejects.toMatchObject(refused);
    const reading = async () => {
      for await (const _ of bodies.get(ref)) break;
    };
    await expect(reading()).rejects.toMatchObject(refused);
  },
);

test('two stores on one folder see each other, and one ref has one body', async () => {
  const { path, bodies } = await setup();
  const other = await openBodies(path);
  const results = await Promise.allSettled([
    bodies.put('same', chunks('one')),
    other.put('same', chunks('two')),
    other.put('else', chunks('three')),
  ]);
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
  const later = systemClock.now() + 60_000;
  const seen = await refsBefore(bodies, later);
  expect(seen.map(({ ref }) => ref).sort()).toEqual(['else', 'same']);
});

test('closing waits for puts that are on their way', async () => {
  const { path, bodies } = await setup();
  const put = bodies.put('b-1', chunks('hello'));
  await bodies.close();
  await put;
  const again = await openBodies(path);
  expect(await refsBefore(again, systemClock.now() + 60_000)).toMatchObject([{ ref: 'b-1' }]);
});

test.each([[{ path: '' }], [{ path: 'x', sync: 'often' }], [{ path: 'x', size: 1 }]])(
  'the options %j are refused',
  (options) => {
    expect(() => filesystemBodies(options as FilesystemBodiesOptions)).toThrow(
      expect.objectContaining({ code: 'config.invalid' }),
    );
  },
);
