/**
 * powercut — pulls the plug under a busy program: its disk is an image, and what of it has reached
 * the image is mounted elsewhere and looked into.
 *
 *   child at work ─stopped─▶ copy of the image ─▶ mount ─▶ look ─▶ judge     child goes on ─▶ …
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createChance } from './chance.ts';
import { judgeRun, type Judged } from './checker.ts';
import { startChild } from './child.ts';
import { ATTEMPTS_MAX, CONCURRENCY, type CrashOrder, SPOOL_OPTIONS } from './crash-order.ts';
import { inFolder } from './folder.ts';
import { type Image, withImage } from './image.ts';
import { inspect } from './inspect.ts';
import { Ledger } from './ledger.ts';
import type { Place } from './places.ts';

/** What came of all cuts; the counts are of the last one, the complaints of all. */
export interface PowercutResult extends Judged {
  readonly place: Place;
  readonly seed: number;
  readonly cuts: number;
  readonly worstRecoveryMs: number;
}

/** Words to the ledger between two cuts. */
const WORDS = [50, 300] as const;

/** Cuts the power `cuts` times. */
export function powercut(
  place: Place,
  { cuts, seed }: { readonly cuts: number; readonly seed: number },
): Promise<PowercutResult> {
  return inFolder((folder) =>
    withImage(folder, async (image) => {
      const ledger = new Ledger();
      const port = await ledger.listen();
      const chance = createChance(seed);
      const path = join(image.path, 'spool');
      const order: CrashOrder = { place, path, port, seed, round: 1, mode: 'endless' };
      const child = startChild('crash-child.ts', order);
      let last: Judged | undefined;
      let worstRecoveryMs = 0;
      const complaints: string[] = [];
      try {
        await child.line('started');
        for (let cut = 1; cut <= cuts; cut += 1) {
          await Promise.race([ledger.heard(chance.between(...WORDS)), failWhenOver(child)]);
          child.signal('SIGSTOP');
          const { judged, recoveryMs } = await judgeCut(image, ledger, place);
          child.signal('SIGCONT');
          last = judged;
          worstRecoveryMs = Math.max(worstRecoveryMs, recoveryMs);
          complaints.push(...judged.complaints.map((text) => `cut ${cut}: ${text}`));
        }
      } finally {
        child.signal('SIGKILL');
        await child.ended;
        ledger.close();
      }
      if (last === undefined) throw new Error('no power cut was asked for');
      if (child.complaint() !== '') complaints.push(child.complaint());
      return { ...last, complaints, place, seed, cuts, worstRecoveryMs };
    }),
  );
}

/**
 * Whether the method works here: what was synced is in a cut, what was only written is not. Without
 * this no result of `powercut` means anything.
 */
export function cutsForget(): Promise<boolean> {
  return inFolder((folder) =>
    withImage(folder, async (image) => {
      await writeFile(join(image.path, 'synced'), 'synced', { flush: true });
      await writeFile(join(image.path, 'written'), 'written');
      return image.cut(async (path) => {
        const read = (name: string): Promise<string> =>
          readFile(join(path, name), 'utf8').catch(() => '');
        return (await read('synced')) === 'synced' && (await read('written')) !== 'written';
      });
    }),
  );
}

async function judgeCut(
  image: Image,
  ledger: Ledger,
  place: Place,
): Promise<{ readonly judged: Judged; readonly recoveryMs: number }> {
  const facts = ledger.snapshot();
  const sight = await image.cut((path) =>
    inspect(place, join(path, 'spool'), { options: SPOOL_OPTIONS }),
  );
  const judged = judgeRun({
    facts,
    found: sight.entries,
    kills: 0,
    concurrency: CONCURRENCY,
    attemptsMax: ATTEMPTS_MAX,
    isAtRest: false,
  });
  const more = [
    ...sight.corrupt.map((text) => `cannot be read: ${text}`),
    ...sight.findings.map(({ kind, where, text }) => `check found ${kind} at ${where}: ${text}`),
  ];
  const complaints = [...judged.complaints, ...more];
  return { judged: { ...judged, complaints }, recoveryMs: Math.round(sight.openMs) };
}

async function failWhenOver(child: ReturnType<typeof startChild>): Promise<never> {
  await child.ended;
  throw new Error(`the program under test ended by itself: ${child.complaint()}`);
}
