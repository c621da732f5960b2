/**
 * Two nodes on one store, and the answer to an insert of one of them is lost: it does not know that
 * the other has long delivered what it is about to store again.
 */
import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { postgres } from 'respool/stores/postgres';
import { nats } from 'respool/stores/nats';
import { withService } from '../services/index.ts';
import { onGround } from './ground.ts';
import { FaultProxy } from './proxy.ts';
import { claimRequest, entryChange } from '../stores/requests.ts';

withService('nats', (url) => {
  test('on NATS, a message that was delivered and removed is not stored again by a repeated insert', async () => {
    expect(await storedAgain('nats', url())).toBe(false);
  });
});

withService('postgres', (url) => {
  test('on PostgreSQL, a message that was delivered and removed is not stored again by a repeated insert', async () => {
    expect(await storedAgain('postgres', url())).toBe(false);
  });
});

/** Whether an insert without an answer brings back what another node removed meanwhile. */
async function storedAgain(place: 'nats' | 'postgres', url: string): Promise<boolean> {
  return onGround(place, async (path) => {
    const [, name = ''] = path.split('#');
    await using proxy = await FaultProxy.start(url);
    await using own = await opened(place, proxy.url, name);
    await using other = await opened(place, url, name);
    proxy.spoil('hold-down');
    const inserting = own.store.insert([sampleEntry('a')]);
    const entry = await untilThere(() => other.store.get('a'));
    const [claimed = entry] = await other.store.claim(claimRequest(other.store));
    expect(await other.store.commit([entryChange(claimed, 'remove')])).toEqual(['done']);
    // The last traces go in the background, and before the end.
    await other.store.close();
    proxy.spoil('reset');
    proxy.recover();
    expect(await inserting).toEqual(['stored']);
    const isThere = (await own.store.get('a')) !== undefined;
    expect(await own.store.claim(claimRequest(own.store))).toHaveLength(isThere ? 1 : 0);
    return isThere;
  });
}

async function opened(place: 'nats' | 'postgres', url: string, name: string) {
  const store = place === 'nats' ? nats({ url, bucket: name }) : postgres({ url, schema: name });
  await store.open();
  return { store, [Symbol.asyncDispose]: () => store.close() };
}

async function untilThere<Value>(look: () => Promise<Value | undefined>): Promise<Value> {
  for (;;) {
    const value = await look();
    if (value !== undefined) return value;
  }
}
