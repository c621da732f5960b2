/** The effect of options that no other test sees on its own; docs/project/features.md names them. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { SimClock } from 'respool/testkit';
import { expect, test } from 'vitest';

test('sync of filesystemBodies decides what the store promises', () => {
  const promise = (sync: 'full' | 'batch' | 'none') =>
    filesystemBodies({ path: 'somewhere', sync }).traits.durability;
  expect(promise('full')).toBe('power-loss');
  expect(promise('batch')).toBe('power-loss');
  expect(promise('none')).toBe('process');
});

test('clock of filesystem tells since when the folder has its owner', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'respool-docs-'));
  const store = filesystem({ path: folder, clock: new SimClock() });
  try {
    await store.open();
    const owner = await readFile(path.join(folder, 'lock.owner'), 'utf8');
    expect(owner).toContain('since 2026-01-01T00:00:00.000Z');
  } finally {
    await store.close();
    await rm(folder, { recursive: true, force: true });
  }
});
