/**
 * handlers — the handlers of a simulated world: they succeed, fail, hang or crash at random.
 *
 * What a handler does is drawn when it starts; what it said is written into the ledger before the
 * engine gets it.
 */

import { RespoolError } from '../../core/errors.ts';
import { PermanentError, RetryableError } from '../../core/failure.ts';
import { held, type Outcome, postponed } from '../../core/verdict.ts';
import type { Delivery, Handler } from '../../ports/handler.ts';
import type { Chance } from './timeline.ts';
import { checkBody, checkEffect, checkStart } from './checks/deliveries.ts';
import type { CheckContext } from './checks/check-context.ts';
import type { ClaimFact, SimAnswer, Temper } from './sim-ledger.ts';
import type { SimProcess } from './process.ts';

/** What a handler is made of. */
export interface SimHandlerOptions {
  readonly scene: CheckContext;
  readonly process: SimProcess;
  readonly chance: Chance;
  /** From then on nothing crashes or hangs any more. */
  readonly isHealed: () => boolean;
  /** Ends the process it runs in, here and now. */
  readonly crash: () => void;
}

type Act =
  | 'ok'
  | 'retry'
  | 'retryAfter'
  | 'permanent'
  | 'postpone'
  | 'hold'
  | 'text'
  | 'hang'
  | 'stubborn'
  | 'crash';

const BY_TEMPER: Readonly<Record<Temper, Readonly<Partial<Record<Act, number>>>>> = {
  calm: { ok: 90, retry: 7, postpone: 3 },
  flaky: { ok: 40, retry: 25, retryAfter: 5, postpone: 10, text: 10, hang: 5, stubborn: 5 },
  bad: { permanent: 50, retry: 50 },
  picky: { ok: 60, hold: 40 },
  killer: { ok: 40, crash: 50, retry: 10 },
  slow: { ok: 80, stubborn: 10, retry: 10 },
  probe: { ok: 1 },
};

const NOTICE: Readonly<Partial<Record<Act, number>>> = {
  ok: 70,
  retry: 15,
  permanent: 5,
  postpone: 4,
  crash: 2,
  hang: 2,
  hold: 2,
};

/** Once the world is healed nothing crashes, hangs or waits without end. */
const HEALED: Readonly<Partial<Record<Act, Act>>> = {
  crash: 'retry',
  hang: 'retry',
  stubborn: 'ok',
  postpone: 'ok',
};

/** A handler for one process. */
export function simHandler(parts: SimHandlerOptions): Handler {
  return async (delivery) => {
    const { scene, process } = parts;
    if (process.isDead) return never();
    const claim = checkStart(scene, process, delivery);
    if (claim === undefined) return undefined;
    delivery.signal.addEventListener('abort', () => {
      claim.isAborted = true;
    });
    const act = drawAct(parts, claim);
    try {
      if (act !== 'hang') await readBody(parts, delivery, claim);
      return await perform(parts, delivery, claim, act);
    } finally {
      // A dead process runs no further: not even to its finally blocks.
      if (process.isDead) await never();
    }
  };
}

function drawAct({ scene, chance, isHealed }: SimHandlerOptions, claim: ClaimFact): Act {
  const temper = scene.ledger.stories.get(claim.id)?.invocation.temper ?? 'calm';
  const act = chance.weighted<Act>(claim.lane === 'notice' ? NOTICE : BY_TEMPER[temper]);
  return isHealed() ? (HEALED[act] ?? act) : act;
}

async function readBody(
  { scene, chance, process }: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
): Promise<void> {
  const way = chance.weighted({ whole: 5, stream: 3, none: 2 });
  if (way === 'none') return;
  try {
    const bytes = way === 'whole' ? await delivery.body() : await drained(delivery);
    if (!process.isDead) checkBody(scene, claim, bytes);
  } catch (error) {
    if (process.isDead) return never();
    claim.said = { kind: troubleOf(error) };
    throw error;
  }
}

function troubleOf(error: unknown): 'trouble' | 'outage' | 'retryable' {
  if (!(error instanceof RespoolError)) return 'retryable';
  if (error.code.startsWith('body.')) return 'trouble';
  return error.code === 'store.unavailable' ? 'outage' : 'retryable';
}

async function drained(delivery: Delivery): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of delivery.stream()) parts.push(part);
  return Buffer.concat(parts);
}

async function perform(
  parts: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
  act: Act,
): Promise<Outcome | undefined> {
  const { process, scene } = parts;
  const spanMs = spanOf(parts, act, claim);
  if (spanMs > 0) await sleep(parts, delivery, claim, spanMs, act === 'stubborn');
  if (process.isDead) return never();
  const say = (said: SimAnswer): void => {
    claim.said = said;
  };
  switch (act) {
    case 'crash':
      parts.crash();
      return never();
    case 'retry':
      say({ kind: 'retryable' });
      throw new RetryableError('sim.again', `attempt ${claim.attempt} did not work`);
    case 'retryAfter':
      say({ kind: 'retryable', afterMs: 7_000 });
      throw new RetryableError('sim.later', 'not for seven seconds', { retryAfter: '7s' });
    case 'permanent':
      say({ kind: 'permanent' });
      throw new PermanentError('sim.never', 'this will never work');
    case 'text':
      say({ kind: 'retryable' });
      // oxlint-disable-next-line typescript/only-throw-error -- what users do, we must bear
      throw 'a mere string';
    case 'postpone':
      say({ kind: 'postponed', delayMs: 4_000 });
      return postponed('4s', 'not now');
    case 'hold':
      say({ kind: 'held' });
      return held('needs an operator');
    default:
      checkEffect(scene, claim);
      delivery.note('done-by', process.instance);
      say({ kind: 'delivered' });
      return undefined;
  }
}

function spanOf({ chance, scene }: SimHandlerOptions, act: Act, claim: ClaimFact): number {
  const { leaseMs } = scene.plan;
  const temper = scene.ledger.stories.get(claim.id)?.invocation.temper;
  if (act === 'hang') return Number.POSITIVE_INFINITY;
  if (act === 'stubborn') return chance.between(leaseMs, leaseMs * 4);
  if (temper === 'slow') return chance.between(0, leaseMs * 3);
  if (temper === 'probe') return 0;
  return chance.happens(0.3) ? 0 : chance.spanMs(leaseMs);
}

/** Waits; an abort ends it with its reason, unless the handler does not care. */
function sleep(
  { process }: SimHandlerOptions,
  delivery: Delivery,
  claim: ClaimFact,
  spanMs: number,
  isStubborn: boolean,
): Promise<void> {
  const { signal } = delivery;
  return new Promise((resolve, reject) => {
    const cancel = Number.isFinite(spanMs) ? process.later(spanMs, resolve) : () => undefined;
    if (isStubborn) return;
    const onAbort = (): void => {
      cancel();
      if (process.isDead) return;
      claim.said ??= { kind: 'retryable' };
      reject(signal.reason as Error);
    };
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
}

function never(): Promise<undefined> {
  return new Promise(() => undefined);
}
