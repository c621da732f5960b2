import { expect, test } from 'vitest';
import { KEYS, openSealed, openWith } from './seal-setup.ts';

async function setup() {
  const { raw, inner } = await openWith();
  const store = await openSealed(inner);
  return { raw: raw.records, inner, records: store.records };
}

const TEXT = { $sealed: expect.stringMatching(/^v1:k1:/) as string };

test('values of records are sealed; kinds, keys, sequences and revisions are not', async () => {
  const { raw, records } = await setup();
  expect(await records.append('audit', { by: 'ada', reason: 'spam' })).toBe(1);
  await records.put('pause', 'mail.#', { by: 'bob' });
  expect(await raw.read('audit', 0, 9)).toEqual([{ sequence: 1, record: TEXT }]);
  expect(await raw.list('pause')).toEqual([{ key: 'mail.#', value: TEXT, revision: 1 }]);
  expect(await records.read('audit', 0, 9)).toEqual([
    { sequence: 1, record: { by: 'ada', reason: 'spam' } },
  ]);
});

test('records from before the seal are read as they are, whatever they look like', async () => {
  const { raw, records } = await setup();
  const values = [null, 'text', [1], {}, { by: 'ada' }, { $sealed: 'x', and: 'more' }];
  for (const value of values) await raw.append('audit', value);
  await raw.put('pause', 'k', { by: 'ada' });
  expect((await records.read('audit', 0, 9)).map(({ record }) => record)).toEqual(values);
  expect((await records.get('pause', 'k'))?.value).toEqual({ by: 'ada' });
});

test('a record whose key is missing says so in its place, and hides no other', async () => {
  const { inner, records } = await setup();
  await records.append('audit', { by: 'ada' });
  await records.put('pause', 'mail.#', { by: 'ada', at: 5 });
  const later = await openSealed(inner, { keys: { k2: KEYS.k2 } });
  await later.records.append('audit', { by: 'bob' });
  const [first, second] = await later.records.read('audit', 0, 9);
  expect(first).toMatchObject({
    sequence: 1,
    record: { at: 0, by: 'unknown', action: 'unreadable', ids: [] },
  });
  expect(JSON.stringify(first)).toContain('k1');
  expect(second?.record).toEqual({ by: 'bob' });
  expect(await later.records.list('pause')).toMatchObject([
    { key: 'mail.#', value: { by: 'unknown' }, revision: 1 },
  ]);
  const both = await openSealed(inner, { keys: KEYS, primary: 'k2' });
  const all = await both.records.read('audit', 0, 9);
  expect(all.map(({ record }) => record)).toEqual([{ by: 'ada' }, { by: 'bob' }]);
});

test('a value that was moved to another key, kind or form does not open', async () => {
  const { raw, records } = await setup();
  await records.put('pause', 'one', { by: 'ada' });
  await records.append('pause', { by: 'ada' });
  const value = (await raw.get('pause', 'one'))?.value;
  const record = (await raw.read('pause', 0, 1))[0]?.record;
  await raw.put('pause', 'two', value);
  await raw.put('other', 'one', value);
  await raw.put('pause', 'three', record);
  await raw.append('other', record);
  const unreadable = { action: 'unreadable' };
  expect((await records.get('pause', 'one'))?.value).toEqual({ by: 'ada' });
  expect((await records.get('pause', 'two'))?.value).toMatchObject(unreadable);
  expect((await records.get('pause', 'three'))?.value).toMatchObject(unreadable);
  expect((await records.get('other', 'one'))?.value).toMatchObject(unreadable);
  expect((await records.read('other', 0, 9))[0]?.record).toMatchObject(unreadable);
});

test('records are refused while their key cannot be had', async () => {
  const { inner, records } = await setup();
  await records.append('audit', { by: 'ada' });
  const keys = (id: string) => {
    if (id === 'k1') throw new Error('no route to the key service');
    return KEYS.k2;
  };
  const later = await openSealed(inner, { keys, primary: 'k2' });
  await expect(later.records.read('audit', 0, 9)).rejects.toMatchObject({
    code: 'store.unavailable',
  });
  await records.put('pause', 'mail', { by: 'ada' });
  await expect(later.records.get('pause', 'mail')).rejects.toMatchObject({
    code: 'store.unavailable',
  });
});

test('a list of records names them all, also while the key of one cannot be had', async () => {
  const { inner, records } = await setup();
  await records.put('pause', 'mail', { by: 'ada' });
  const keys = (id: string) => {
    if (id === 'k1') throw new Error('no route to the key service');
    return KEYS.k2;
  };
  const later = await openSealed(inner, { keys, primary: 'k2' });
  await later.records.put('pause', 'sms', { by: 'bob' });
  expect(await later.records.list('pause')).toMatchObject([
    { key: 'mail', value: { action: 'unreadable' } },
    { key: 'sms', value: { by: 'bob' } },
  ]);
});
