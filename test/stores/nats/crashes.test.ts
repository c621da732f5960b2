/** What is left when somebody dies between two steps, or an answer is lost: nothing, or all of it. */

import { expect, test } from 'vitest';
import { SAMPLE_AT, SAMPLE_LEASE_MS, sampleEntries, sampleEntry } from 'respool/testkit';
import { nats } from 'respool/stores/nats';
import type { Clock, EntryStore } from 'respool';
import { withService } from '../../services/index.ts';
import { type Fate, faultyOptions } from './faulty-connection.ts';
import { atEnd, bucketName, openStore, plainConnection } from './setup.ts';
import { systemClock } from '../../time.ts';

type Judge = (subject: string) => Fate;

/** A store that works, and one over the same bucket whose requests meet a fate. */
async function openPair(url: string) {
  const bucket = bucketName();
  const healthy = await openStore({ url, bucket });
  let judge: Judge = () => 'sent';
  const faulty = nats({ ...(await faultyOptions(url, (subject) => judge(subject))), bucket });
  await faulty.open();
  atEnd(() => {
    judge = () => 'sent';
    return faulty.close();
  });
  const suffer = (next: Judge): void => {
    judge = next;
  };
  return { healthy, faulty, suffer, bucket };
}

/** The first request whose subject fits meets the fate, the others are sent. */
function once(part: string, fate: Fate): Judge {
  let isOver = false;
  return (subject) => {
    if (isOver || !subject.includes(part)) return 'sent';
    isOver = true;
    return fate;
  };
}

/** From the first request whose subject fits, which meets the fate, nothing leaves any more. */
function dyingAt(part: string, fate: Fate): Judge {
  let isDead = false;
  return (subject) => {
    if (isDead) return 'swallowed';
    isDead = subject.includes(part);
    return isDead ? fate : 'sent';
  };
}

const every =
  (part: string, fate: Fate): Judge =>
  (subject) =>
    subject.includes(part) ? fate : 'sent';

function claim(store: EntryStore, now = SAMPLE_AT) {
  return store.claim({
    lane: 'delivery',
    states: ['incoming', 'deferred', 'active'],
    max: 10,
    now,
    leaseMs: SAMPLE_LEASE_MS,
    holder: `${store.instance}:1`,
  });
}

const idsOf = async (store: EntryStore) =>
  (await store.list({ limit: 500 })).entries.map(({ envelope }) => envelope.id);

const keyed = (id: string) => sampleEntry(id, { dedupeKey: 'k' });
const unavailable = { code: 'store.unavailable' };

withService('nats', (url) => {
  test('an entry whose writer died before its dedupe key is there for nobody', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer(dyingAt('.d.', 'swallowed'));
    await expect(faulty.insert([keyed('a')])).rejects.toMatchObject(unavailable);
    expect(await healthy.get('a')).toBeUndefined();
    expect(await idsOf(healthy)).toEqual([]);
    expect(await claim(healthy)).toEqual([]);
    expect(await healthy.tally('state', {})).toEqual([]);
    expect(await healthy.insert([keyed('b')])).toEqual(['stored']);
    expect(await idsOf(healthy)).toEqual(['b']);
    expect(await healthy.insert([keyed('a')])).toEqual([{ duplicateOf: 'b' }]);
  });

  test('an entry whose writer died before its dedupe key can be sent again', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer(dyingAt('.d.', 'swallowed'));
    await expect(faulty.insert([keyed('a')])).rejects.toMatchObject(unavailable);
    await healthy.insert([keyed('a')]);
    expect((await claim(healthy)).map(({ envelope }) => envelope.id)).toEqual(['a']);
    expect(await healthy.insert([keyed('c')])).toEqual([{ duplicateOf: 'a' }]);
  });

  test('an entry whose writer died right after its dedupe key is there', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer(dyingAt('.d.', 'answer lost'));
    await expect(faulty.insert([keyed('a')])).rejects.toMatchObject(unavailable);
    expect(await healthy.insert([keyed('b')])).toEqual([{ duplicateOf: 'a' }]);
    expect(await idsOf(healthy)).toEqual(['a']);
  });

  test('a lost answer to a write is made good by repeating it', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer(once('.e.', 'answer lost'));
    expect(await faulty.insert([sampleEntry('a')])).toEqual(['stored']);
    suffer(once('.d.', 'answer lost'));
    expect(await faulty.insert([keyed('b')])).toEqual(['stored']);
    suffer(once('.e.', 'swallowed'));
    expect(await faulty.insert([sampleEntry('c')])).toEqual(['stored']);
    expect(await idsOf(healthy)).toEqual(['a', 'b', 'c']);
  });

  test('a lost answer to a claim does not lose the claim', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    await healthy.insert([sampleEntry('a')]);
    suffer(once('.e.', 'answer lost'));
    const [taken] = await claim(faulty);
    expect(taken?.status).toMatchObject({ state: 'active', revision: 2, attempts: 1 });
    expect((await healthy.get('a'))?.status).toEqual(taken?.status);
  });

  test('a lost answer to a removal or a change does not make it stale', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    const { status } = sampleEntry('m-00001');
    await faulty.insert(sampleEntries(2, 'm'));
    suffer(once('m-00000', 'answer lost'));
    expect(await faulty.commit([{ id: 'm-00000', revision: 1, to: 'remove' }])).toEqual(['done']);
    suffer(once('m-00001', 'answer lost'));
    const to = { ...status, state: 'hold' as const, dueAt: null, revision: 2 };
    expect(await faulty.commit([{ id: 'm-00001', revision: 1, to }])).toEqual(['done']);
    expect(await healthy.get('m-00000')).toBeUndefined();
    expect((await healthy.get('m-00001'))?.status.revision).toBe(2);
  });

  test('a dedupe key whose owner was removed without it is free', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    await faulty.insert([keyed('a')]);
    suffer((subject) => (/MSG\.DELETE|\.g\./.test(subject) ? 'swallowed' : 'sent'));
    expect(await faulty.commit([{ id: 'a', revision: 1, to: 'remove' }])).toEqual(['done']);
    expect(await healthy.insert([keyed('b')])).toEqual(['stored']);
    expect(await healthy.insert([keyed('c')])).toEqual([{ duplicateOf: 'b' }]);
    suffer(() => 'sent');
  });

  test('a dedupe key taken for an id that was there already stands in nobody’s way', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    await healthy.insert([sampleEntry('a')]);
    suffer(dyingAt('MSG.DELETE', 'swallowed'));
    await expect(faulty.insert([keyed('a')])).rejects.toMatchObject(unavailable);
    expect(await healthy.insert([keyed('b')])).toEqual(['stored']);
    expect(await idsOf(healthy)).toEqual(['a', 'b']);
  });

  test('an insert that fails for one takes back the others', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer((subject) => (subject.endsWith('m-00003') ? 'swallowed' : 'sent'));
    await expect(faulty.insert(sampleEntries(6, 'm'))).rejects.toMatchObject(unavailable);
    expect(await idsOf(healthy)).toEqual([]);
    suffer(() => 'sent');
    expect(await faulty.insert(sampleEntries(6, 'm'))).toEqual(Array(6).fill('stored'));
  });

  test('a call with very many entries ends well when the connection ends in the middle', async () => {
    const bucket = bucketName();
    const healthy = await openStore({ url: url(), bucket });
    const connection = await plainConnection(url());
    const store = nats({ connection, bucket });
    await store.open();
    const insert = store.insert(sampleEntries(20_000, 'm'));
    await connection.close();
    await expect(insert).rejects.toMatchObject(unavailable);
    await store.close();
    const [row] = await healthy.tally('state', {});
    expect(row?.count ?? 0).toBeLessThan(20_000);
  });

  test('an insert of unknown outcome is known by sending it again', async () => {
    const { healthy, faulty, suffer } = await openPair(url());
    suffer(every('.e.', 'answer lost'));
    await expect(faulty.insert([sampleEntry('a')])).rejects.toMatchObject(unavailable);
    suffer(() => 'sent');
    expect(await faulty.insert([sampleEntry('a')])).toEqual([{ duplicateOf: 'a' }]);
    expect(await idsOf(healthy)).toEqual(['a']);
  });

  test('what a dead process left unborn is swept out when it looks the same ten minutes later', async () => {
    const { faulty, suffer, bucket } = await openPair(url());
    suffer(dyingAt('.d.', 'swallowed'));
    await expect(faulty.insert([keyed('a')])).rejects.toMatchObject(unavailable);
    const sweeps: (() => void)[] = [];
    const after: Clock['after'] = (ms, call) => {
      if (ms !== 600_000) return systemClock.after(ms, call);
      sweeps.push(call);
      return () => {};
    };
    const later = nats({ url: url(), bucket, clock: { ...systemClock, after } });
    await later.open();
    const plain = await plainConnection(url());
    const count = async () => {
      const ask = JSON.stringify({ subjects_filter: `$KV.${bucket}.e.>` });
      const answer = await plain.request(`$JS.API.STREAM.INFO.KV_${bucket}`, ask);
      const { state } = answer.json<{ state: { subjects?: object } }>();
      return Object.keys(state.subjects ?? {}).length;
    };
    expect(await count()).toBe(1);
    for (const sweep of sweeps.splice(0)) sweep();
    await later.close();
    expect(await count()).toBe(0);
  });
});
