/** What only a server before 2.10 does, on the installed one; skipped where that is newer. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { sampleEntry } from 'respool/testkit';
import { thisMachine } from '../../../scripts/services/machine.ts';
import { natsVersion } from '../../../scripts/services/nats.ts';
import { isBefore } from '../../../src/stores/nats/schema.ts';
import { diagnoseNats } from '../../../src/stores/nats/diagnose.ts';
import { nats, natsBodies } from 'respool/stores/nats';
import { privateServer, skipReason } from '../../services/index.ts';
import { rewindableServer } from './rewindable-server.ts';
import { bucketName } from './setup.ts';

/** The installed server, or why these tests do not run. */
async function installed(): Promise<{ readonly command: string; readonly reason: string }> {
  const skipped = skipReason('nats');
  if (skipped !== undefined) return { command: '', reason: skipped };
  const machine = thisMachine();
  const command = machine.find('nats-server');
  if (command === undefined) return { command: '', reason: 'no nats-server is installed' };
  const version = await natsVersion(machine, command);
  if (!isBefore(version, [2, 10, 0])) return { command, reason: `the installed is ${version}` };
  return { command, reason: '' };
}

const { command, reason } = await installed();
const title = 'an installed server before 2.10';

describe.skipIf(reason !== '')(reason === '' ? title : `${title} (skipped: ${reason})`, () => {
  const start = () => privateServer('nats', { env: { RESPOOL_TEST_NATS_BIN: command } });

  test('promises no more than a kill of our own process, and warns when a store opens', async () => {
    await using server = await start();
    const warnings: string[] = [];
    const nothing = () => undefined;
    const warn = (_: object, text: string) => void warnings.push(text);
    const logger = { debug: nothing, info: nothing, warn, error: nothing };
    const store = nats({ url: server.url, bucket: bucketName(), logger });
    await store.open();
    expect(store.traits.durability).toBe('process');
    expect(warnings.join()).toMatch(/^NATS 2\.\d\.\d+ can lose what it acknowledged/);
    await store.close();
  });

  test('is told by the doctor, with what to do', async () => {
    await using server = await start();
    const place = { url: server.url, bucket: bucketName() };
    const { durability, findings } = await diagnoseNats(place, 'entries');
    expect(durability).toBe('process');
    const sync = findings.find(({ id }) => id === 'sync');
    expect(sync?.level).toBe('note');
    expect(sync?.text).toContain('cannot be configured to do it at once');
    expect(sync?.todo).toContain('sync_interval: always');
  });

  test('that went back is noticed by a process that is started later with a journal', async () => {
    await using server = await rewindableServer(command);
    const journal = await mkdtemp(path.join(tmpdir(), 'respool-journal-'));
    const options = { url: server.url, bucket: bucketName(), journal };
    const open = async () => {
      const store = nats(options);
      const heard: string[] = [];
      store.onTrouble?.(({ message }) => heard.push(message));
      await store.open();
      return { store, heard };
    };
    try {
      const first = await open();
      await first.store.insert([sampleEntry('a'), sampleEntry('b')]);
      await first.store.close();
      await server.save();
      const second = await open();
      expect(second.heard).toEqual([]);
      const { revision = 0 } = (await second.store.get('a'))?.status ?? {};
      await second.store.commit([{ id: 'a', revision, to: 'remove' }]);
      await second.store.close();
      await server.goBack();
      const third = await open();
      expect(third.heard.join()).toMatch(/was seen at 2.*1 that were settled came back/);
      expect(await third.store.get('a')).toBeUndefined();
      expect(await third.store.get('b')).toBeDefined();
      await third.store.close();
    } finally {
      await rm(journal, { recursive: true });
    }
  });

  test('keeps the marker of a settled message over a kill', async () => {
    await using server = await start();
    const bodies = natsBodies({ url: server.url, bucket: bucketName() });
    await bodies.open();
    const bytes = async function* () {
      yield new Uint8Array(1_000);
    };
    await bodies.put('a', bytes());
    await bodies.put('b', bytes());
    await bodies.remove(['a'], 'removed');
    await server.kill('SIGKILL');
    await server.restart();
    expect(await bodies.wasSettled?.('a')).toBe('removed');
    expect(await bodies.wasSettled?.('b')).toBeUndefined();
    await bodies.close();
  });
});
