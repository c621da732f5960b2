/** confirm — yes, no, and Ctrl-C, typed at a terminal. */
import { PassThrough, Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { confirm } from '../../src/cli/ui/prompt.ts';
import { exitCodeOf } from '../../src/cli/exit-codes.ts';
import type { Io } from '../../src/cli/ui/output.ts';

async function answered(keys: string): Promise<boolean> {
  const stdin = new PassThrough();
  const stderr = new Writable({
    write: (piece: Buffer, _encoding, done) => {
      done();
      // Once the question stands there and its keys are listened for.
      if (piece.includes('Yes / ')) setImmediate(() => stdin.write(keys));
    },
  });
  return confirm({ stdin, stderr } as unknown as Io, 'do it?');
}

test('y is yes, n is no', async () => {
  expect(await answered('y')).toBe(true);
  expect(await answered('n')).toBe(false);
});

test('Ctrl-C is neither, and ends with 130', async () => {
  const error: unknown = await answered('\u0003').catch((thrown: unknown) => thrown);
  expect(exitCodeOf(error)).toBe(130);
  expect((error as Error).message).toBe('interrupted; nothing was done');
});
