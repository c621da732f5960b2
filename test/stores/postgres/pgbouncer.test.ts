/** pgbouncer — the whole suite through a pool in transaction mode, with LISTEN beside it. */

import { expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { service, withService } from '../../services/index.ts';
import { runBodies, runEntries } from './conformance.ts';
import {
  channelOf,
  dropFileSchemas,
  openClient,
  openStore,
  ownSchema,
  serverUrl,
} from './setup.ts';

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

  test('without "listenUrl" a store behind pgbouncer polls, and leaves no LISTEN there', async () => {
    const schema = ownSchema();
    const one = await openStore({ url: url(), schema });
    const two = await openStore({ url: url(), schema });
    const woken = new Promise<void>((resolve) => two.watch?.(resolve));
    await one.insert([sampleEntry('a')]);
    await woken;
    const client = await openClient();
    const channel = channelOf(schema);
    const text = 'SELECT count(*)::int AS count FROM pg_stat_activity WHERE query = $1';
    const { rows } = await client.query(text, [`LISTEN "${channel}"`]);
    expect(rows).toEqual([{ count: 0 }]);
  });

  test('what a store behind pgbouncer writes wakes one that listens at the server', async () => {
    const schema = ownSchema();
    const one = await openStore({ url: url(), schema });
    const client = await openClient();
    const heard = new Promise((resolve) => client.once('notification', resolve));
    await client.query(`LISTEN "${channelOf(schema)}"`);
    await one.insert([sampleEntry('a')]);
    await heard;
    expect((await one.get('a'))?.envelope.id).toBe('a');
  });
});
