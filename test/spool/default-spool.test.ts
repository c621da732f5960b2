/** createSpool() as users first meet it: SQLite and files in a folder, real time (R48). */
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSpool, fixed, type Spool } from 'respool';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytesOf } from './setup.ts';

describe('the embedded default', () => {
  let folder: string;
  let spools: Spool[];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'respool-'));
    spools = [];
  });
  afterEach(async () => {
    for (const spool of spools) await spool.stop();
    await rm(folder, { recursive: true, force: true });
  });
  function make(options: Parameters<typeof createSpool>[0] = {}): Spool {
    const spool = createSpool({ path: join(folder, 'spool'), ...options });
    spools.push(spool);
    return spool;
  }

  test('does nothing before it is used, and keeps everything in its folder then', async () => {
    const spool = make();
    expect(existsSync(join(folder, 'spool'))).toBe(false);
    const { id } = await spool.enqueue({ topic: 'a', body: 'hello' });
    expect(existsSync(join(folder, 'spool'))).toBe(true);
    expect(String(await bytesOf(await spool.body(id)))).toBe('hello');
  });

  test('keeps a large body of a message with the longest id', async () => {
    const spool = make();
    const id = 'a'.repeat(64);
    const body = Buffer.alloc(100_000, 'z');
    await spool.enqueue({ id, topic: 'a', body });
    expect((await bytesOf(await spool.body(id))).equals(body)).toBe(true);
    expect(await spool.operator({ by: 'ops' }).check()).toMatchObject({ bodies: 1, findings: [] });
  });

  test('promises to survive a power cut', async () => {
    const spool = make({ requireDurability: 'power-loss' });
    await spool.start();
  });

  test('delivers after a restart what was left before it, small and large', async () => {
    const first = make();
    const large = Buffer.alloc(300_000, 'x');
    await first.enqueueMany([
      { topic: 'a', body: 'small' },
      { topic: 'a', body: large },
    ]);
    await first.stop();
    const second = make();
    const sizes = new Promise<number[]>((resolve) => {
      const seen: number[] = [];
      second.handle('a', async (delivery) => {
        seen.push((await delivery.body()).byteLength);
        if (seen.length === 2) resolve(seen.toSorted((one, other) => one - other));
      });
    });
    await second.start();
    expect(await sizes).toEqual([5, 300_000]);
  });

  test('retries, bounces and archives as in memory', async () => {
    const spool = make({
      policies: { default: fixed('10ms', { attempts: 3 }) },
      retention: { bounced: { archive: '1d' } },
    });
    let attempts = 0;
    spool.handle('a', () => {
      attempts += 1;
      throw new Error('no');
    });
    const bounced = new Promise<string>((resolve) => {
      spool.on('bounced', ({ id }) => resolve(id));
    });
    await spool.start();
    const { id } = await spool.enqueue({ topic: 'a' });
    expect(await bounced).toBe(id);
    expect(attempts).toBe(3);
    expect((await spool.get(id))?.status).toMatchObject({ state: 'archived', ending: 'bounced' });
  });

  test('streams a large body in and out through a transaction', async () => {
    const spool = make();
    const tx = await spool.begin({ topic: 'a' });
    for (let at = 0; at < 20; at += 1) await tx.write(Buffer.alloc(100_000, at));
    await tx.commit();
    const body = await bytesOf(await spool.body(tx.id));
    expect(body.byteLength).toBe(2_000_000);
    expect(body[1_950_000]).toBe(19);
    expect((await spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });
});
