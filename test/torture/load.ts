/**
 * load — what the programs of the fault tests do: produce messages, handle them as planned, and tell
 * the ledger of both.
 */
import { writeSync } from 'node:fs';
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
import type { Chance } from './chance.ts';
import type { LedgerClient } from './ledger-client.ts';
import type { Effect, EffectKind } from './ledger.ts';
import { bodyOf, type Plan, type Planned, sha256 } from './plans.ts';

/** Messages an operator removes are not due before that happens. */
const NEVER_MS = 3_600_000;

/** What a program needs for its handlers. */
export interface Stage {
  readonly ledger: LedgerClient;
  readonly chance: Chance;
  /** Handlings that ran here, by message and attempt. */
  readonly running: Map<string, Handling>;
  /** Where the ledger shall hear of the beginning of a handling, too: when it was claimed. */
  readonly claimTimes?: ReadonlyMap<string, ClaimTime>;
}

/** When a claim was asked for and answered. */
export interface ClaimTime {
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** A handler at work. */
export interface Handling {
  readonly key: string;
  readonly fence: string;
}

/** Lets the handlers work as their messages' plans say. */
export function handleWork(spool: Spool, stage: Stage): void {
  watch(spool, stage);
  spool.handle('work', (delivery) => deliver(delivery, stage));
  spool.onBounce('work', async (delivery) => {
    await stage.ledger.ask({ kind: 'effect', effect: await effectOf(delivery, 'notice') });
  });
}

function watch(spool: Spool, { ledger, running }: Stage): void {
  const words = { delivered: 'completed', stale: 'stale', 'lease-lost': 'expired' } as const;
  for (const kind of ['delivered', 'stale', 'lease-lost'] as const) {
    spool.on(kind, (event) => {
      // A lost lease is told too of a claim whose former holder was killed; no handler ran here, and
      // it is counted as a kill already.
      const handling = running.get(nameOf(event));
      if (handling !== undefined) ledger.tell({ kind: words[kind], ...handling });
    });
  }
}

/** One process may have a message twice, when it lost the first claim: by attempt, not by id alone. */
function nameOf({ id, lane, attempt }: Pick<Delivery, 'id' | 'lane' | 'attempt'>): string {
  return `${lane} ${id} ${attempt}`;
}

async function deliver(delivery: Delivery, stage: Stage): Promise<Outcome | undefined> {
  const { ledger, claimTimes, running } = stage;
  const { headers, lane, fence } = delivery;
  running.set(nameOf(delivery), { key: headers['key'] ?? '', fence: `${lane} ${fence}` });
  if (claimTimes === undefined) return act(delivery, stage);
  const about = claimOf(delivery);
  const times = { at: Date.now(), ...claimTimes.get(fence) };
  await ledger.ask({ kind: 'effect', effect: { ...about, ...times, kind: 'begun' } });
  let isPlanned = false;
  try {
    return await act(delivery, stage, () => void (isPlanned = true));
  } catch (error) {
    // As when its body could not be read: the handling is over, and nothing else would tell.
    if (!isPlanned) await ledger.ask({ kind: 'effect', effect: { ...about, kind: 'failed' } });
    throw error;
  }
}

async function act(
  delivery: Delivery,
  { ledger, chance }: Stage,
  onEffect: () => void = () => undefined,
): Promise<Outcome | undefined> {
  const { headers, attempt } = delivery;
  // The parent's answer must come before the next step, so the plan may not depend on memory here.
  if (chance.happens(0.3)) await sleep(chance.between(1, 15));
  const kind = outcomeOf(headers['plan'] as Plan, attempt, delivery.notes);
  const effect = await effectOf(delivery, kind);
  await ledger.ask({ kind: 'effect', effect });
  onEffect();
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
  return { ...claimOf(delivery), kind, sha256: sha256(await delivery.body()) };
}

function claimOf({ id, headers, fence, attempt, lane }: Delivery): Omit<Effect, 'kind'> {
  const key = headers['key'] ?? id;
  return { key, fence: `${lane} ${fence}`, attempt, pid: process.pid };
}

/** Enqueues a message; its id, or undefined when that did not work. */
export async function produce(
  spool: Spool,
  ledger: LedgerClient,
  message: Planned,
  { isRough = false }: { readonly isRough?: boolean } = {},
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
    // Where its server goes away, a store may say so; nothing else, and nothing without a name.
    const isExpected = isRough && isRespoolError(error, 'store.unavailable');
    if (!isExpected) writeSync(2, `enqueue ${key}: ${String((error as Error).stack)}\n`);
    // Every other error may have come after the message was stored: its outcome stays open.
    if (isRespoolError(error, 'store.full')) ledger.tell({ kind: 'refused', key });
    return undefined;
  }
}

/** Removes a message as an operator does. */
export async function takeAway(
  spool: Spool,
  ledger: LedgerClient,
  key: string,
  id: string,
): Promise<void> {
  await ledger.ask({ kind: 'removing', key });
  const [removed] = await spool.operator({ by: 'ops' }).remove([id], { hard: true });
  if (removed?.result === 'done') ledger.tell({ kind: 'removed', key });
}

/** Resolves when everything that will be due before long has had its turn. */
export async function quiet(spool: Spool): Promise<void> {
  const state = ['incoming', 'active', 'deferred', 'bounce'] as const;
  for (;;) {
    const waiting = await spool
      .operator({ by: 'ops' })
      .tally('state', { state, dueBefore: Date.now() + NEVER_MS / 2 });
    if (waiting.every(({ count }) => count === 0)) return;
    await sleep(20);
  }
}
