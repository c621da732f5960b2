import { describe, expect, test } from 'vitest';
import type { SealOptions } from 'respool/transforms';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import {
  type Entry,
  type EntryStore,
  type Envelope,
  failure,
  RespoolError,
  type Status,
} from 'respool';
import { operatorMove } from '../../src/core/operator.ts';
import { claimOf, KEYS, openSealed, openWith, speaking } from './seal-setup.ts';

/** Replaces what lies in the store, as somebody who can write to it. */
async function tamper(
  raw: EntryStore,
  id: string,
  edit: { readonly envelope?: Partial<Envelope>; readonly status?: Partial<Status> },
): Promise<void> {
  const stored = await found(raw, id);
  const { revision } = stored.status;
  const to = { ...stored.status, ...edit.status, revision: revision + 1 };
  const envelope = { ...stored.envelope, ...edit.envelope };
  expect(await raw.commit([{ id, revision, to, envelope }])).toEqual(['done']);
}

async function found(store: EntryStore, id: string): Promise<Entry> {
  const entry = await store.get(id);
  if (entry === undefined) throw new Error(`there is no "${id}"`);
  return entry;
}

/** Held, with the attempt given back. */
const held = (code: string) =>
  expect.objectContaining({
    state: 'hold',
    attempts: 0,
    dueAt: null,
    because: { code, text: expect.any(String) as string, by: 'engine' },
  }) as Status;

const ids = (entries: readonly Entry[]) => entries.map(({ envelope }) => envelope.id);

describe('what was changed in the store', () => {
  async function setup() {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    await store.insert([speaking('a'), speaking('b')]);
    const [a, b] = [await found(raw, 'a'), await found(raw, 'b')];
    return { raw, store, a, b };
  }

  test('by any one character of a sealed text does not open', async () => {
    const { raw, store, a } = await setup();
    const text = a.envelope.headers['$sealed'] ?? '';
    for (let at = 0; at < text.length; at += 1) {
      const other = text[at] === 'A' ? 'B' : 'A';
      const $sealed = text.slice(0, at) + other + text.slice(at + 1);
      await tamper(raw, 'a', { envelope: { headers: { $sealed } } });
      await expect(store.get('a'), `at ${at}`).rejects.toMatchObject({ code: 'store.corrupt' });
    }
    await tamper(raw, 'a', { envelope: a.envelope });
    expect((await found(store, 'a')).envelope).toEqual(speaking('a').envelope);
  });

  test.each([
    ['cut short', (text: string) => text.slice(0, -4)],
    ['longer', (text: string) => `${text}AAAA`],
    ['empty', () => ''],
    ['of nothing but a key', () => 'v1:k1:'],
    ['of another version', (text: string) => text.replace('v1', 'v2')],
    ['not a text', () => 7 as unknown as string],
    ['spelled in another way', (text: string) => `${text}=`],
  ])('so that it is %s does not open', async (_, edit) => {
    const { raw, store, a } = await setup();
    const $sealed = edit(a.status.notes['$sealed'] ?? '');
    await tamper(raw, 'a', { status: { notes: { $sealed } } });
    await expect(store.get('a')).rejects.toMatchObject({ code: 'store.corrupt' });
  });

  test('by moving a sealed text to another message does not open', async () => {
    const { raw, store, a, b } = await setup();
    await tamper(raw, 'a', { envelope: { headers: b.envelope.headers } });
    await tamper(raw, 'b', { status: { notes: a.status.notes } });
    for (const id of ['a', 'b']) {
      await expect(store.get(id)).rejects.toMatchObject({ code: 'store.corrupt' });
    }
  });

  test('by moving a sealed text from one half of a message to the other does not open', async () => {
    const { raw, store, a, b } = await setup();
    await tamper(raw, 'a', { envelope: { headers: a.status.notes } });
    await tamper(raw, 'b', { status: { notes: b.envelope.headers } });
    for (const id of ['a', 'b']) {
      await expect(store.get(id)).rejects.toMatchObject({ code: 'store.corrupt' });
    }
  });

  test('by naming another key of the ring does not open, though the right key was just used', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner, { keys: KEYS, primary: 'k1' });
    await store.insert([speaking('a')]);
    const { envelope } = await found(raw, 'a');
    await found(store, 'a');
    const $sealed = envelope.headers['$sealed']?.replace('v1:k1:', 'v1:k2:') ?? '';
    await tamper(raw, 'a', { envelope: { headers: { $sealed } } });
    await expect(store.get('a')).rejects.toMatchObject({ code: 'store.corrupt' });
  });

  test('is listed beside what the store itself cannot read', async () => {
    const { raw, inner, shared } = await openWith();
    const store = await openSealed(inner);
    await store.insert([speaking('a'), speaking('b'), speaking('c')]);
    shared.damage('a');
    await tamper(raw, 'b', { envelope: { headers: { $sealed: 'v1:k1:AAAA' } } });
    const page = await store.list({ limit: 9 });
    expect(ids(page.entries)).toEqual(['c']);
    expect(page.corrupt.map(({ id, code }) => [id, code])).toEqual([
      ['a', undefined],
      ['b', undefined],
    ]);
    const searched = await store.list({ limit: 9, code: 'smtp.550' });
    expect(searched.corrupt.map(({ id }) => id)).toEqual(['a', 'b']);
  });

  test('is listed as corrupt, whatever page it is on, and its neighbours are listed as they are', async () => {
    const { raw, store } = await setup();
    await tamper(raw, 'b', { envelope: { headers: { $sealed: 'v1:k1:AAAA' } } });
    const first = await store.list({ limit: 1 });
    expect(first).toMatchObject({ entries: [speakingOf('a')], corrupt: [] });
    const second = await store.list({ limit: 1, after: first.next ?? '' });
    expect(second).toMatchObject({
      entries: [],
      corrupt: [{ id: 'b', where: 'memory "b"', reason: /does not open/ }].map((one) => ({
        ...one,
        reason: expect.stringMatching(one.reason) as string,
      })),
    });
  });

  test('is held by the claim that meets it, which hands out the others', async () => {
    const { raw, store } = await setup();
    await tamper(raw, 'a', { envelope: { headers: { $sealed: 'v1:k1:AAAA' } } });
    expect(ids(await store.claim(claimOf()))).toEqual(['b']);
    const stored = await found(raw, 'a');
    expect(stored.status).toEqual(held('store.corrupt'));
    expect(stored.status).not.toHaveProperty('holder');
    await expect(store.get('a')).rejects.toMatchObject({ code: 'store.corrupt' });
    expect(await store.nextDueAt(claimOf())).toBe(SAMPLE_AT + 1_000);
  });

  test('does not keep a claim from what is due behind it', async () => {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner);
    await store.insert(sampleEntries(7, 'm', { headers: { h: '1' } }));
    for (let n = 0; n < 6; n += 1) {
      await tamper(raw, `m-0000${n}`, { envelope: { headers: { $sealed: 'v1:k1:AAAA' } } });
    }
    expect(ids(await store.claim(claimOf({ max: 2 })))).toEqual(['m-00006']);
    expect(await raw.tally('state', {})).toMatchObject([
      { key: 'hold', count: 6 },
      { key: 'active', count: 1 },
    ]);
  });
});

describe('another key under the same id', () => {
  test('opens nothing: the entry is held as corrupt, and opens again with the right one', async () => {
    const { raw, inner } = await openWith();
    await (await openSealed(inner)).insert([speaking('a')]);
    const wrong = await openSealed(inner, { keys: { k1: KEYS.k2 } });
    expect(await wrong.claim(claimOf())).toEqual([]);
    expect((await found(raw, 'a')).status).toEqual(held('store.corrupt'));
    const right = await openSealed(inner);
    const { envelope, status } = await found(right, 'a');
    expect(envelope).toEqual(speaking('a').envelope);
    expect(status).toEqual(held('store.corrupt'));
    // Why it is held outlives a write that changes nothing of it.
    const { revision } = status;
    await right.commit([{ id: 'a', revision, to: { ...status, revision: revision + 1 } }]);
    expect((await found(right, 'a')).status).toEqual({ ...status, revision: revision + 1 });
  });
});

describe('without the key of an entry', () => {
  async function setup() {
    const { raw, inner } = await openWith();
    await (await openSealed(inner)).insert([speaking('a')]);
    const without = await openSealed(inner, { keys: { k2: KEYS.k2 } });
    return { raw, inner, without };
  }

  test('it is refused with the name of the key, and listed as corrupt', async () => {
    const { without } = await setup();
    await expect(without.get('a')).rejects.toMatchObject({
      code: 'store.corrupt',
      message: expect.stringContaining('"k1"') as string,
      cause: expect.objectContaining({ code: 'key.unavailable' }) as RespoolError,
    });
    const page = await without.list({ limit: 10 });
    expect(page.entries).toEqual([]);
    expect(page.corrupt).toMatchObject([{ id: 'a', code: 'key.unavailable' }]);
    expect(page.corrupt[0]?.reason).toContain('"k1"');
  });

  test('a search by code passes over it, and counts what it can tell', async () => {
    const { inner, without } = await setup();
    await without.insert([speaking('b')]);
    expect(ids((await without.list({ limit: 9, code: 'smtp.550' })).entries)).toEqual(['b']);
    const keys = { k1: 'env:RESPOOL_TEST_NO_SUCH_KEY', k2: KEYS.k2 };
    const unset = await openSealed(inner, { keys, primary: 'k2' });
    expect(await unset.tally('state', { code: 'smtp.550' })).toMatchObject([{ count: 1 }]);
  });

  test('one that had nothing but headers to hide is held, and has no notes afterwards', async () => {
    const { raw, inner } = await openWith();
    const entry = sampleEntry('a', { headers: { tenant: 'acme' } });
    await (await openSealed(inner)).insert([entry]);
    const without = await openSealed(inner, { keys: { k2: KEYS.k2 } });
    expect(await without.claim(claimOf())).toEqual([]);
    expect((await found(raw, 'a')).status).toEqual(held('key.unavailable'));
    const again = await openSealed(inner);
    expect(await again.get('a')).toMatchObject({ envelope: entry.envelope, status: { notes: {} } });
    expect((await found(again, 'a')).status.notes).toEqual({});
  });

  test('it is held by a claim, costs no attempt, and goes on when the key is back', async () => {
    const { raw, inner, without } = await setup();
    expect(await without.claim(claimOf())).toEqual([]);
    expect((await found(raw, 'a')).status).toEqual(held('key.unavailable'));
    expect(await without.tally('state', { code: 'key.unavailable' })).toMatchObject([
      { key: 'hold', count: 1 },
    ]);
    const again = await openSealed(inner, { keys: KEYS, primary: 'k2' });
    const entry = await found(again, 'a');
    expect(entry.status).toEqual(held('key.unavailable'));
    expect(entry.status).toMatchObject({
      notes: { tried: 'mx1' },
      lastFailure: speaking('a').status.lastFailure,
      history: speaking('a').status.history,
    });
    expect(ids((await again.list({ limit: 9, code: 'key.unavailable' })).entries)).toEqual(['a']);
    const retention = { deliveredMs: null, bouncedMs: null, removedMs: 0, dedupeWindowMs: 0 };
    const context = { now: SAMPLE_AT, by: 'ada', retention };
    const move = operatorMove(entry, { kind: 'release' }, context);
    if (move.kind !== 'do' || move.to === 'remove') throw new Error('it cannot be released');
    const { revision } = entry.status;
    expect(await again.commit([{ id: 'a', revision, to: move.to }])).toEqual(['done']);
    const [taken] = await again.claim(claimOf());
    expect(taken?.envelope).toEqual(speaking('a').envelope);
    expect(taken?.status).toMatchObject({ attempts: 1, notes: { tried: 'mx1' } });
    expect(taken?.status).not.toHaveProperty('because');
  });
});

describe('when the store fails while a claim puts aside what does not open', () => {
  /** Fails every commit while `isDown`. */
  async function setup(keys: SealOptions['keys']) {
    const { raw, inner } = await openWith();
    await (await openSealed(inner)).insert([speaking('a'), sampleEntry('b')]);
    const world = { isDown: true };
    const commit: EntryStore['commit'] = async (changes, how) => {
      if (world.isDown) throw new RespoolError('store.unavailable', 'the disk is gone');
      return inner.commit(changes, how);
    };
    const store = await openSealed({ ...inner, commit }, { keys, primary: 'k2' });
    return { raw, store, world };
  }

  test('the others are handed out, and it is met again when its lease is over', async () => {
    const { raw, store, world } = await setup({ k2: KEYS.k2 });
    expect(ids(await store.claim(claimOf()))).toEqual(['b']);
    expect((await found(raw, 'a')).status.state).toBe('active');
    world.isDown = false;
    const late = claimOf({ now: SAMPLE_AT + 1_000, holder: 'h:2', ids: ['a'] });
    expect(await store.claim(late)).toEqual([]);
    expect((await found(raw, 'a')).status).toMatchObject({ state: 'hold', attempts: 1 });
  });
});

describe('after a change of the primary key', () => {
  async function setup() {
    const { raw, inner } = await openWith();
    await raw.insert([speaking('plain'), sampleEntry('bare')]);
    await (await openSealed(inner)).insert([speaking('old')]);
    const store = await openSealed(inner, { keys: KEYS, primary: 'k2' });
    await store.insert([speaking('new')]);
    return { raw, inner, store };
  }

  test('entries of the old key, and those that were never sealed, read as before', async () => {
    const { store } = await setup();
    for (const id of ['plain', 'old', 'new']) expect(await store.get(id)).toEqual(speaking(id));
    expect(await store.get('bare')).toEqual(sampleEntry('bare'));
    expect(ids((await store.list({ limit: 9 })).entries)).toEqual(['bare', 'new', 'old', 'plain']);
  });

  test('all of them are found and counted by code and fingerprint', async () => {
    const { inner, store } = await setup();
    const { fingerprint } = failure('permanent', 'smtp.550', 'no such user');
    const fresh = await openSealed(inner, { keys: KEYS, primary: 'k2' });
    for (const one of [store, fresh]) {
      for (const query of [{ code: 'smtp.550' }, { code: 'smtp.451' }, { fingerprint }]) {
        expect(ids((await one.list({ limit: 9, ...query })).entries)).toEqual([
          'new',
          'old',
          'plain',
        ]);
        expect(await one.tally('state', query)).toMatchObject([{ key: 'deferred', count: 3 }]);
      }
      expect(await one.tally('fingerprint', {})).toEqual([
        { key: fingerprint, count: 3, oldestAt: SAMPLE_AT },
      ]);
    }
  });

  test('the next write of an entry seals all of it with the primary key, headers too', async () => {
    const { raw, store } = await setup();
    const taken = await store.claim(claimOf());
    const changes = taken.map(({ envelope: { id }, status }) => ({
      id,
      revision: 2,
      holder: 'h:1',
      to: { ...status, revision: 3, notes: { next: 'write' } },
    }));
    expect(await store.commit(changes)).toEqual(['done', 'done', 'done', 'done']);
    for (const id of ['plain', 'old', 'new']) {
      const { envelope, status, inlineBody } = await found(raw, id);
      expect(envelope.headers['$sealed']).toMatch(/^v1:k2:/);
      expect(status.notes['$sealed']).toMatch(/^v1:k2:/);
      expect(inlineBody).toEqual(speaking(id).inlineBody);
      expect((await found(store, id)).envelope).toEqual(speaking(id).envelope);
    }
  });

  test('a change that brings an envelope of its own keeps it', async () => {
    const { store } = await setup();
    const { envelope, status } = await found(store, 'plain');
    const changed = { ...envelope, headers: { tenant: 'zeta' } };
    const to = { ...status, revision: 2 };
    await store.commit([{ id: 'plain', revision: 1, to, envelope: changed }]);
    expect((await found(store, 'plain')).envelope).toEqual(changed);
  });

  test('old entries are counted by code where keys come from a function, once it was asked', async () => {
    const { inner } = await setup();
    const keys = (id: string) => KEYS[id as keyof typeof KEYS];
    const store = await openSealed(inner, { keys, primary: 'k2' });
    expect(await store.tally('state', { code: 'smtp.550' })).toMatchObject([{ count: 2 }]);
    await store.get('old');
    expect(await store.tally('state', { code: 'smtp.550' })).toMatchObject([{ count: 3 }]);
  });

  test('one half of an entry is enough to make it old', async () => {
    const { raw, store } = await setup();
    const headers = { tenant: 'acme' };
    await raw.insert([sampleEntry('x', { headers }), sampleEntry('y', { notes: { n: '1' } })]);
    await store.insert([sampleEntry('z', { headers })]);
    const { entries } = await store.list({ limit: 9, ids: ['x', 'y', 'z'] });
    expect(entries.map((entry) => store.isSealOld(entry))).toEqual([true, true, false]);
  });

  test('an envelope that another process changed meanwhile is not written back', async () => {
    const { raw, store } = await setup();
    const { status } = await found(store, 'plain');
    await tamper(raw, 'plain', { envelope: { headers: { tenant: 'zeta' } } });
    const change = { id: 'plain', revision: 2, to: { ...status, revision: 3 } };
    expect(await store.commit([change])).toEqual(['done']);
    expect((await found(store, 'plain')).envelope.headers).toEqual({ tenant: 'zeta' });
  });

  test('those that are not sealed with it are known, and a commit as they are seals them', async () => {
    const { raw, store } = await setup();
    const { entries } = await store.list({ limit: 9 });
    const old = entries.filter((entry) => store.isSealOld(entry));
    expect(ids(old)).toEqual(['old', 'plain']);
    const changes = old.map(({ envelope, status }) => ({
      id: envelope.id,
      revision: 1,
      to: { ...status, revision: 2, updatedAt: SAMPLE_AT + 5 },
      envelope,
    }));
    expect(await store.commit(changes)).toEqual(['done', 'done']);
    for (const { envelope, status } of old) {
      const now = await found(store, envelope.id);
      expect(now.envelope).toEqual(envelope);
      expect(now.status).toEqual({ ...status, revision: 2, updatedAt: SAMPLE_AT + 5 });
      expect(store.isSealOld(now)).toBe(false);
    }
    expect(JSON.stringify(await raw.list({ limit: 9 }))).not.toMatch(/v1:k1:|acme/);
    expect(await store.commit(changes)).toEqual(['stale', 'stale']);
  });
});

function speakingOf(id: string): Omit<Entry, 'inlineBody'> {
  const { envelope, status } = speaking(id);
  return { envelope, status };
}
