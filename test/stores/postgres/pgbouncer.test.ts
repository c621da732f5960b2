/** pgbouncer — the whole suite through a pool in transaction mode, with LISTEN beside it. */

import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { service, withService } from '../../services/index.ts';
import { runBodies, runEntries } from './conformance.ts';
import { dropFileSchemas, openStore, ownSchema, serverUrl } from './setup.ts';

withService('pgbouncer', (url) => {
  dropFileSchemas();
  runEntries('through pgbouncer', () => service('pgbouncer'), { isOrdered: true });
  runBodies('through pgbouncer', () => service('pgbouncer'));

  test('with "listenUrl" a store behind pgbouncer is woken by another', async () => {
    const [schema, listenUrl] = [ownSchema(), await serverUrl()];
    const one = await openStore({ url: url(), schema, listenUrl });
    const two = await openStore({ url: url(), schema, listenUrl });
    const woken = new Promise<void>((resolve) => two.watch?.(resolve));
    await one.insert([sampleEntry('a')]);
    await woken;
    expect((await two.get('a'))?.envelope.id).toBe('a');
  });
});
