/** R38, R202: every pair by a configuration alone, through one process after another. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { loadConfig } from '../../src/config/load/load-config.ts';
import { createConfiguredSpool } from '../../src/config/open/open-spool.ts';
import type { Spool } from 'respool';
import { BODIES, ENTRIES, usePlaces } from './places.ts';

const LARGE = Buffer.alloc(300_000, 7);
const places = usePlaces();

/** A spool as `respool serve` would make it, without its routes. */
async function openIn(folder: string): Promise<Spool> {
  const loaded = await loadConfig({ cwd: folder, env: {} });
  const { spool } = await createConfiguredSpool(loaded);
  return spool;
}

describe.concurrent('a configuration with entries and bodies', () => {
  for (const entries of ENTRIES) {
    for (const bodies of BODIES) {
      test(`in ${entries} and ${bodies} delivers what was accepted before a restart`, async () => {
        const folder = await mkdtemp(path.join(tmpdir(), 'respool-pair-'));
        const config = {
          entries: places.address(entries, 'entries'),
          bodies: places.address(bodies, 'bodies'),
        };
        await writeFile(path.join(folder, 'respool.config.json'), JSON.stringify(config));
        let spool = await openIn(folder);
        try {
          await spool.enqueue({ topic: 'x', body: LARGE });
          await spool.enqueue({ topic: 'x', body: 'small' });
          if (entries !== 'memory' && bodies !== 'memory') {
            await spool.stop();
            spool = await openIn(folder);
          }
          const got: number[] = [];
          await new Promise<void>((resolve, reject) => {
            spool.handle('x', async (delivery) => {
              got.push((await delivery.body()).byteLength);
            });
            spool.on('delivered', () => got.length === 2 && resolve());
            spool.on('deferred', ({ id }) => reject(new Error(`${id} was deferred`)));
            spool.start().catch(reject);
          });
          await spool.stop();
          expect(got.toSorted((a, b) => a - b)).toEqual([5, 300_000]);
        } finally {
          await spool.stop();
          await rm(folder, { recursive: true, force: true });
        }
      });
    }
  }
});
