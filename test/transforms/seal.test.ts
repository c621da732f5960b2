import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { seal } from 'respool/transforms';
import { SAMPLE_AT, sampleEntries, sampleEntry } from 'respool/testkit';
import { sqlite } from 'respool/stores/sqlite';
import { createMemoryData, memory } from 'respool/stores/memory';
import { type Entry, type EntryStore, failure, type Status } from 'respool';
import { extendedStatus } from '../../src/core/next-status.ts';
import { atEnd, claimOf, KEYS, makeFolder, openSealed, openWith, speaking } from './seal-setup.ts';

async function setup() {
  const { raw, inner } = await openWith();
  const store = await openSealed(inner);
  return { raw, store };
}

describe('in the store', () => {
  test('headers, notes, history, reasons and names are one text each for envelope and status', async () => {
    const { raw, store } = await setup();
    await store.insert([speaking('a')]);
    const stored = await raw.get('a');
    const text = expect.stringMatching(/^v1:k1:[\w-]{40,}$/) as string;
    const token = expect.stringMatching(/^sealed\.[\w-]{16}$/) as string;
    expect(stored?.envelope.headers).toEqual({ $sealed: text });
    expect(stored?.status).toMatchObject({
      notes: { $sealed: text },
      history: [],
      because: { code: token, text: '', by: '' },
    });
    expect(stored?.status.lastFailure).toEqual({
      permanence: 'transient',
      code: token,
      reason: '',
      fingerprint: token,
    });
  });

  test('what a store works with is as it was', async () => {
    const { raw, store } = await setup();
    const entry = speaking('a', { dedupeKey: 'd', orderKey: 'o', attempts: 2 });
    await store.insert([entry]);
    const stored = await raw.get('a');
    const { headers: _headers, ...envelope } = entry.envelope;
    expect(stored?.envelope).toMatchObject(envelope);
    expect(stored?.status).toMatchObject({ state: 'deferred', attempts: 2, dueAt: SAMPLE_AT });
    expect(stored?.inlineBody).toEqual(entry.inlineBody);
  });

  test('an entry that has nothing to hide is as it was', async () => {
    const { raw, store } = await setup();
    await store.insert([sampleEntry('a')]);
    expect(await raw.get('a')).toEqual(sampleEntry('a'));
  });

  test('a step seals the status anew and leaves the sealed headers alone', async () => {
    const { raw, store } = await setup();
    await store.insert([speaking('a')]);
    const before = await raw.get('a');
    const [taken] = await store.claim(claimOf());
    if (taken === undefined) throw new Error('nothing was claimed');
    const to = { ...taken.status, revision: 3, notes: { step: 'two' } };
    const change = { id: 'a', revision: 2, holder: 'h:1', to };
    expect(await store.commit([change])).toEqual(['done']);
    const after = await raw.get('a');
    expect(after?.envelope).toEqual(before?.envelope);
    expect(after?.status.notes).not.toEqual(before?.status.notes);
    expect((await store.get('a'))?.status.notes).toEqual({ step: 'two' });
  });

  test('a heartbeat writes the very text that was there', async () => {
    const { raw, store } = await setup();
    await store.insert([speaking('a')]);
    const before = await raw.get('a');
    const [taken] = await store.claim(claimOf());
    if (taken === undefined) throw new Error('nothing was claimed');
    const to = extendedStatus(taken.status, { now: SAMPLE_AT, leaseMs: 5_000 });
    await store.commit([{ id: 'a', revision: 2, holder: 'h:1', to }]);
    expect((await raw.get('a'))?.status.notes).toEqual(before?.status.notes);
    expect((await store.get('a'))?.status).toEqual(to);
  });

  const TIMEOUT = failure('transient', 'timeout', 'no answer');
  test.each<[string, Partial<Status>]>([
    ['why it is there', { because: { code: 'c', text: 't', by: 'b' } }],
    ['its last failure', { lastFailure: TIMEOUT }],
    ['its history', { history: [] }],
    ['its notes', { notes: { other: 'note' } }],
    ['its policy', { policy: 'patient' }],
    ['how often it was postponed', { postponed: 1 }],
    ['how often it was sent again', { replays: 1 }],
  ])('a step that changes nothing but %s is stored', async (_, parts) => {
    const { store } = await setup();
    await store.insert([speaking('a')]);
    const status = (await store.get('a'))?.status;
    if (status === undefined) throw new Error('there is no "a"');
    const to = { ...status, ...parts, revision: 2 };
    await store.commit([{ id: 'a', revision: 1, to }]);
    expect((await store.get('a'))?.status).toEqual(to);
  });

  test('the status of one message, given to another, is sealed for that one', async () => {
    const { store } = await setup();
    await store.insert([speaking('a'), sampleEntry('b')]);
    const status = (await store.get('a'))?.status;
    if (status === undefined) throw new Error('there is no "a"');
    const to = { ...status, revision: 2 };
    await store.commit([{ id: 'b', revision: 1, to }]);
    expect((await store.get('b'))?.status).toEqual(to);
  });

  test('the same headers make another text every time', async () => {
    const { raw, store } = await setup();
    await store.insert([speaking('a')]);
    const first = await raw.get('a');
    await raw.commit([{ id: 'a', revision: 1, to: 'remove' }]);
    await store.insert([speaking('a')]);
    expect((await raw.get('a'))?.envelope.headers).not.toEqual(first?.envelope.headers);
  });
});

describe('a dump', () => {
  const CANARY = 'canary-7f3a';

  /** A life with the canary in everything that is secret, and what is then in the files. */
  async function dumpOf(make: (folder: string) => EntryStore): Promise<string> {
    const folder = await makeFolder();
    const store = make(folder);
    await store.open();
    atEnd(() => store.close());
    const secret = (part: string) => `${CANARY}-${part}`;
    await store.insert([
      sampleEntry('a', { topic: 'shown', headers: { [secret('name')]: secret('value') } }),
      speaking('b', { topic: 'shown', because: { code: secret('c'), text: 't', by: secret('o') } }),
    ]);
    const taken = await store.claim(claimOf());
    await store.commit(
      taken.map(({ envelope, status }) => ({
        id: envelope.id,
        revision: status.revision,
        holder: 'h:1',
        to: {
          ...status,
          revision: status.revision + 1,
          notes: { [secret('note')]: secret('noted') },
          because: { code: secret('code'), text: secret('why'), by: secret('operator') },
          lastFailure: failure('permanent', secret('failure'), secret('reason')),
          history: [
            {
              at: SAMPLE_AT,
              tookMs: 1,
              by: secret('by'),
              lane: 'delivery' as const,
              attempt: 1,
              code: secret('history'),
              reason: secret('remembered'),
            },
          ],
        },
        envelope: { ...envelope, headers: { changed: secret('changed') } },
      })),
    );
    await store.records.append('audit', { by: secret('actor'), details: { why: secret('audit') } });
    await store.records.put('pause', 'mail.#', { by: secret('pauser') });
    await store.flush();
    const files = await readdir(folder, { recursive: true });
    const texts = await Promise.all(
      files.map((file) => readFile(path.join(folder, file), 'latin1').catch(() => '')),
    );
    return texts.join('\n');
  }

  test('of a sealed SQLite file and its log shows no header, note, failure, reason or name', async () => {
    const open = (folder: string) => sqlite({ path: folder, thread: false });
    expect(await dumpOf(open), 'the test looks in the right place').toContain(CANARY);
    const dump = await dumpOf((folder) => seal(open(folder), { keys: { k1: KEYS.k1 } }));
    expect(dump).toContain('shown');
    expect(dump).toContain('v1:k1:');
    expect(dump).not.toContain(CANARY);
    expect(dump).not.toContain('changed');
    expect(dump).not.toContain(KEYS.k1);
  });
});

describe('tokens', () => {
  async function tokensOf(keys: Record<string, string>): Promise<unknown> {
    const { raw, inner } = await openWith();
    const store = await openSealed(inner, { keys });
    await store.insert([speaking('a'), speaking('b')]);
    const [a, b] = await Promise.all([raw.get('a'), raw.get('b')]);
    expect(a?.status.lastFailure).toEqual(b?.status.lastFailure);
    return a?.status.lastFailure;
  }

  test('are the same in every process with the key, and others with another key', async () => {
    const first = await tokensOf({ k1: KEYS.k1 });
    expect(await tokensOf({ k1: KEYS.k1 })).toEqual(first);
    expect(await tokensOf({ k1: KEYS.k2 })).not.toEqual(first);
  });

  test('of a code and a fingerprint that are the same word differ', async () => {
    const { raw, store } = await setup();
    const lastFailure = { ...failure('transient', 'same', 'r'), fingerprint: 'same' };
    await store.insert([sampleEntry('a', { lastFailure })]);
    const stored = (await raw.get('a'))?.status.lastFailure;
    expect(stored?.code).not.toBe(stored?.fingerprint);
  });
});

describe('a search', () => {
  test('by header or text is refused with the reason and what can be asked', async () => {
    const { store } = await setup();
    const byHeader = store.list({ limit: 1, header: { name: 'tenant' } });
    await expect(byHeader).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(/by header.*sealed.*ask by id, topic/s) as string,
    });
    const byText = store.tally('state', { text: 'x' });
    await expect(byText).rejects.toThrow('cannot search by text: the store is sealed');
  });

  test('by code finds all in pages that keep their limit, each once and in order', async () => {
    const { store } = await setup();
    const rare = failure('transient', 'rare', 'now and then');
    const common = failure('transient', 'common', 'all the time');
    await store.insert(
      sampleEntries(1_200, 'm', (index) => ({ lastFailure: index % 7 === 3 ? rare : common })),
    );
    expect((await store.list({ limit: 10, code: 'rare' })).entries).toHaveLength(10);
    for (const limit of [1, 10, 500]) {
      const found: string[] = [];
      let next: string | undefined;
      do {
        const after = next === undefined ? {} : { after: next };
        const page = await store.list({ limit, code: 'rare', descending: true, ...after });
        expect(page.entries.length).toBeLessThanOrEqual(limit);
        found.push(...page.entries.map(({ envelope }) => envelope.id));
        next = page.next;
      } while (next !== undefined);
      expect(found).toHaveLength(171);
      expect(found).toEqual([...found].sort().reverse());
    }
    for (const limit of [0, 1.5, 501]) {
      const page = store.list({ limit, code: 'rare' });
      await expect(page).rejects.toMatchObject({ code: 'limit.exceeded' });
    }
  });

  test('of one page goes through a bounded number of entries, and the next goes on', async () => {
    const { raw, store } = await setup();
    await raw.insert(sampleEntries(10_001, 'm'));
    await store.insert([speaking('z')]);
    const first = await store.list({ limit: 5, code: 'smtp.550' });
    expect(first.entries).toEqual([]);
    expect(first.next).toEqual(expect.any(String));
    const second = await store.list({ limit: 5, code: 'smtp.550', after: first.next ?? '' });
    expect(second.entries.map(({ envelope }) => envelope.id)).toEqual(['z']);
  });

  test('a count by fingerprint tells the fingerprints, also to a process that just began', async () => {
    const { inner } = await openWith();
    const store = await openSealed(inner);
    await store.insert([speaking('a'), speaking('b'), sampleEntry('c')]);
    const { fingerprint } = failure('permanent', 'smtp.550', 'no such user');
    const fresh = await openSealed(inner);
    expect(await fresh.tally('fingerprint', {})).toMatchObject([{ key: fingerprint, count: 2 }]);
    expect(await fresh.tally('state', { fingerprint })).toMatchObject([{ count: 2 }]);
  });

  test('a count looks up 500 fingerprints, and shows the others as tokens', async () => {
    const { inner } = await openWith();
    const store = await openSealed(inner);
    const lastFailure = (index: number) => ({
      ...failure('transient', 'c', 'r'),
      fingerprint: `print-${index}`,
    });
    await store.insert(sampleEntries(503, 'm', (index) => ({ lastFailure: lastFailure(index) })));
    const fresh = await openSealed(inner);
    const shown = async () =>
      (await fresh.tally('fingerprint', {})).filter(({ key }) => key.startsWith('print-')).length;
    expect(await shown()).toBe(500);
    expect(await shown()).toBe(503);
  });
});

describe('a sealed store', () => {
  test('has the name, instance and traits of the store below, and only its optional parts', async () => {
    const folder = await makeFolder();
    const below = sqlite({ path: folder, thread: false });
    const store = seal(below, { keys: KEYS, primary: 'k1' });
    expect(store).toMatchObject({ name: 'sqlite', instance: below.instance, traits: below.traits });
    expect(store).toMatchObject({
      expireLost: expect.any(Function) as unknown,
      watch: expect.any(Function) as unknown,
      announce: expect.any(Function) as unknown,
    });
    expect(store).not.toHaveProperty('now');
    expect(seal(memory(), { keys: KEYS, primary: 'k1' })).not.toHaveProperty('watch');
    const timed = { ...memory(), now: async () => 42 };
    expect(await seal(timed, { keys: KEYS, primary: 'k1' }).now?.()).toBe(42);
  });

  test('refuses options that do not exist, and keys without a primary', () => {
    const invalid = expect.objectContaining({ code: 'config.invalid' });
    expect(() => seal(memory(), { keys: { k1: KEYS.k1 }, primry: 'k1' } as never)).toThrow(invalid);
    expect(() => seal(memory(), { keys: KEYS })).toThrow(invalid);
    expect(() => seal(memory(), { keys: KEYS, primary: 'k3' })).toThrow(invalid);
  });

  test('without its primary key is not opened, nor is the store below', async () => {
    const opened: string[] = [];
    const below = { ...memory(), open: async () => void opened.push('open') };
    const store = seal(below, { keys: () => undefined, primary: 'k1' });
    await expect(store.open()).rejects.toMatchObject({ code: 'key.unavailable' });
    expect(opened).toEqual([]);
  });

  test('whose key comes from a function cannot be written before it is opened', async () => {
    const store = seal(memory(), { keys: () => KEYS.k1, primary: 'k1' });
    await expect(store.insert([speaking('a')])).rejects.toMatchObject({
      code: 'store.unavailable',
    });
  });

  test('passes on whether a commit is durable', async () => {
    const { inner } = await openWith();
    const asked: unknown[] = [];
    const commit: EntryStore['commit'] = async (changes, how) => {
      asked.push(how);
      return changes.map(() => 'done');
    };
    const store = await openSealed({ ...inner, commit });
    await store.commit([{ id: 'a', revision: 1, to: 'remove' }], { durable: false });
    expect(asked).toEqual([{ durable: false }]);
  });

  test('does not change the entries it is given', async () => {
    const { store } = await setup();
    const entry: Entry = speaking('a');
    const before = structuredClone(entry);
    await store.insert([entry]);
    expect(entry).toEqual(before);
  });

  test('over a sealed store is sealed twice and reads the same', async () => {
    const shared = createMemoryData();
    const store = await openSealed(seal(memory({ shared }), { keys: { k2: KEYS.k2 } }));
    await store.insert([speaking('a')]);
    expect(await store.get('a')).toEqual(speaking('a'));
  });
});
