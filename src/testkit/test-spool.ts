/**
 * test-spool — a spool for your own tests: in memory, in virtual time, already started.
 */

import { createSpool, type Spool } from '../spool/spool.ts';
import type { SpoolOptions } from '../spool/options.ts';
import { memory, memoryBodies } from '../stores/memory/index.ts';
import { seededDice } from './seeded-dice.ts';
import { SimClock } from './sim-clock.ts';

/** A started spool and the clock it lives by. */
export interface TestSpool {
  readonly spool: Spool;
  /** Moves the spool's time: `await clock.advance('1h')`. */
  readonly clock: SimClock;
}

/** Makes a spool in memory with virtual time and starts it; takes all options of createSpool. */
export async function createTestSpool(options: SpoolOptions = {}): Promise<TestSpool> {
  const clock = new SimClock();
  const spool = createSpool({
    entries: memory(),
    bodies: memoryBodies({ clock }),
    dice: seededDice(1),
    ...options,
    clock,
  });
  await spool.start();
  return { spool, clock };
}
