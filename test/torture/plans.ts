/** plans — what a message of the fault tests carries and what its handler will make of it. */
import { createHash } from 'node:crypto';
import type { Chance } from './chance.ts';

/**
 * What is to become of a message: `ok` is delivered, `retry` fails once or twice before, `postpone`
 * waits once before, `crash` kills its process once before, `permanent` bounces and is announced,
 * `hold` is held, `remove` is never due and taken away by an operator.
 */
export type Plan = 'ok' | 'retry' | 'postpone' | 'crash' | 'permanent' | 'hold' | 'remove';

const PLANS: ReadonlyMap<Plan, number> = new Map([
  ['ok', 60],
  ['retry', 14],
  ['postpone', 8],
  ['permanent', 8],
  ['remove', 6],
  ['hold', 3.7],
  ['crash', 0.3],
]);

/** Empty, with the entry, in the body store, in the body store in several parts. */
const SIZES: ReadonlyMap<number, number> = new Map([
  [0, 10],
  [1_024, 60],
  [20 * 1_024, 22],
  [300 * 1_024, 8],
]);

/** A message as its producer knows it. */
export interface Planned {
  /** Names it in the ledger; travels in a header. */
  readonly key: string;
  readonly plan: Plan;
  readonly size: number;
  readonly sha256: string;
  /** Whether the key is its id too: then it may be enqueued again after an unknown outcome. */
  readonly hasOwnId: boolean;
}

/** A message by chance. */
export function planMessage(key: string, chance: Chance): Planned {
  const size = chance.weighed(SIZES);
  return {
    key,
    plan: chance.weighed(PLANS),
    size,
    sha256: sha256(bodyOf(key, size)),
    hasOwnId: chance.happens(0.5),
  };
}

/** The body of a message: another one for every key, the same every time. */
export function bodyOf(key: string, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at += 32) {
    createHash('sha256').update(`${key} ${at}`).digest().copy(bytes, at);
  }
  return bytes;
}

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
