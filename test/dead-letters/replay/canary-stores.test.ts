/**
 * Canaries in every store, with one process that replays and another that delivers: what is gone
 * was delivered only where that is on record.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PermanentError, type Spool } from 'respool';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createSpoolLetters, planReplay, resumeReplay, runReplay } from 'respool/dead-letters';
import { loadConfig } from '../../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../../src/config/open/open-spool.ts';
import { ENTRIES, usePlaces } from '../../spool/places.ts';
import { all } from '../../spool/setup.ts';

const places = usePlaces();
const SOURCE = { kind: 'spool', kinds: ['dead'] } as const;
const COUNT = 6;
/** One owner: there the process that delivers is the one that replays. */
const SINGLE = ['filesystem', 'memory'];

/** Two processes over a fresh place of this kind, and letters that one of them plans to replay. */
async function setup(kind: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-canaries-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const config = {
    entries: places.address(kind, 'entries'),
    bodies: places.address(kind, 'bodies'),
  };
  await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(config));
  const open = async (): Promise<Spool> => {
    const { spool } = await createConfiguredSpool(await loadConfig({ cwd: folder, env: {} }));
    onTestFinished(() => spool.stop());
    return spool;
  };
  const spool = await open();
  const other = SINGLE.includes(kind) ? spool : await open();
  for (let at = 0; at < COUNT; at += 1) {
    const { id } = await spool.enqueue({ topic: 'mail', body: 'x' });
    await spool.process(id, () => {
      throw new PermanentError('mail.refused', 'no such user');
    });
  }
  const operator = spool.operator({ by: 'ann' });
  const letters = createSpoolLetters(operator, { kinds: ['dead'] });
  const options = { canary: 3, canaryWait: '0s' } as const;
  const { id } = await planReplay(operator, letters, SOURCE, options);
  return { spool, other, operator, letters, id };
}

/** Begins to deliver, and resolves when so many were delivered. */
async function deliver(spool: Spool, count: number): Promise<void> {
  const done = Promise.withResolvers<void>();
  let delivered = 0;
  spool.on('delivered', () => {
    delivered += 1;
    if (delivered === count) done.resolve();
  });
  spool.handle('mail', () => undefined);
  await spool.start();
  await done.promise;
}

async function sentIds(spool: Spool): Promise<string[]> {
  const entries = await all(spool.list({ state: 'incoming' }));
  return entries.map(({ envelope }) => envelope.id);
}

describe.each(ENTRIES)('in %s', (kind) => {
  test('canaries that another process delivered passed, though nothing is left of them', async () => {
    const { spool, other, operator, letters, id } = await setup(kind);
    const stopped = await runReplay(operator, letters, id);
    expect(stopped).toMatchObject({ state: 'stopped', canaries: { waiting: 3 } });
    const ids = await sentIds(spool);
    expect(ids).toHaveLength(3);
    await deliver(other, 3);
    await expect.poll(async () => (await operator.page({ ids })).entries).toEqual([]);
    expect(await resumeReplay(operator, letters, id)).toMatchObject({
      state: 'done',
      counts: { sent: COUNT, again: 0 },
      canaries: { passed: 3, failed: 0, waiting: 0 },
    });
  });

  test('a canary that was removed by hand stops it, and nothing else is sent', async () => {
    const { spool, other, operator, letters, id } = await setup(kind);
    await runReplay(operator, letters, id);
    const [first = '', ...ids] = await sentIds(spool);
    await operator.remove([first], { hard: true });
    await deliver(other, 2);
    await expect.poll(async () => (await operator.page({ ids })).entries).toEqual([]);
    expect(await resumeReplay(operator, letters, id)).toMatchObject({
      state: 'stopped',
      counts: { sent: 3 },
      canaries: { passed: 2, failed: 0, waiting: 0, removed: 1 },
      because:
        '2 of 3 canaries were delivered, 1 was removed before it was delivered; ' +
        'nothing else was sent',
    });
    expect((await spool.count()).bounce).toBe(COUNT - 3);
  });
});
