/** The journal of a process: what one that is started later knows of a server that went back. */

import {
  appendFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { nats, natsBodies, type NatsEntryOptions } from 'respool/stores/nats';
import { filesystemBodies } from 'respool/stores/filesystem';
import { createSpool, type EntryStore, type RespoolError, type SpoolEvent } from 'respool';
import { service, skipReason } from '../../services/index.ts';
import { HOUR_MS, holdTimers } from '../../time.ts';
import { rewindableServer } from './rewindable-server.ts';
import { atEnd, bucketName, openStore } from './setup.ts';

const WRITE_EVERY_MS = 1_000;
/** How many removals a process remembers. */
const REMOVALS_MAX = 200_000;

async function folder(): Promise<string> {
  const made = await mkdtemp(path.join(tmpdir(), 'respool-journal-'));
  atEnd(() => rm(made, { recursive: true, force: true }));
  return made;
}

async function textOf(journal: string): Promise<string> {
  const names = (await readdir(journal)).sort();
  return (await Promise.all(names.map((name) => readFile(path.join(journal, name), 'utf8')))).join(
    '',
  );
}

/** A store over a bucket that stays, and what it reports from its opening on. */
async function opened(options: NatsEntryOptions) {
  const store = nats(options);
  const heard: RespoolError[] = [];
  store.onTrouble?.((error) => heard.push(error));
  await store.open();
  atEnd(() => store.close());
  return { store, heard };
}

async function remove(store: EntryStore, id: string): Promise<void> {
  const { revision = 0 } = (await store.get(id))?.status ?? {};
  expect(await store.commit([{ id, revision, to: 'remove' }])).toEqual(['done']);
}

const isSkipped = skipReason('nats') !== undefined;

describe.skipIf(isSkipped)('with nats', () => {
  test('a process that is started later reports that the server went back, and how far', async () => {
    await using server = await rewindableServer();
    const options = { url: server.url, bucket: bucketName(), journal: await folder() };
    const { store } = await opened(options);
    await store.insert([sampleEntry('a')]);
    await store.close();
    await server.save();
    const { store: second, heard: nothing } = await opened(options);
    expect(nothing).toEqual([]);
    await second.insert([sampleEntry('b'), sampleEntry('c')]);
    await second.close();
    await server.goBack();
    const { store: third, heard } = await opened(options);
    expect((await third.list({ limit: 9 })).entries.map(({ envelope }) => envelope.id)).toEqual([
      'a',
    ]);
    expect(heard).toMatchObject([{ code: 'store.corrupt' }]);
    expect(heard[0]?.message).toMatch(/ends at \d+, and \d+ was seen at 2\d{3}-/);
    await third.close();
    // Until the stream has grown past it: others may not have heard.
    const { heard: again } = await opened(options);
    expect(again).toHaveLength(1);
  });

  test('a server that lost the whole bucket is reported, once', async () => {
    await using server = await rewindableServer();
    const options = { url: server.url, bucket: bucketName(), journal: await folder() };
    const { store } = await opened(options);
    await store.insert([sampleEntry('a')]);
    await store.close();
    await server.loseAll();
    const { store: second, heard } = await opened(options);
    expect(heard.map(({ message }) => message).join()).toMatch(/is not the one that was seen/);
    await second.insert([sampleEntry('b')]);
    await second.close();
    const { heard: nothing } = await opened(options);
    expect(nothing).toEqual([]);
  });

  test('a settled message that came back is not delivered after a cold start, whatever keeps its body', async () => {
    await using server = await rewindableServer();
    const place = { url: server.url, bucket: bucketName(), journal: await folder() };
    const files = await folder();
    const handled: string[] = [];
    const start = () => {
      const bodies = filesystemBodies({ path: files });
      const spool = createSpool({ entries: nats(place), bodies });
      const events: SpoolEvent[] = [];
      spool.on('*', (event) => events.push(event));
      spool.handle('mail', async (delivery) => {
        await delivery.body();
        handled.push(delivery.id);
      });
      return { spool, events };
    };
    const { spool } = start();
    const small = await spool.enqueue({ topic: 'mail', body: 'x' });
    const large = await spool.enqueue({ topic: 'mail', body: new Uint8Array(30_000) });
    await server.save();
    await spool.start();
    for (const { id } of [small, large]) await expect.poll(() => spool.get(id)).toBeUndefined();
    await spool.stop();
    await server.goBack();
    const later = start();
    await using second = later.spool;
    const last = await second.enqueue({ topic: 'mail', body: 'y' });
    await second.start();
    await expect.poll(() => handled).toContain(last.id);
    for (const { id } of [small, large]) expect(await second.get(id)).toBeUndefined();
    expect(handled).toHaveLength(3);
    const kinds = later.events.map(({ kind }) => kind);
    expect(kinds).not.toContain('held');
    const troubles = later.events.flatMap((one) => (one.kind === 'trouble' ? [one.error] : []));
    expect(troubles.map(({ message }) => message).join()).toMatch(/2 that were settled came back/);
  });

  test('a removal that was undone twice is remembered', async () => {
    await using server = await rewindableServer();
    const options = { url: server.url, bucket: bucketName(), journal: await folder() };
    const { store } = await opened(options);
    await store.insert([sampleEntry('a')]);
    await server.save();
    await remove(store, 'a');
    await store.close();
    for (const time of [1, 2]) {
      await server.goBack();
      // As if the outage had lasted for hours: what is that old is removed once it was read.
      const names = await readdir(options.journal);
      const old = new Date(Date.now() - 2 * HOUR_MS);
      for (const name of names) await utimes(path.join(options.journal, name), old, old);
      const { store: later, heard } = await opened(options);
      expect(await later.get('a'), `time ${time}`).toBeUndefined();
      expect(heard.join()).toMatch(/1 that were settled came back/);
      await later.close();
      expect(await readdir(options.journal)).toHaveLength(1);
    }
  });

  // Regression: the removals in the last file by name counted as the newest.
  test('more removals than are remembered drop the oldest, whichever file they are in', async () => {
    await using server = await rewindableServer();
    const options = { url: server.url, bucket: bucketName(), journal: await folder() };
    const { store } = await opened(options);
    await store.insert([sampleEntry('a')]);
    await server.save();
    await remove(store, 'a');
    await store.close();
    const [name = ''] = await readdir(options.journal);
    const [, created = ''] = (await textOf(options.journal)).split(' ');
    const older = Array.from({ length: REMOVALS_MAX }, (_, at) => `gone older-${at} ${at + 1}\n`);
    const seen = `seen ${created} 1 ${Date.now() - HOUR_MS}\n`;
    const last = name.replace(/\.[^.]*-1\./, '.zz-1.');
    await writeFile(path.join(options.journal, last), `${seen}${older.join('')}`);
    await server.goBack();
    const { store: later } = await opened(options);
    expect(await later.get('a')).toBeUndefined();
  });

  // Regression: one life of an id was remembered, and the stream tells of earlier ones as well.
  test('of an id that is used again each life that was removed stays so', async () => {
    await using server = await rewindableServer();
    const options = { url: server.url, bucket: bucketName(), journal: await folder() };
    const { store } = await opened(options);
    await store.insert([sampleEntry('a')]);
    await remove(store, 'a');
    await store.close();
    const [name = ''] = await readdir(options.journal);
    const last = name.replace(/\.[^.]*-1\./, '.zz-1.');
    await rename(path.join(options.journal, name), path.join(options.journal, last));
    const { store: second } = await opened(options);
    await second.insert([sampleEntry('a')]);
    await server.save();
    await remove(second, 'a');
    await second.close();
    await server.goBack();
    const { store: third } = await opened(options);
    expect(await third.get('a')).toBeUndefined();
  });

  test('it is written at most once a second, and not by a process that writes nothing', async () => {
    const journal = await folder();
    const timers = holdTimers(WRITE_EVERY_MS);
    const url = await service('nats');
    const store = await openStore({ url, bucket: bucketName(), journal, clock: timers.clock });
    await store.now?.();
    expect(timers.count()).toBe(0);
    await store.insert([sampleEntry('a'), sampleEntry('b')]);
    await store.insert([sampleEntry('c')]);
    await remove(store, 'a');
    expect(timers.count()).toBe(1);
    expect(await readdir(journal)).toEqual([]);
    timers.release();
    const lines = async () => (await textOf(journal)).split('\n').map((line) => line.slice(0, 5));
    await expect.poll(lines).toEqual(['seen ', 'gone ', '']);
  });

  test('lines that are cut off or damaged are left out', async () => {
    const journal = await folder();
    const url = await service('nats');
    const bucket = bucketName();
    const store = await openStore({ url, bucket, journal });
    await store.insert([sampleEntry('a')]);
    await store.close();
    const [name = ''] = await readdir(journal);
    const [seen = ''] = (await textOf(journal)).split('\n');
    const [word = '', created = ''] = seen.split(' ');
    const damaged = `${word} ${created} x 1\ngone a\n\0\0\0\ngone a 1e9 7\n${word} ${created} 99999`;
    await appendFile(path.join(journal, name), damaged);
    await writeFile(path.join(journal, 'notes.txt'), `${word} ${created} 99999 1\n`);
    const { store: second, heard } = await opened({ url, bucket, journal });
    expect(heard).toEqual([]);
    expect(await second.get('a')).toBeDefined();
  });

  test('one that cannot be written is reported once and stops nothing', async () => {
    const journal = path.join(await folder(), 'below');
    const url = await service('nats');
    const { store, heard } = await opened({ url, bucket: bucketName(), journal });
    await rm(journal, { recursive: true });
    await writeFile(journal, '');
    await store.insert([sampleEntry('a')]);
    await expect.poll(() => heard).toMatchObject([{ code: 'store.unavailable' }]);
    expect(heard[0]?.message).toMatch(/cannot write the journal/);
    await remove(store, 'a');
    await store.close();
    expect(heard).toHaveLength(1);
  });

  test('what could not be written is written when that is possible again', async () => {
    const base = await folder();
    const journal = path.join(base, 'journal');
    const away = path.join(base, 'away');
    const url = await service('nats');
    const { store, heard } = await opened({ url, bucket: bucketName(), journal });
    await store.insert([sampleEntry('a'), sampleEntry('b'), sampleEntry('c')]);
    await remove(store, 'a');
    await expect.poll(() => textOf(journal)).toMatch(/^gone a \d+$/m);
    await rename(journal, away);
    await writeFile(journal, '');
    await remove(store, 'b');
    await expect.poll(() => heard).toHaveLength(1);
    await remove(store, 'c');
    const [name = ''] = await readdir(away);
    // What a full disk had room for.
    await appendFile(path.join(away, name), 'gone x 1');
    await rm(journal);
    await rename(away, journal);
    // Nothing else is written to the store.
    await expect.poll(() => textOf(journal)).toMatch(/^gone b \d+\ngone c \d+$/m);
    expect(await textOf(journal)).not.toMatch(/^(?:gone x \d*|.+seen .*)$/m);
    expect(heard).toHaveLength(1);
  });

  test('the file of another user is reported, and the others are read', async () => {
    const options = { url: await service('nats'), bucket: bucketName(), journal: await folder() };
    const store = await openStore(options);
    await store.insert([sampleEntry('a')]);
    await store.close();
    const [name = ''] = await readdir(options.journal);
    // A folder of that name: root can read the files of everybody.
    await mkdir(path.join(options.journal, name.replace('-1.', '-2.')));
    const { heard } = await opened(options);
    expect(heard).toMatchObject([{ code: 'store.unavailable' }]);
    expect(heard[0]?.message).toMatch(/cannot read the journal in ".*-2\.journal"/);
  });

  test('one that cannot be read lets the store not open', async () => {
    const journal = path.join(await folder(), 'file');
    await writeFile(journal, '');
    const store = nats({ url: await service('nats'), bucket: bucketName(), journal });
    await expect(store.open()).rejects.toThrow(/journal/);
  });

  describe('without a proof that a message has ended', () => {
    async function heldAfter(more: { readonly journal?: string }, dedupeKey?: string) {
      const server = await rewindableServer();
      atEnd(async () => server[Symbol.asyncDispose]());
      const place = { url: server.url, bucket: bucketName() };
      const files = await folder();
      const make = () => {
        const entries = nats({ ...place, ...more });
        const spool = createSpool({ entries, bodies: filesystemBodies({ path: files }) });
        spool.handle('mail', async (delivery) => void (await delivery.body()));
        return spool;
      };
      const spool = make();
      const keyed = dedupeKey === undefined ? {} : { dedupeKey };
      const body = new Uint8Array(30_000);
      const { id } = await spool.enqueue({ topic: 'mail', body, ...keyed });
      await spool.stop();
      await server.save();
      const first = make();
      const delivered = new Promise((resolve) => first.on('delivered', resolve));
      await first.start();
      await delivered;
      await first.stop();
      await server.goBack();
      const second = make();
      atEnd(() => second.stop());
      await second.start();
      const held = async () => (await second.get(id))?.status;
      await expect.poll(held).toMatchObject({ state: 'hold', because: { code: 'body.missing' } });
      return { spool: second, id, text: (await held())?.because?.text };
    }

    test('it is held, its reason says what may have happened, and one action removes all of them', async () => {
      const { spool, id, text } = await heldAfter({});
      expect(text).toMatch(/the message may have ended before/);
      const operator = spool.operator({ by: 'ops' });
      await operator.remove({ code: 'body.missing', text: 'may have ended before' });
      const { status } = (await spool.get(id)) ?? {};
      expect(status).toMatchObject({ state: 'archived', ending: 'removed' });
    });

    test('with a journal the reason says when the server was found to have gone back', async () => {
      const { text } = await heldAfter({ journal: await folder() }, 'k');
      expect(text).toMatch(/went back, as was found at 2\d{3}-.*the message may have ended before/);
    });
  });
});

test('a journal is an option of entries, a text', () => {
  const url = 'nats://127.0.0.1:4222';
  expect(() => nats({ url, journal: 1 as never })).toThrow(/"journal"/);
  expect(() => nats({ url, journal: '' })).toThrow(/"journal"/);
  expect(() => natsBodies({ url, journal: 'x' } as never)).toThrow(/journal/);
});
