/** An insert whose answer is lost happens once, whatever others do with the message meanwhile. */

import { expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntry } from 'respool/testkit';
import { nats } from 'respool/stores/nats';
import type { Entry, EntryStore } from 'respool';
import { privateServer, skipReason, withService } from '../../services/index.ts';
import { faultyConnection } from './faulty-connection.ts';
import { atEnd, bucketName, openStore } from './setup.ts';

/** A store that works, and one that loses the answer to its first insert. */
async function openDeaf(url: string, timeoutMs: number) {
  const bucket = bucketName();
  const healthy = await openStore({ url, bucket });
  let sent = (): void => {};
  const isSent = new Promise<void>((resolve) => (sent = resolve));
  let count = 0;
  const connection = await faultyConnection(url, (subject) => {
    if (!subject.startsWith('$KV.') || !subject.includes('.e.')) return 'sent';
    count += 1;
    if (count > 1) return 'sent';
    sent();
    return 'answer lost';
  });
  const deaf = nats({ connection, bucket, timeoutMs });
  await deaf.open();
  atEnd(() => deaf.close());
  return { bucket, healthy, deaf, isSent };
}

/** Waits for the message, claims it and removes it. */
async function deliver(store: EntryStore): Promise<readonly Entry[]> {
  const taken = await claim(store);
  const holder = `${store.instance}:1`;
  const changes = taken.map(({ envelope, status }) => ({
    id: envelope.id,
    revision: status.revision,
    holder,
    to: 'remove' as const,
  }));
  expect(await store.commit(changes)).toEqual(changes.map(() => 'done'));
  return taken;
}

async function claim(store: EntryStore): Promise<readonly Entry[]> {
  const request = { lane: 'delivery', states: ['incoming', 'active'], max: 10 } as const;
  for (;;) {
    const holder = `${store.instance}:1`;
    const taken = await store.claim({ ...request, now: SAMPLE_AT, leaseMs: 60_000, holder });
    if (taken.length > 0) return taken;
  }
}

async function idsIn(url: string, bucket: string): Promise<readonly string[]> {
  const fresh = await openStore({ url, bucket });
  return (await fresh.list({ limit: 10 })).entries.map(({ envelope }) => envelope.id);
}

withService('nats', (url) => {
  for (const [what, given] of [
    ['a message', {}],
    ['a message with a dedupe key', { dedupeKey: 'k' }],
  ] as const) {
    test(`the insert of ${what} that was claimed before its answer is told as stored`, async () => {
      const { bucket, healthy, deaf, isSent } = await openDeaf(url(), 1_000);
      const insert = deaf.insert([sampleEntry('a', given)]);
      await isSent;
      expect(await claim(healthy)).toHaveLength(1);
      expect(await insert).toEqual(['stored']);
      expect(await idsIn(url(), bucket)).toEqual(['a']);
    });

    test(`the insert of ${what} that was delivered before its answer stores nothing again`, async () => {
      const { bucket, healthy, deaf, isSent } = await openDeaf(url(), 2_000);
      const insert = deaf.insert([sampleEntry('a', given)]);
      await isSent;
      await deliver(healthy);
      // Its marker is taken out: nothing under its key is left.
      await healthy.close();
      expect(await insert).toEqual(['stored']);
      expect(await idsIn(url(), bucket)).toEqual([]);
    });
  }

  test('an earlier life of the same id is not taken for that of an insert', async () => {
    const { bucket, healthy, deaf, isSent } = await openDeaf(url(), 1_000);
    await healthy.insert([sampleEntry('a')]);
    await deliver(healthy);
    const insert = deaf.insert([sampleEntry('a')]);
    await isSent;
    expect(await insert).toEqual(['stored']);
    expect(await idsIn(url(), bucket)).toEqual(['a']);
  });
});

test.skipIf(skipReason('nats') !== undefined)(
  'an insert is not stored again after a kill of the server that delivered it meanwhile',
  async () => {
    const server = await privateServer('nats');
    atEnd(() => server.stop());
    const { url } = server;
    const { bucket, healthy, deaf, isSent } = await openDeaf(url, 30_000);
    const insert = deaf.insert([sampleEntry('a')]);
    await isSent;
    await deliver(healthy);
    await healthy.close();
    await server.kill('SIGKILL');
    await server.restart();
    expect(await insert).toEqual(['stored']);
    expect(await idsIn(url, bucket)).toEqual([]);
  },
);
