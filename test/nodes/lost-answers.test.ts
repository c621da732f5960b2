/**
 * Two nodes on one store, and the answer to an insert of one of them is lost: it does not know that
 * the other has long delivered what it is about to store again.
 */
import { expect, test } from 'vitest';
import { nats } from '../../src/stores/nats/index.ts';
import { changeOf, claimRequest } from '../../src/testkit/entry-cases/shared.ts';
import { sampleEntry } from '../../src/testkit/samples.ts';
import { withService } from '../services/index.ts';
import { pathOn } from './ground.ts';
import { FaultProxy } from './proxy.ts';

withService('nats', (url) => {
  test('a message that was delivered and removed is not stored again by an insert that repeats', async () => {
    await using proxy = await FaultProxy.start(url());
    const [, bucket = ''] = pathOn('nats', [url()]).split('#');
    await using own = await opened(proxy.url, bucket);
    await using other = await opened(url(), bucket);
    proxy.spoil('hold-down');
    const inserting = own.store.insert([sampleEntry('a')]);
    const entry = await untilThere(() => other.store.get('a'));
    const [claimed = entry] = await other.store.claim(claimRequest(other.store));
    expect(await other.store.commit([changeOf(claimed, 'remove')])).toEqual(['done']);
    // All traces of it are taken out in the background; a flush does not wait for that.
    await other.store.close();
    proxy.spoil('reset');
    proxy.mend();
    expect(await inserting).toEqual(['stored']);
    expect(await own.store.get('a')).toBeUndefined();
    expect(await own.store.claim(claimRequest(own.store))).toEqual([]);
  });
});

async function opened(url: string, bucket: string) {
  const store = nats({ url, bucket });
  await store.open();
  return { store, [Symbol.asyncDispose]: () => store.close() };
}

async function untilThere<Value>(look: () => Promise<Value | undefined>): Promise<Value> {
  for (;;) {
    const value = await look();
    if (value !== undefined) return value;
  }
}
