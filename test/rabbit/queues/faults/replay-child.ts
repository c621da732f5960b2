/**
 * replay-child — plans a replay, or goes on with one, and carries it out. Started by replays.ts;
 * `cancel` on its input asks for the end of it, as another process would.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Clock, isRespoolError } from 'respool';
import {
  cancelReplay,
  getReplay,
  planReplay,
  type Replay,
  reportReplay,
  resumeReplay,
} from 'respool/dead-letters';
import { createManagement, createQueueLetters } from 'respool/rabbit';
import { spoolAt } from '../../../torture/places.ts';
import type { Ended, ReplayOrder } from './replay-order.ts';
import { systemClock } from '../../../time.ts';

const LOOK_AGAIN_MS = 50;
const LOOK_MAX_MS = 120_000;

const { url, managementUrl, queue, folder, options, id, aheadMs } = JSON.parse(
  process.argv[2] ?? '',
) as ReplayOrder;
const clock: Clock = { ...systemClock, now: () => systemClock.now() + aheadMs };
const spool = spoolAt('sqlite', folder);
const desk = spool.operator({ by: 'fault test' });
const management = createManagement({ url: managementUrl });
const letters = createQueueLetters({ url, management, queue, clock });
const planned = id ?? (await plan());
writeSync(1, `planned ${planned}\n`);
flushCompileCache();
const lines = createInterface({ input: process.stdin });
lines.on('line', () => void cancelReplay(desk, planned, { clock }));
writeSync(1, `ended ${JSON.stringify(await ended(await run()))}\n`);
lines.close();
process.stdin.destroy();
await letters.close();
writeSync(1, 'letters closed\n');
await management.close();
await spool.stop();
// What keeps it alive from here on is a leak.
writeSync(1, 'stopped\n');

async function plan(): Promise<string> {
  const source = { kind: 'queue', queue, broker: 'test' } as const;
  return (await planReplay(desk, letters, source, options, { clock })).id;
}

/** The broker may take a moment to see that who had the queue before is dead. */
async function run(): Promise<Replay> {
  const untilMs = performance.now() + LOOK_MAX_MS;
  for (;;) {
    try {
      const replay = await resumeReplay(desk, letters, planned, { clock });
      if (!isTaken(replay.because) || performance.now() > untilMs) return replay;
    } catch (error) {
      if (!isRespoolError(error) || !isTaken(error.message)) throw error;
      if (performance.now() > untilMs) throw error;
    }
    await sleep(LOOK_AGAIN_MS);
  }
}

function isTaken(text = ''): boolean {
  return text.includes('sweep or replay works on it');
}

async function ended(replay: Replay): Promise<Ended> {
  const unsure: string[] = [];
  for await (const line of reportReplay(desk, planned)) {
    if (line.result === 'unsure') unsure.push(line.id);
  }
  return { replay: (await getReplay(desk, planned)) ?? replay, unsure };
}
