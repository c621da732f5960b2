/**
 * spool — enqueue and end-to-end rates of the embedded stores beside the raw limit of their storage.
 */

import { filesystem, filesystemBodies } from 'respool/stores/filesystem';
import { sqlite } from 'respool/stores/sqlite';
import { join } from 'node:path';
import { type BenchOptions, runCase } from './measure.ts';
import { endToEndRate, enqueueRate, type Load, type StoreMaker } from './ours.ts';
import { rawFileRate } from './raw-files.ts';
import { rawInsertRate, rawLifecycleRate } from './raw-sqlite.ts';

const BODY_BYTES = 1_024;
const IN_FLIGHT = [1, 5, 50, 500];
/** The cases that have a target. */
const QUICK = new Set([
  'sqlite enqueue 50 1 KiB',
  'sqlite end-to-end 50 1 KiB',
  'sqlite end-to-end 500 1 KiB',
  'filesystem end-to-end 50 1 KiB',
]);

const onSqlite: StoreMaker = (path) => ({
  entries: sqlite({ path }),
  bodies: filesystemBodies({ path: join(path, 'bodies') }),
});
const onFiles: StoreMaker = (path) => ({
  entries: filesystem({ path: join(path, 'entries') }),
  bodies: filesystemBodies({ path: join(path, 'bodies') }),
});

/** Runs every case, or the quick ones. */
export async function spoolBench(options: BenchOptions): Promise<void> {
  const forMs = options.isQuick ? 1_300 : 2_500;
  for (const inFlight of IN_FLIGHT) {
    const load = (ms: number): Load => ({ inFlight, bodyBytes: BODY_BYTES, forMs: ms });
    const cases = [
      { store: 'sqlite', what: 'enqueue', ours: enqueueRate, make: onSqlite, raw: rawInsertRate },
      {
        store: 'sqlite',
        what: 'end-to-end',
        ours: endToEndRate,
        make: onSqlite,
        raw: rawLifecycleRate,
      },
      { store: 'filesystem', what: 'enqueue', ours: enqueueRate, make: onFiles, raw: rawFileRate },
      {
        store: 'filesystem',
        what: 'end-to-end',
        ours: endToEndRate,
        make: onFiles,
        raw: rawFileRate,
      },
    ];
    for (const { store, what, ours, make, raw } of cases) {
      const name = `${store} ${what} ${inFlight} 1 KiB`;
      if (options.isQuick && !QUICK.has(name)) continue;
      await runCase(
        {
          bench: 'spool',
          name,
          unit: '/s',
          against: 'raw',
          forMs,
          ours: (ms) => ours(make, load(ms)),
          theirs: (ms) => raw(load(ms)),
        },
        options,
      );
    }
  }
}
