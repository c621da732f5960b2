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
import {
  type Delivery,
  held,
  isRespoolError,
  type Outcome,
  PermanentError,
  postponed,
  RetryableError,
  type Spool,
} from 'respool';
import { createChance, type Chance } from './chance.ts';
import { type CrashOrder, SPOOL_OPTIONS } from './crash-order.ts';
import { connectLedger, type LedgerClient } from './ledger-client.ts';
import type { Effect, EffectKind } from './ledger.ts';
import { spoolAt } from './places.ts';
import { bodyOf, planMessage, type Plan, type Planned, sha256 } from './plans.ts';

const PRODUCERS = 4;
/** Messages of one round, at the most. */
const ROUND_MAX = 300;
const SWEEP_EVERY_MS = 150;
/** Messages an operator removes are not due before that happens. */
const NEVER_MS = 3_600_000;

/** Keys of the messages whose handler runs now, by id. */
type Running = Map<string, string>;

await main(JSON.parse(process.argv[2] ?? '') as CrashOrder);

async function main(order: CrashOrder): Promise<void> {
  const ledger = await connectLedger(order.port);
  const chance = createChance(order.seed);
  const spool = spoolAt(order.place, order.path, SPOOL_OPTIONS);
  const running: Running = new Map();
  watch(spool, ledger, running);
  spool.handle('work', (delivery) => deliver(delivery, ledger, chance, running));
  spool.onBounce('work', async (delivery) => {
    await ledger.ask({ kind: 'effect', effect: await effectOf(delivery, 'notice') });
  });
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
    await spool.sweep();
  }
}

function watch(spool: Spool, ledger: LedgerClient, running: Running): void {
  const started = new Set<string>();
  spool.on('trouble', ({ doing, error }) => writeSync(2, `trouble ${doing}: ${error.stack}\n`));
  spool.on('started', ({ id, attempt }) => void started.add(`${id} ${attempt}`));
  spool.on('delivered', ({ id }) => {
    const key = running.get(id);
    if (key !== undefined) ledger.tell({ kind: 'completed', key });
  });
  spool.on('lease-lost', ({ id, attempt }) => {
    // Told too for a claim whose former holder was killed; that is counted as a kill already.
    const key = started.has(`${id} ${attempt}`) ? running.get(id) : undefined;
    if (key !== undefined) ledger.tell({ kind: 'expired', key });
  });
}

async function deliver(
  delivery: Delivery,
  ledger: LedgerClient,
  chance: Chance,
  running: Running,
): Promise<Outcome | undefined> {
  const { id, headers, attempt } = delivery;
  running.set(id, headers['key'] ?? '');
  // The parent's answer must come before the next step, so the plan may not depend on memory here.
  if (chance.happens(0.3)) await sleep(chance.between(1, 15));
  const kind = outcomeOf(headers['plan'] as Plan, attempt, delivery.notes);
  const effect = await effectOf(delivery, kind);
  await ledger.ask({ kind: 'effect', effect });
  if (chance.happens(0.2)) await sleep(chance.between(1, 5));
  switch (kind) {
    case 'failed':
      throw new RetryableError('test.busy', 'try again');
    case 'permanent':
      throw new PermanentError('test.never', 'never');
    case 'held':
      return held('for a human');
    case 'postponed':
      delivery.note('waited', 'yes');
      return postponed(`${chance.between(5, 30)}ms`, 'not yet');
    case 'crash':
      process.kill(process.pid, 'SIGKILL');
      return undefined;
    default:
      return undefined;
  }
}

function outcomeOf(
  plan: Plan,
  attempt: number,
  notes: Readonly<Record<string, string>>,
): EffectKind {
  switch (plan) {
    case 'retry':
      return attempt <= 2 ? 'failed' : 'delivered';
    case 'postpone':
      return notes['waited'] === undefined ? 'postponed' : 'delivered';
    case 'crash':
      return attempt === 1 ? 'crash' : 'delivered';
    case 'permanent':
      return 'permanent';
    case 'hold':
      return 'held';
    default:
      return 'delivered';
  }
}

async function effectOf(delivery: Delivery, kind: EffectKind): Promise<Effect> {
  const { headers, fence, attempt, lane } = delivery;
  return {
    key: headers['key'] ?? delivery.id,
    kind,
    fence: `${lane} ${fence}`,
    attempt,
    sha256: sha256(await delivery.body()),
    pid: process.pid,
  };
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

/** Enqueues a message; its id, or undefined when that did not work. */
async function produce(
  spool: Spool,
  ledger: LedgerClient,
  message: Planned,
): Promise<string | undefined> {
  const { key, plan, size, hasOwnId } = message;
  await ledger.ask({ kind: 'invoke', message });
  try {
    const { id } = await spool.enqueue({
      topic: 'work',
      headers: { key, plan },
      body: bodyOf(key, size),
      ...(plan === 'remove' ? { delay: NEVER_MS } : {}),
      ...(hasOwnId ? { id: key } : {}),
    });
    ledger.tell({ kind: 'accepted', key });
    return id;
  } catch (error) {
    writeSync(2, `enqueue ${key}: ${String((error as Error).stack)}\n`);
    // Every other error may have come after the message was stored: its outcome stays open.
    if (isRespoolError(error, 'store.full')) ledger.tell({ kind: 'refused', key });
    return undefined;
  }
}

async function takeAway(
  spool: Spool,
  ledger: LedgerClient,
  key: string,
  id: string,
): Promise<void> {
  await ledger.ask({ kind: 'removing', key });
  const [removed] = await spool.remove([id], { hard: true });
  if (removed?.result === 'done') ledger.tell({ kind: 'removed', key });
}

/** Resolves when everything that will be due before long has had its turn. */
async function quiet(spool: Spool): Promise<void> {
  const state = ['incoming', 'active', 'deferred', 'bounce'] as const;
  for (;;) {
    const waiting = await spool.tally('state', { state, dueBefore: Date.now() + NEVER_MS / 2 });
    if (waiting.every(({ count }) => count === 0)) return;
    await sleep(20);
  }
}
