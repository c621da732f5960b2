/** Destinations under a seal: who asks by their names is answered as over any other store. */
import { describe, expect, test } from 'vitest';
import type { SealedStore } from 'respool/transforms';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import type { Entry, EntryStore, Envelope, Status } from 'respool';
import { claimOf, KEYS, openSealed, openWith, speaking } from './seal-setup.ts';

const TOKEN = /^sealed\.[\w-]{16}$/;
const BOTH = { keys: KEYS, primary: 'k2' };
const fromFunction = { keys: (id: string) => KEYS[id as keyof typeof KEYS], primary: 'k2' };
const ids = (entries: readonly Entry[]) => entries.map(({ envelope }) => envelope.id).sort();

async function found(store: EntryStore, id: string): Promise<Entry> {
  const entry = await store.get(id);
  if (entry === undefined) throw new Error(`there is no "${id}"`);
  return entry;
}

/** Puts something in the clear beside what is sealed, as an earlier version left it there. */
async function show(
  raw: EntryStore,
  id: string,
  shown: { readonly envelope?: Partial<Envelope>; readonly status?: Partial<Status> },
): Promise<void> {
  const { envelope, status } = await found(raw, id);
  const { revision } = status;
  const to = { ...status, ...shown.status, revision: revision + 1 };
  await raw.commit([{ id, revision, to, envelope: { ...envelope, ...shown.envelope } }]);
}

/** One of each form there may be for `mx1`, and some that go elsewhere. */
async function setup() {
  const { raw, inner } = await openWith();
  await raw.insert([speaking('plain', { destination: 'mx1' })]);
  const first = await openSealed(inner);
  await first.insert([
    speaking('half'),
    speaking('old', { destination: 'mx1' }),
    speaking('old-other', { destination: 'mx2' }),
  ]);
  await show(raw, 'half', { envelope: { destination: 'mx1' } });
  const store = await openSealed(inner, BOTH);
  await store.insert([
    sampleEntry('new', { destination: 'mx1' }),
    sampleEntry('new-other', { destination: 'mx2' }),
    sampleEntry('nowhere'),
  ]);
  return { raw, inner, store };
}

const OF_MX1 = ['half', 'new', 'old', 'plain'];
const OTHERS = ['new-other', 'nowhere', 'old-other'];

describe('in the store', () => {
  test('a destination is a token, the same for the same destination under one key', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    const parts = [{ destination: 'mx1' }, { destination: 'mx1' }, { destination: 'mx2' }];
    await store.insert(parts.map((one, index) => sampleEntry(`m${index}`, one)));
    const stored = await Promise.all(['m0', 'm1', 'm2'].map((id) => found(raw, id)));
    const tokens = stored.map(({ envelope }) => envelope.destination ?? '');
    for (const token of tokens) expect(token).toMatch(TOKEN);
    expect(tokens[1]).toBe(tokens[0]);
    expect(tokens[2]).not.toBe(tokens[0]);
    expect(await store.get('m2')).toEqual(sampleEntry('m2', { destination: 'mx2' }));
  });

  test('another token that was put there changes nothing of where a message goes', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    await store.insert([sampleEntry('a', { destination: 'mx1' })]);
    await show(raw, 'a', { envelope: { destination: 'mx9' } });
    expect((await found(store, 'a')).envelope.destination).toBe('mx1');
  });

  test('one that is changed or taken away reads as it was written', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    await store.insert([speaking('a', { destination: 'mx1' })]);
    const { envelope, status } = await found(store, 'a');
    const changed = { ...envelope, destination: 'mx2' };
    const second = { ...status, revision: 2 };
    await store.commit([{ id: 'a', revision: 1, to: second, envelope: changed }]);
    expect((await found(store, 'a')).envelope).toEqual(changed);
    const { destination: _gone, ...without } = changed;
    const third = { ...status, revision: 3 };
    await store.commit([{ id: 'a', revision: 2, to: third, envelope: without }]);
    expect((await found(store, 'a')).envelope).toEqual(without);
    expect((await found(raw, 'a')).envelope).not.toHaveProperty('destination');
  });
});

describe('over a change of the key', () => {
  test('a claim leaves out a destination in every form, and takes it in every form', async () => {
    const { store } = await setup();
    const rest = await store.claim(claimOf({ exceptDestinations: ['mx1'] }));
    expect(ids(rest)).toEqual(OTHERS);
    const taken = await store.claim(claimOf({ holder: 'h:2', exceptDestinations: ['mx2'] }));
    expect(ids(taken)).toEqual(OF_MX1);
    expect(new Set(taken.map(({ envelope }) => envelope.destination))).toEqual(new Set(['mx1']));
  });

  test('the next due time leaves it out, too', async () => {
    const { store } = await setup();
    await store.claim(claimOf({ exceptDestinations: ['mx1'] }));
    const filter = { lane: 'delivery', states: ['incoming', 'deferred'] } as const;
    expect(await store.nextDueAt({ ...filter, exceptDestinations: ['mx2'] })).toBe(SAMPLE_AT);
    expect(await store.nextDueAt({ ...filter, exceptDestinations: ['mx1'] })).toBeNull();
  });

  test('keys that come from variables are there for the first claim', async () => {
    const { inner } = await setup();
    process.env['RESPOOL_TEST_SEAL_K1'] = KEYS.k1;
    const keys = { k1: 'env:RESPOOL_TEST_SEAL_K1', k2: KEYS.k2 };
    const store = await openSealed(inner, { keys, primary: 'k2' });
    delete process.env['RESPOOL_TEST_SEAL_K1'];
    expect(ids(await store.claim(claimOf({ exceptDestinations: ['mx1'] })))).toEqual(OTHERS);
  });

  test('with keys of a function, a claim leaves it out once the old key was used', async () => {
    const { inner } = await setup();
    const store = await openSealed(inner, fromFunction);
    await store.get('old-other');
    expect(ids(await store.claim(claimOf({ exceptDestinations: ['mx1'] })))).toEqual(OTHERS);
  });

  test('a key that is missing keeps nobody from claiming the others', async () => {
    const { inner } = await setup();
    const keys = { k1: 'env:RESPOOL_TEST_NO_SUCH_KEY', k2: KEYS.k2 };
    const store = await openSealed(inner, { keys, primary: 'k2' });
    const taken = await store.claim(claimOf({ exceptDestinations: ['mx1'] }));
    expect(ids(taken)).toEqual(['new-other', 'nowhere']);
  });

  const listed = async (store: SealedStore, query: object) =>
    ids((await store.list({ limit: 100, ...query })).entries);

  test.each([
    ['a list of keys', BOTH],
    ['a function', fromFunction],
  ])('a list by destination finds all, with keys from %s', async (_, options) => {
    const { inner } = await setup();
    const store = await openSealed(inner, options);
    expect(await listed(store, { destination: 'mx1' })).toEqual(OF_MX1);
    expect(await listed(store, { destination: ['mx1', 'mx2'] })).toHaveLength(6);
    expect(await listed(store, { destination: 'mx' })).toEqual([]);
    const failed = { destination: 'mx1', code: 'smtp.550' };
    expect(await listed(store, failed)).toEqual(['half', 'old', 'plain']);
    expect(await listed(store, { destination: 'mx1', states: ['incoming'] })).toEqual(['new']);
  });

  test('a list by destination keeps its order and its limit, page after page', async () => {
    const { inner } = await openWith();
    const destination = (index: number) => ({ destination: `mx${index % 3}` });
    await (await openSealed(inner)).insert(sampleEntries(30, 'a', destination));
    for (const options of [BOTH, fromFunction]) {
      const store = await openSealed(inner, options);
      const seen: string[] = [];
      let next: string | undefined;
      do {
        const after = next === undefined ? {} : { after: next };
        const query = { destination: 'mx1', descending: true, limit: 4, ...after };
        const page = await store.list(query);
        expect(page.entries.length).toBeLessThanOrEqual(4);
        seen.push(...page.entries.map(({ envelope }) => envelope.id));
        next = page.next;
      } while (next !== undefined);
      expect(seen).toHaveLength(10);
      expect(seen).toEqual([...seen].sort().reverse());
    }
  });

  test('counts by destination tell the names, and counts of one find all its forms', async () => {
    const { inner, store } = await setup();
    const fresh = await openSealed(inner, BOTH);
    for (const one of [store, fresh]) {
      const rows = await one.tally('destination', {});
      expect(rows.map(({ key, count }) => `${key}: ${count}`).sort()).toEqual(['mx1: 4', 'mx2: 2']);
      const states = await one.tally('state', { destination: 'mx1' });
      expect(new Map(states.map(({ key, count }) => [key, count]))).toEqual(
        new Map([
          ['incoming', 1],
          ['deferred', 3],
        ]),
      );
      const failed = await one.tally('destination', { destination: 'mx1', code: 'smtp.550' });
      expect(failed).toMatchObject([{ key: 'mx1', count: 3 }]);
    }
  });

  test('a destination whose key is gone is counted as its token', async () => {
    const { inner } = await setup();
    const store = await openSealed(inner, { keys: { k2: KEYS.k2 } });
    const rows = await store.tally('destination', {});
    const names = rows.map(({ key }) => (TOKEN.test(key) ? 'token' : key)).sort();
    expect(names).toEqual(['mx1', 'mx2', 'token', 'token']);
  });
});

describe('what an earlier version left in the clear', () => {
  test('makes an entry old, and a commit as it is seals it', async () => {
    const { raw, store } = await setup();
    await store.insert([speaking('told', { postponed: 1 })]);
    await show(raw, 'told', { status: { policy: 'patient', replays: 2 } });
    const { entries } = await store.list({ limit: 100 });
    const old = entries.filter((entry) => store.isSealOld(entry));
    expect(ids(old)).toEqual(['half', 'old', 'old-other', 'plain', 'told']);
    const changes = old.map(({ envelope, status }) => {
      const { revision } = status;
      return { id: envelope.id, revision, to: { ...status, revision: revision + 1 }, envelope };
    });
    await store.commit(changes);
    for (const { envelope } of old) {
      const stored = await found(raw, envelope.id);
      expect(stored.status).toMatchObject({ policy: null, postponed: 0, replays: 0 });
      if (envelope.destination === undefined) continue;
      expect(stored.envelope.destination).toMatch(TOKEN);
      expect((await found(store, envelope.id)).envelope).toEqual(envelope);
      expect(store.isSealOld(await found(store, envelope.id))).toBe(false);
    }
    const told = { policy: 'patient', postponed: 1, replays: 2 };
    expect((await found(store, 'told')).status).toMatchObject(told);
  });

  test('goes with the next step of a message, whatever that is about', async () => {
    const { raw, store } = await setup();
    const [taken] = await store.claim(claimOf({ ids: ['half'] }));
    if (taken === undefined) throw new Error('nothing was claimed');
    const { revision, ...status } = taken.status;
    const to = { ...status, revision: revision + 1, dueAt: SAMPLE_AT + 5 };
    await store.commit([{ id: 'half', revision, holder: 'h:1', to }]);
    expect((await found(raw, 'half')).envelope.destination).toMatch(TOKEN);
  });
});

describe('a status', () => {
  test('hides its policy and what no store counts, and reads as it was', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    const counted = { attempts: 4, lost: 1, notices: 5 };
    const parts = { policy: 'patient', postponed: 3, replays: 2, ...counted };
    await store.insert([sampleEntry('a', parts)]);
    const { status } = await found(raw, 'a');
    expect(status).toMatchObject({ policy: null, postponed: 0, replays: 0, ...counted });
    expect(status.notes).toEqual({ $sealed: expect.stringMatching(/^v1:k1:/) as string });
    expect(await store.get('a')).toEqual(sampleEntry('a', parts));
  });
});
