/**
 * slow — makes every fsync of a running program take long, and asks it how long its event loop
 * stood still.
 */
import { join } from 'node:path';
import { startChild } from './child.ts';
import { inFolder } from './folder.ts';
import type { Place } from './places.ts';
import type { SlowOrder } from './slow-child.ts';
import { inject } from './tracing.ts';

/** What came of it. */
export interface SlowResult {
  /** The longest standstill during each enqueue, milliseconds. */
  readonly stoodMs: readonly number[];
  readonly kept: number;
}

/** Enqueues so many messages on a disk that takes so long. */
export function slow(
  place: Place,
  { messages, fsyncMs }: { readonly messages: number; readonly fsyncMs: number },
): Promise<SlowResult> {
  return inFolder(async (folder) => {
    const order: SlowOrder = { place, path: join(folder, 'spool'), messages };
    const child = startChild('slow-child.ts', order);
    await child.line('ready');
    const tracer = await inject(child.pid, `fsync,fdatasync:delay_exit=${fsyncMs * 1_000}`);
    child.say('go');
    await child.ended;
    await tracer.output;
    const told = (word: string): number[] =>
      child.lines
        .filter((line) => line.startsWith(`${word} `))
        .map((line) => Number(line.slice(word.length + 1)));
    return { stoodMs: told('stood'), kept: told('kept')[0] ?? 0 };
  });
}
