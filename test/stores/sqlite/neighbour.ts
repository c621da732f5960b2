/**
 * Run as a program by processes.test.ts: another process on the same file. It does what it is told, says
 * what came of it, and lives until it is killed or its parent lets go.
 */

import { sqlite } from 'respool/stores/sqlite';
import { sampleEntry } from 'respool/testkit';
import { claimOf } from './requests.ts';

const [path = '', thread = ''] = process.argv.slice(2);
const store = sqlite({ path, thread: thread === 'thread' });
await store.open();

process.on('message', (order: { readonly insert?: string; readonly claim?: number }) => {
  void obey(order);
});
process.send?.(store.instance);

async function obey({
  insert,
  claim,
}: {
  readonly insert?: string;
  readonly claim?: number;
}): Promise<void> {
  if (insert !== undefined) process.send?.(await store.insert([sampleEntry(insert)]));
  if (claim === undefined) return;
  const taken = await store.claim(claimOf(store, { max: claim }));
  process.send?.(taken.map(({ envelope }) => envelope.id));
}
