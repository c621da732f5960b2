/** Stores by their addresses: which, where, and with which options (R202). */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { memory, memoryBodies } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { type Config, createSpool } from 'respool';
import { storesOf } from '../../src/config/open/stores.ts';
import { folderWith } from './setup.ts';

const BIG = Buffer.alloc(100_000, 'x');

/** Puts a large message down, reads it again and says which files are there. */
async function useStores(config: Config, files: readonly string[]) {
  const folder = await folderWith();
  const { entries, bodies, place, bodiesPlace } = await storesOf(config, folder);
  const spool = createSpool({ entries, bodies });
  const { id } = await spool.enqueue({ topic: 'a', body: BIG });
  const chunks: Uint8Array[] = [];
  for await (const chunk of await spool.body(id)) chunks.push(chunk);
  expect(Buffer.concat(chunks).equals(BIG)).toBe(true);
  const there = files.filter((file) => existsSync(path.join(folder, file)));
  await spool.stop();
  const below = ({ kind, path: at }: { kind: string; path?: string }) => ({
    kind,
    ...(at === undefined ? {} : { path: path.relative(folder, at).split(path.sep).join('/') }),
  });
  return { there, place: below(place), bodiesPlace: below(bodiesPlace) };
}

describe('an address makes the store that it names', () => {
  const cases: [string, Config, { files: string[]; place: object; bodiesPlace: object }][] = [
    [
      'nothing: as createSpool',
      {},
      {
        files: ['respool/respool.db', 'respool/bodies'],
        place: { kind: 'sqlite', path: 'respool' },
        bodiesPlace: { kind: 'file', path: 'respool/bodies' },
      },
    ],
    [
      'sqlite:',
      { store: 'sqlite:./a' },
      {
        files: ['a/respool.db', 'a/bodies'],
        place: { kind: 'sqlite', path: 'a' },
        bodiesPlace: { kind: 'file', path: 'a/bodies' },
      },
    ],
    [
      'file:',
      { store: 'file:b' },
      {
        files: ['b/entries', 'b/bodies'],
        place: { kind: 'file', path: 'b/entries' },
        bodiesPlace: { kind: 'file', path: 'b/bodies' },
      },
    ],
    [
      'memory:',
      { store: 'memory:' },
      { files: [], place: { kind: 'memory' }, bodiesPlace: { kind: 'memory' } },
    ],
    [
      'both in SQLite, apart',
      { entries: 'sqlite:./c', bodies: 'sqlite:./c' },
      {
        files: ['c/respool.db', 'c/bodies.db'],
        place: { kind: 'sqlite', path: 'c' },
        bodiesPlace: { kind: 'sqlite', path: 'c' },
      },
    ],
    [
      'files and memory, apart',
      { entries: 'file:./d', bodies: 'memory:' },
      {
        files: ['d'],
        place: { kind: 'file', path: 'd' },
        bodiesPlace: { kind: 'memory' },
      },
    ],
    [
      'memory and files, apart',
      { entries: 'memory:', bodies: 'file:./e' },
      { files: ['e'], place: { kind: 'memory' }, bodiesPlace: { kind: 'file', path: 'e' } },
    ],
    [
      'stores that are given',
      { entries: memory(), bodies: memoryBodies() },
      { files: [], place: { kind: 'given' }, bodiesPlace: { kind: 'given' } },
    ],
  ];
  test.each(cases)('%s', async (_, config, { files, place, bodiesPlace }) => {
    const all = cases.flatMap(([, , expected]) => expected.files);
    expect(await useStores(config, all)).toEqual({ there: files, place, bodiesPlace });
  });

  test('an absolute path is taken as it is', async () => {
    const folder = await folderWith();
    const { place } = await storesOf({ store: `file:${folder}/x` }, '/elsewhere');
    expect(place.path).toBe(path.join(folder, 'x/entries'));
    const slashes = await storesOf({ store: `file://${folder}/x` }, '/elsewhere');
    expect(slashes.place.path).toBe(path.join(folder, 'x/entries'));
  });
});

describe('options of an address reach the store', () => {
  const promises = async (store: string) => {
    const { entries, bodies } = await storesOf({ store }, '/nowhere');
    return [entries.traits.durability, bodies.traits.durability];
  };

  test('synchronous of SQLite', async () => {
    expect(await promises('sqlite:x')).toEqual(['power-loss', 'power-loss']);
    expect(await promises('sqlite:x?synchronous=normal')).toEqual(['process', 'power-loss']);
  });

  test('sync of files, for entries and bodies', async () => {
    expect(await promises('file:x?sync=full')).toEqual(['power-loss', 'power-loss']);
    expect(await promises('file:x?sync=none')).toEqual(['process', 'process']);
  });

  test('numbers and truth are read as such, and checked by the store', async () => {
    const refused = async (store: string) =>
      storesOf({ store }, '/nowhere').then(
        () => 'taken',
        (error: Error) => error.message,
      );
    const good = 'sqlite:x?thread=true&cacheBytes=2097152&busyTimeout=5s&autoCheckpointPages=100';
    expect(await refused(good)).toBe('taken');
    expect(await refused('sqlite:x?thread=maybe')).toContain('true | false | auto');
    expect(await refused('sqlite:x?cacheBytes=1')).toContain('"store?cacheBytes"');
    expect(await refused('sqlite:x?busyTimeout=2d')).toContain('"store?busyTimeout"');
    expect(await refused('file:x?spareFiles=0')).toBe('taken');
    expect(await refused('file:x?spareFiles=-1')).toContain('"store?spareFiles"');
    expect(await refused('file:x?clock=1')).toContain('"store?clock"');
  });
});
