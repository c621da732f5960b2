/**
 * crash — kills a busy program again and again at random moments, and then asks what is left.
 *
 *   ledger ◀─ child ─killed─▶ child ─killed─▶ … ─▶ child drains ─▶ look into the stores ─▶ verdict
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Chance, createChance } from './chance.ts';
import { type Judged, judgeRun } from './checker.ts';
import { type Child, startChild } from './child.ts';
import { ATTEMPTS_MAX, CONCURRENCY, type CrashOrder, SPOOL_OPTIONS } from './crash-order.ts';
import { inFolder } from './folder.ts';
import { differences, inspect, type Sight } from './inspect.ts';
import { Ledger } from './ledger.ts';
import type { Place } from './places.ts';

/** What came of a run. */
export interface CrashResult extends Judged {
  readonly place: Place;
  readonly seed: number;
  /** Ours, and those of messages that kill their process. */
  readonly kills: number;
  readonly orphans: number;
  /** The longest time from opening the stores to being at work again. */
  readonly worstRecoveryMs: number;
}

/** One kill in five falls into the beginning: while the stores are opened, the lost found again. */
const AT_THE_BEGINNING = 0.2;
const BEGINNING_MS = [10, 400] as const;
/** The others fall after so many words to the ledger: a slow machine gets as much done as a fast one. */
const WORDS = [1, 300] as const;
/** And in between two words, or when there are none to come. */
const BETWEEN_MS = [0, 15] as const;
const SILENCE_MAX_MS = 1_500;
/** Children that drain may be killed by their messages; more often than this is a fault of ours. */
const DRAINS_MAX = 200;

/** Kills `kills` times and returns the verdict. */
export function crash(
  place: Place,
  { kills, seed }: { readonly kills: number; readonly seed: number },
): Promise<CrashResult> {
  return inFolder(async (path) => {
    const ledger = new Ledger();
    const port = await ledger.listen();
    const chance = createChance(seed);
    const order = { place, path, port, seed, round: 0, mode: 'work' } as const;
    const run = new CrashRun(order, chance, ledger);
    try {
      for (let kill = 0; kill < kills; kill += 1) await run.killOnce();
      await run.drain();
      await ledger.alone();
      return await verdict(run, ledger, place, path);
    } finally {
      ledger.close();
    }
  });
}

class CrashRun {
  kills = 0;
  worstRecoveryMs = 0;
  readonly complaints: string[] = [];
  readonly #order: CrashOrder;
  readonly #chance: Chance;
  readonly #ledger: Ledger;
  #round = 0;

  constructor(order: CrashOrder, chance: Chance, ledger: Ledger) {
    this.#order = order;
    this.#chance = chance;
    this.#ledger = ledger;
  }

  get seed(): number {
    return this.#chance.seed;
  }

  async killOnce(): Promise<void> {
    const child = this.#start('work');
    const moment = this.#chance.happens(AT_THE_BEGINNING)
      ? sleep(this.#chance.between(...BEGINNING_MS))
      : this.#workingMoment(child);
    // A message may kill it before we do.
    await Promise.race([moment, child.ended]);
    child.signal('SIGKILL');
    await this.#bury(child);
  }

  async #workingMoment(child: Child): Promise<void> {
    const words = this.#chance.between(...WORDS);
    const waitMs = this.#chance.between(...BETWEEN_MS);
    await child.line('started').catch(() => undefined);
    await Promise.race([this.#ledger.heard(words), sleep(SILENCE_MAX_MS)]);
    await sleep(waitMs);
  }

  async drain(): Promise<void> {
    for (let tries = 0; tries < DRAINS_MAX; tries += 1) {
      const child = this.#start('drain');
      if ((await this.#bury(child)) === 'done') return;
    }
    this.complaints.push(`the spool did not come to rest in ${DRAINS_MAX} starts`);
  }

  #start(mode: CrashOrder['mode']): Child {
    this.#round += 1;
    const seed = this.#chance.between(1, 2 ** 30);
    return startChild('crash-child.ts', { ...this.#order, seed, round: this.#round, mode });
  }

  async #bury(child: Child): Promise<'done' | 'killed'> {
    const { code, signal } = await child.ended;
    const started = child.lines.find((line) => line.startsWith('started '));
    const recoveryMs = Number(started?.split(' ')[1] ?? 0);
    this.worstRecoveryMs = Math.max(this.worstRecoveryMs, recoveryMs);
    if (child.complaint() !== '') {
      this.complaints.push(`round ${this.#round}: ${child.complaint().slice(0, 500)}`);
    }
    if (signal === 'SIGKILL') {
      this.kills += 1;
      return 'killed';
    }
    if (code !== 0) this.complaints.push(`round ${this.#round} ended with ${code}`);
    return 'done';
  }
}

async function verdict(
  run: CrashRun,
  ledger: Ledger,
  place: Place,
  path: string,
): Promise<CrashResult> {
  const options = { ...SPOOL_OPTIONS };
  const first = await inspect(place, path, { options, repair: true });
  const second = await inspect(place, path, { options });
  const judged = judgeRun({
    facts: ledger,
    found: first.entries,
    kills: run.kills,
    concurrency: CONCURRENCY,
    attemptsMax: ATTEMPTS_MAX,
  });
  const more = [...run.complaints, ...sightComplaints(first, second)];
  return {
    ...judged,
    complaints: [...judged.complaints, ...more],
    place,
    seed: run.seed,
    kills: run.kills,
    orphans: first.orphans,
    worstRecoveryMs: run.worstRecoveryMs,
  };
}

/** What two looks in a row must not show. */
export function sightComplaints(first: Sight, second: Sight): string[] {
  return [
    ...first.corrupt.map((text) => `cannot be read: ${text}`),
    ...first.findings.map(({ kind, where, text }) => `check found ${kind} at ${where}: ${text}`),
    ...differences(first, second).map((text) => `two looks differ, ${text}`),
    ...(second.orphans === 0 ? [] : [`${second.orphans} bodies without entry after a repair`]),
  ];
}
