/**
 * shutdown — SIGTERM under load. Nothing may stay active, no attempt may be charged to a message that
 * we interrupted, and a handler that does not listen must not hold up the end.
 */
import { judgeRun, type Judged } from './checker.ts';
import { startChild } from './child.ts';
import { inFolder } from './folder.ts';
import { inspect } from './inspect.ts';
import { Ledger } from './ledger.ts';
import { layDown } from './life.ts';
import { ATTEMPTS_MAX, CONCURRENCY, type LifeOrder } from './life-order.ts';
import { SPOOL_OPTIONS, STOP_WITHIN_MS } from './life-order.ts';
import type { Place } from './places.ts';

/** What came of it. */
export interface ShutdownResult extends Judged {
  readonly place: Place;
  readonly stoppedMs: number;
}

const STUCK = 2;
const SLOW = 40;
const SLOW_MS = 60;
/** After the time to drain a handler has a moment to react; the rest is the machine's. */
const STOP_MAX_MS: number = STOP_WITHIN_MS * 2 + 30_000;

/** Stops a busy process once. */
export function shutdown(
  place: Place,
  { slowMs = SLOW_MS }: { readonly slowMs?: number } = {},
): Promise<ShutdownResult> {
  return inFolder(async (path) => {
    const ledger = new Ledger();
    const port = await ledger.listen();
    const order: LifeOrder = { place, path, port, slowMs, endsWhenQuiet: false };
    const plan = 'ok' as const;
    const stuck = Array.from({ length: STUCK }, (_, at) => ({
      key: `stuck${at}`,
      topic: 'stuck',
      plan,
    }));
    const slow = Array.from({ length: SLOW }, (_, at) => ({
      key: `slow${at}`,
      topic: 'slow',
      plan,
    }));
    await layDown(place, path, ledger, [...stuck, ...slow]);
    const child = startChild('life-child.ts', order);
    const complaints: string[] = [];
    try {
      // Busy: the stuck ones have begun, and every other slot has had work.
      await ledger.until(() => ledger.effects.length >= CONCURRENCY);
      child.signal('SIGTERM');
      const { code, signal } = await child.ended;
      if (code !== 0) complaints.push(`it ended with ${code ?? signal}: ${child.complaint()}`);
      await ledger.alone();
    } finally {
      child.signal('SIGKILL');
      ledger.close();
    }
    const stoppedMs = Number(/stopped (\d+)/.exec(child.lines.join('\n'))?.[1] ?? Number.NaN);
    if (!(stoppedMs <= STOP_MAX_MS)) complaints.push(`it took ${stoppedMs} ms to stop`);
    return { ...(await verdict(place, path, ledger, complaints)), stoppedMs };
  });
}

async function verdict(
  place: Place,
  path: string,
  ledger: Ledger,
  complaints: string[],
): Promise<Omit<ShutdownResult, 'stoppedMs'>> {
  const { entries } = await inspect(place, path, { options: SPOOL_OPTIONS });
  const judged = judgeRun({
    facts: ledger,
    found: entries,
    kills: 0,
    concurrency: CONCURRENCY,
    attemptsMax: ATTEMPTS_MAX,
    isAtRest: false,
  });
  for (const { key, state, attempts } of entries) {
    const isDelivered = (ledger.completions.get(key) ?? 0) > 0;
    if (state === 'active') complaints.push(`${key} stayed active`);
    if (isDelivered !== (state === 'archived')) complaints.push(`${key} is ${state}`);
    if (!isDelivered && attempts > 0) complaints.push(`${key} was charged ${attempts} attempts`);
  }
  return { ...judged, complaints: [...judged.complaints, ...complaints], place };
}
