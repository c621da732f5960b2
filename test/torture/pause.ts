/**
 * pause — stops a process in mid-handler for longer than its lease, lets a second one take over,
 * and lets the first one go on. Needs a store for several processes, embedded or on a server.
 *
 *   A begins ─SIGSTOP─▶ lease over ─▶ B delivers ─▶ SIGCONT ─▶ A settles: too late, not accepted
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { judgeRun, type Judged } from './checker.ts';
import { startChild } from './child.ts';
import { onGround } from '../nodes/ground.ts';
import { inspect } from './inspect.ts';
import { Ledger } from './ledger.ts';
import { layDown } from './life.ts';
import {
  ATTEMPTS_MAX,
  CONCURRENCY,
  LEASE_MS,
  type LifeOrder,
  SPOOL_OPTIONS,
} from './life-order.ts';
import type { Place } from './places.ts';

/** What came of it. */
export interface PauseResult extends Judged {
  readonly place: Place;
  readonly pauses: number;
  /** Verdicts of the paused process that were not accepted. */
  readonly stale: number;
}

const MESSAGES = 12;
/** Long enough to be stopped in, short enough to be over within the lease. */
const SLOW_MS = 300;
const HEARING_MS = 50;

/** Pauses once for a multiple of the lease. */
export function pause(place: Place, { leases = 2.5 } = {}): Promise<PauseResult> {
  return onGround(place, async (path) => {
    const ledger = new Ledger();
    const port = await ledger.listen();
    const order: LifeOrder = { place, path, port, slowMs: SLOW_MS, endsWhenQuiet: false };
    const messages = Array.from({ length: MESSAGES }, (_, at) => ({
      key: `m${at}`,
      topic: 'slow',
      plan: 'ok' as const,
    }));
    await layDown(place, path, ledger, messages);
    const first = startChild('life-child.ts', order);
    try {
      await ledger.until(() => ledger.effects.length >= 1);
      first.signal('SIGSTOP');
      const pausedAt = performance.now();
      // What it had said before is heard; on a slow machine it may have finished something.
      await sleep(HEARING_MS);
      const finished = ledger.completions.size;
      const second = startChild('life-child.ts', { ...order, endsWhenQuiet: true });
      const { signal } = await second.ended;
      await sleep(Math.max(0, pausedAt + leases * LEASE_MS - performance.now()));
      const whilePaused = [...ledger.completions.values()].length;
      first.signal('SIGCONT');
      // It must have had its say: every handler it had begun comes to a verdict, to be refused.
      const begun = ledger.effects.filter(({ pid, kind }) => pid === first.pid && kind === 'begun');
      await ledger.until(() => ledger.stale + secondTimes(ledger) >= begun.length - finished);
      first.signal('SIGTERM');
      await Promise.all([first.ended, ledger.alone()]);
      const complaints = [first.complaint(), second.complaint()].filter((text) => text !== '');
      if (signal !== null) complaints.push('the second process did not end by itself');
      if (whilePaused < MESSAGES) complaints.push(`${whilePaused} of ${MESSAGES} were taken over`);
      return await verdict(place, path, ledger, complaints);
    } finally {
      first.signal('SIGKILL');
      ledger.close();
    }
  });
}

/** Verdicts that were accepted for a message that had one: what must never be. */
function secondTimes({ completions }: Ledger): number {
  return [...completions.values()].reduce((sum, times) => sum + times - 1, 0);
}

async function verdict(
  place: Place,
  path: string,
  ledger: Ledger,
  complaints: readonly string[],
): Promise<PauseResult> {
  const sight = await inspect(place, path, { options: SPOOL_OPTIONS });
  const judged = judgeRun({
    facts: ledger,
    found: sight.entries,
    kills: 0,
    concurrency: CONCURRENCY,
    attemptsMax: ATTEMPTS_MAX,
  });
  const undone = sight.entries.filter(({ state }) => state !== 'archived');
  const more = undone.map(({ key, state }) => `${key} went back to ${state}`);
  const all = [...judged.complaints, ...complaints, ...more];
  return { ...judged, complaints: all, place, pauses: 1, stale: ledger.stale };
}
