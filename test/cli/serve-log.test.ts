/** serve-log — a reader that does not read loses lines, and is told how many. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import type { Io } from '../../src/cli/io.ts';
import { createOut } from '../../src/cli/out.ts';
import { createServeLog } from '../../src/cli/serve-log.ts';
import { systemClock } from '../../src/system/clock.ts';

function setup(isTTY: boolean) {
  let text = '';
  let goOn: (() => void) | undefined;
  let isStuck = true;
  const stdout = new Writable({
    write: (piece: Buffer, _encoding, done) => {
      text += piece.toString('utf8');
      if (isStuck) goOn = done;
      else done();
    },
  });
  const io = { stdout, env: {}, isTTY: () => isTTY, clock: systemClock } as unknown as Io;
  const out = createOut(io, { json: false, quiet: false, verbose: false, color: false });
  const log = createServeLog(io, out, { format: 'auto', level: 'info', hide: (line) => line });
  const read = async (): Promise<void> => {
    isStuck = false;
    goOn?.();
    goOn = undefined;
    await new Promise<void>((resolve) => {
      stdout.write('', () => resolve());
    });
  };
  return { log, read, text: () => text };
}

test.each([true, false])(
  'what is past 4 MiB is not kept, and counted (terminal: %s)',
  async (tty) => {
    const { log, read, text } = setup(tty);
    const line = 'x'.repeat(2 ** 20);
    for (let at = 0; at < 8; at += 1) log.say('info', line);
    await read();
    log.say('info', 'the end');
    await read();
    const lines = text().trimEnd().split('\n');
    const kept = lines.filter((one) => one.includes(line)).length;
    expect(kept).toBeGreaterThanOrEqual(4);
    expect(kept).toBeLessThan(8);
    expect(lines.at(-2)).toContain(`${8 - kept} lines were not printed`);
    expect(lines.at(-1)).toContain('the end');
  },
);
