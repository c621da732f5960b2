/**
 * crash-child — the program that is killed: four producers, eight handlers, an operator and a
 * caretaker on one spool, all of them telling the ledger what they do.
 *
 * Started by crash.ts. In mode `drain` it produces nothing, waits until nothing is due any more and
 * ends by itself.
 */
import { writeSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Spool } from 'respool';
import { createChance } from './chance.ts';
import { type CrashOrder, SPOOL_OPTIONS } from './crash-order.ts';
import { connectLedger, type LedgerClient } from './ledger-client.ts';
import { handleWork, produce, quiet, takeAway } from './load.ts';
import { spoolAt } from './places.ts';
import { planMessage } from './plans.ts';

const PRODUCERS = 4;
/** Messages of one round, at the most. */
const ROUND_MAX = 300;
const SWEEP_EVERY_MS = 150;

await main(JSON.parse(process.argv[2] ?? '') as CrashOrder);

async function main(order: CrashOrder): Promise<void> {
  const ledger = await connectLedger(order.port);
  const chance = createChance(order.seed);
  const spool = spoolAt(order.place, order.path, SPOOL_OPTIONS);
  spool.on('trouble', ({ doing, error }) => writeSync(2, `trouble ${doing}: ${error.stack}\n`));
  handleWork(spool, { ledger, chance, running: new Map() });
  const beganAt = performance.now();
  await spool.start();
  writeSync(1, `started ${Math.round(performance.now() - beganAt)}\n`);
  flushCompileCache();
  const { again = [] } = await ledger.ask({ kind: 'hello', pid: process.pid });
  for (const message of again) await produce(spool, ledger, message);
  if (order.mode === 'drain') {
    await quiet(spool);
    await spool.stop();
    ledger.close();
    return;
  }
  for (let producer = 0; producer < PRODUCERS; producer += 1) {
    void produceAll(spool, ledger, order, producer);
  }
  for (;;) {
    await sleep(SWEEP_EVERY_MS);
    await spool.operator({ by: 'ops' }).cleanUp();
  }
}

async function produceAll(
  spool: Spool,
  ledger: LedgerClient,
  { seed, round, mode }: CrashOrder,
  producer: number,
): Promise<void> {
  const chance = createChance(seed * PRODUCERS + producer);
  const max = mode === 'endless' ? Number.POSITIVE_INFINITY : ROUND_MAX / PRODUCERS;
  for (let count = 0; count < max; count += 1) {
    const message = planMessage(`m${round}-${producer}-${count}`, chance);
    if (mode === 'endless' && message.plan === 'crash') continue;
    const id = await produce(spool, ledger, message);
    const isTaken = message.plan === 'remove' && id !== undefined && chance.happens(0.9);
    if (isTaken) await takeAway(spool, ledger, message.key, id);
    if (chance.happens(0.5)) await sleep(chance.between(0, 6));
  }
}
