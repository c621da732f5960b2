/** Answers of the server may come late: what was learned meanwhile is not undone by them. */

import { expect, test } from 'vitest';
import { Cache, Catalog } from '../../../src/stores/nats/catalog.ts';
import { factsOf } from '../../../src/stores/nats/row.ts';
import { EntryWrites, type EntryWritesOptions } from '../../../src/stores/nats/entry-writes.ts';
import { sampleEntry } from 'respool/testkit';

test('an entry that comes while a look finds nothing stays known', async () => {
  const catalog = new Catalog();
  let answer = (): void => {};
  const last = () => new Promise<undefined>((resolve) => (answer = () => resolve(undefined)));
  const parts = { stream: { last }, catalog, cache: new Cache(0), prefix: '$KV.b.' };
  const keeper = new EntryWrites(parts as unknown as EntryWritesOptions);
  const look = keeper.read('a');
  catalog.put('a', 7, factsOf({ ...sampleEntry('a'), birth: 1 }, false));
  answer();
  expect(await look).toEqual({ kind: 'none' });
  expect(catalog.live('a')?.seq).toBe(7);
});

test('an entry that was known before a look finds nothing is forgotten', async () => {
  const catalog = new Catalog();
  const stream = { last: () => Promise.resolve(undefined) };
  const parts = { stream, catalog, cache: new Cache(0), prefix: '$KV.b.' };
  const keeper = new EntryWrites(parts as unknown as EntryWritesOptions);
  catalog.put('a', 7, factsOf({ ...sampleEntry('a'), birth: 1 }, false));
  expect(await keeper.read('a')).toEqual({ kind: 'none' });
  expect(catalog.live('a')).toBeUndefined();
});
