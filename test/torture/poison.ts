/**
 * poison — messages that take their process with them, or that handlers get wrong in every way,
 * among good ones. The poison must end in hold or bounce within its attempts, the good must pass.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { judgeRun, type Judged } from './checker.ts';
import { type Child, startChild } from './child.ts';
import { inFolder } from './folder.ts';
import { inspect } from './inspect.ts';
import { Ledger } from './ledger.ts';
import { layDown } from './life.ts';
import { ATTEMPTS_MAX, CONCURRENCY, DEADLY, type LifeOrder, type Poison } from './life-order.ts';
import { SPOOL_OPTIONS } from './life-order.ts';
import type { Place } from './places.ts';

/** What came of it. */
export interface PoisonResult extends Judged {
  readonly place: Place;
  readonly poison: Poison;
  /** Processes that died of it. */
  readonly deaths: number;
  /** Where the poison ended. */
  readonly end: string;
}

const GOOD = 40;
/** A process that says nothing for so long is killed, as a watchdog would. */
const SILENCE_MAX_MS = 1_500;
/** On a busy machine it takes a while until it can say anything. */
const START_MAX_MS = 8_000;

/** Runs a spool with one poisonous message until it comes to rest. */
export function poison(place: Place, kind: Poison): Promise<PoisonResult> {
  return inFolder(async (path) => {
    const ledger = new Ledger();
    const port = await ledger.listen();
    const order: LifeOrder = { place, path, port, slowMs: 0, endsWhenQuiet: true };
    const good = Array.from({ length: GOOD }, (_, at) => ({
      key: `good${at}`,
      topic: 'good',
      plan: 'ok' as const,
    }));
    // In the middle: there are good ones to be hurt before and after it.
    const bad = { key: 'bad', topic: `poison.${kind}`, plan: 'hold' as const };
    await layDown(place, path, ledger, [...good.slice(0, 20), bad, ...good.slice(20)]);
    const complaints: string[] = [];
    let deaths = 0;
    try {
      for (; deaths <= ATTEMPTS_MAX; deaths += 1) {
        const child = startChild('life-child.ts', order);
        const watchdog = barkAtSilence(child, ledger);
        const { code, signal } = await child.ended;
        watchdog.abort();
        if (signal === null && code === 0) break;
      }
      await ledger.alone();
    } finally {
      ledger.close();
    }
    if (deaths > ATTEMPTS_MAX) complaints.push('it did not come to rest within its attempts');
    if (!DEADLY.includes(kind) && deaths > 0) complaints.push(`${deaths} processes died of it`);
    return { ...(await verdict(place, path, ledger, complaints, deaths)), poison: kind };
  });
}

async function verdict(
  place: Place,
  path: string,
  ledger: Ledger,
  complaints: readonly string[],
  deaths: number,
): Promise<Omit<PoisonResult, 'poison'>> {
  const sight = await inspect(place, path, { options: SPOOL_OPTIONS });
  const bad = sight.entries.find(({ key }) => key === 'bad');
  const isOut = bad?.state === 'hold' || bad?.state === 'bounce';
  const judged = judgeRun({
    facts: ledger,
    // The checker calls a held message safe; whether it is held or bounced is looked at here.
    found: sight.entries.map((one) => (one === bad ? { ...one, state: 'hold' as const } : one)),
    kills: deaths,
    concurrency: CONCURRENCY,
    attemptsMax: ATTEMPTS_MAX,
  });
  const end = bad === undefined ? 'gone' : `${bad.state}, ${bad.code ?? 'no reason'}`;
  const more = isOut ? [] : [`the poison is ${end}`];
  return {
    ...judged,
    complaints: [...judged.complaints, ...complaints, ...more],
    place,
    deaths,
    end,
  };
}

/** Calls back when the ledger hears nothing for too long. */
function barkAtSilence(child: Child, ledger: Ledger): AbortController {
  const control = new AbortController();
  const { signal } = control;
  void (async () => {
    const started = child.line('started').catch(() => undefined);
    await Promise.race([started, sleep(START_MAX_MS, undefined, { ref: false })]);
    while (!signal.aborted) {
      const heard = ledger.heard(1).then(() => true);
      const isAlive = await Promise.race([heard, sleep(SILENCE_MAX_MS, false, { ref: false })]);
      if (!isAlive && !signal.aborted) child.signal('SIGKILL');
    }
  })();
  return control;
}
