/**
 * options — what may be said about a memory store.
 */

import { RespoolError } from '../../core/errors.ts';
import { CLOCK_OPTION, type Option, readOptions } from '../../core/option-table.ts';
import type { Clock } from '../../ports/clock.ts';
import { Data, type MemoryData } from './data.ts';

const MEMORY = {
  shared: {
    kind: 'code',
    type: 'data of `createMemoryData()`',
    ts: 'MemoryData',
    defaultText: 'its own',
    about: 'data that other memory stores also use',
  },
} as const;

const BODIES = {
  ...MEMORY,
  clock: { ...CLOCK_OPTION, about: 'bodies only: when a body was written' },
} as const;

/** Every option of `memoryBodies()`; `memory()` takes all but `clock`. */
export const MEMORY_OPTIONS: Readonly<Record<keyof MemoryBodiesOptions, Option>> = BODIES;

/** How a memory store is made. */
export interface MemoryOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Data that other memory stores also use. Default its own. */
  readonly shared?: MemoryData;
}

/** How a memory body store is made. */
export interface MemoryBodiesOptions extends MemoryOptions {
  // Written by `npm run options`: edit the table of options instead.
  /** Bodies only: when a body was written. Default the system clock. */
  readonly clock?: Clock;
}

/** The inside of the data of an entry store. */
export function entryData(options: MemoryOptions): Data {
  readOptions({ what: 'memory' }, options, MEMORY);
  return dataOf(options);
}

/** The inside of the data of a body store. */
export function bodyData(options: MemoryBodiesOptions): Data {
  readOptions({ what: 'memoryBodies' }, options, BODIES);
  return dataOf(options);
}

/** The inside of the shared data, or new data. */
function dataOf({ shared }: MemoryOptions): Data {
  if (shared === undefined) return new Data();
  if (shared instanceof Data) return shared;
  throw new RespoolError(
    'config.invalid',
    'cannot use this as "shared" of a memory store: allowed is what createMemoryData() returns',
  );
}
