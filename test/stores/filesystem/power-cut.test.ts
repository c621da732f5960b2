/**
 * Whatever moment the power goes: nothing that was acknowledged is lost, misread or resurrected.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { SAMPLE_AT, sampleEntry, seededDice, SimClock } from 'respool/testkit';
import { filesystem } from 'respool/stores/filesystem';
import type { Change, Duplicate, Entry, Status } from 'respool';
import { handedOffStatus } from '../../../src/core/next-status.ts';
import { Catalog } from '../../../src/stores/filesystem/catalog.ts';
import { Disk } from '../../../src/stores/filesystem/disk.ts';
import { Files } from '../../../src/stores/filesystem/files.ts';
import { Writer } from '../../../src/stores/filesystem/writer.ts';
import { Operations } from '../../../src/stores/shared/operations.ts';
import { PowerCutDisk } from './power-cut-disk.ts';

const SEEDS = 30;
const STEPS = 60;

/** What the caller was told of a message. */
interface Told {
  readonly body: string;
  /** The lowest revision that may be found. */
  revision: number;
  /** Whether it may be gone, and whether it may still be there. */
  mayBeGone: boolean;
  mustBeGone: boolean;
}

describe('after a power cut', () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    test(`what was acknowledged is there, and nothing is corrupt (seed ${seed})`, async () => {
      const world = makeWorld(seed);
      for (let step = 0; step < STEPS; step += 1) await world.step();
      // The last calls are cut off in the middle: they were never acknowledged.
      world.startAndForget();
      const folder = await mkdtemp(join(tmpdir(), 'respool-cut-'));
      try {
        await world.cutAndCheck(folder);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    });
  }
});

function makeWorld(seed: number) {
  const dice = seededDice(seed);
  const disk = new PowerCutDisk();
  const files = new Files('/store', disk.fileCalls);
  const work = new Disk(files, { sync: 'batch', spareMax: 20 });
  work.directories.make();
  const catalog = new Catalog();
  const clock = new SimClock();
  const writer = new Writer({
    thread: { run: (batch) => work.run(batch) },
    catalog,
    damages: [],
    clock,
    operations: new Operations('entries', clock),
    path: '/store',
  });
  const told = new Map<string, Told>();
  let made = 0;
  /** Whether one step is taken at a time, so that what the catalog says is what was answered. */
  let isAlone = true;

  const chance = (one: number): boolean => dice.random() < one;

  async function insert(): Promise<void> {
    const entries = Array.from({ length: 1 + Math.floor(dice.random() * 3) }, () => {
      made += 1;
      const body = `body of ${made}`.repeat(1 + Math.floor(dice.random() * 500));
      const entry = sampleEntry(`m-${made}`, { bytes: Buffer.from(body) });
      const hold = { now: SAMPLE_AT, leaseMs: 1_000, holder: 'x:own' };
      return chance(0.5) ? entry : { ...entry, status: handedOffStatus(entry.status, hold) };
    });
    await writer.ask<readonly ('stored' | Duplicate)[]>({ kind: 'insert', entries });
    for (const { envelope, inlineBody } of entries) {
      told.set(envelope.id, {
        body: Buffer.from(inlineBody ?? []).toString(),
        revision: 1,
        mayBeGone: false,
        mustBeGone: false,
      });
    }
  }

  async function claim(): Promise<void> {
    const lane = { lane: 'delivery', states: ['incoming', 'deferred', 'active'] } as const;
    const request = { ...lane, max: 3, now: SAMPLE_AT + 500, leaseMs: 1_000, holder: 'x:1' };
    await writer.ask<readonly Entry[]>({ kind: 'claim', request });
  }

  async function commit(): Promise<void> {
    const isDurable = chance(0.4);
    const some = [...catalog.byId.values()].filter(() => chance(0.3));
    const changes = some.map((held): Change => {
      const { id, revision, holder } = held;
      const guard = { id, revision, ...(holder === undefined ? {} : { holder }) };
      if (chance(0.5)) return { ...guard, to: 'remove' };
      const base = sampleEntry(id).status;
      const to: Status = { ...base, revision: revision + 1, state: 'deferred', attempts: 1 };
      const notes = chance(0.5) ? { said: `step ${revision}` } : base.notes;
      return { ...guard, to: { ...to, notes, dueAt: SAMPLE_AT + Math.floor(dice.random() * 900) } };
    });
    // From here on the change may have happened; afterwards, if durable, it must have.
    for (const { id, to } of changes) if (to === 'remove') noteGone(id, false);
    await writer.ask({ kind: 'commit', changes, isDurable });
    // A change of nothing is no write, and brings nothing else to the disk.
    if (!isDurable || changes.length === 0 || !isAlone) return;
    for (const { id, to } of changes) {
      if (to === 'remove') noteGone(id, true);
      else noteRevision(id, to.revision);
    }
    // Everything lazy before it is on the disk with it.
    for (const [id, each] of told) {
      const held = catalog.byId.get(id);
      if (held === undefined) each.mustBeGone = true;
      else noteRevision(id, held.revision);
    }
  }

  function noteGone(id: string, isSure: boolean): void {
    const each = told.get(id);
    if (each === undefined) return;
    each.mayBeGone = true;
    each.mustBeGone ||= isSure;
  }

  function noteRevision(id: string, revision: number): void {
    const each = told.get(id);
    if (each !== undefined) each.revision = Math.max(each.revision, revision);
  }

  function step(): Promise<void> {
    const roll = dice.random();
    if (roll < 0.4) return insert();
    return roll < 0.65 ? claim() : commit();
  }

  return {
    step,
    startAndForget() {
      isAlone = false;
      const stopAt = disk.calls + Math.floor(dice.random() * 30);
      disk.trouble = (_call, count) => (count > stopAt ? 'EIO' : undefined);
      void Promise.allSettled([step(), step(), step()]);
    },
    async cutAndCheck(folder: string) {
      disk.cut(dice, folder);
      // What is answered after the cut was never answered.
      const known = structuredClone(told);
      const store = filesystem({ path: folder });
      await store.open();
      try {
        const { corrupt } = await store.list({ limit: 1 });
        expect(corrupt).toEqual([]);
        for (const [id, { body, revision, mayBeGone, mustBeGone }] of known) {
          const entry = await store.get(id);
          if (entry === undefined) {
            expect({ id, mayBeGone }).toEqual({ id, mayBeGone: true });
            continue;
          }
          expect({ id, mustBeGone }).toEqual({ id, mustBeGone: false });
          expect(Buffer.from(entry.inlineBody ?? []).toString()).toBe(body);
          expect(entry.status.revision).toBeGreaterThanOrEqual(revision);
        }
      } finally {
        await store.close();
      }
    },
  };
}
