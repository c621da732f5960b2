/** serve-log — a reader that does not read loses lines, and is told how many. */
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import type { LogLevelText } from '../../src/cli/ui/event-line.ts';
import { createOut, type Io } from '../../src/cli/ui/output.ts';
import { createServeLog } from '../../src/cli/commands/serve/serve-log.ts';
import { systemClock } from '../time.ts';

function setup(isTTY: boolean, redact: readonly string[] = [], level: LogLevelText = 'info') {
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
  let onUnwritten: ((error: Error) => void) | undefined;
  let said = '';
  const io = {
    stdout,
    stderr: { write: (line: string) => (said += line) },
    env: {},
    isTTY: () => isTTY,
    clock: systemClock,
    onUnwritten: (listener: (error: Error) => void) => {
      onUnwritten = listener;
    },
  } as unknown as Io;
  const out = createOut(io, { json: false, quiet: false, verbose: false, color: false });
  const hide = (line: string): string => line;
  const log = createServeLog(io, out, { format: 'auto', level, hide, redact });
  const read = async (): Promise<void> => {
    isStuck = false;
    goOn?.();
    goOn = undefined;
    await new Promise<void>((resolve) => {
      stdout.write('', () => resolve());
    });
  };
  return {
    log,
    read,
    text: () => text,
    fail: (error: Error) => onUnwritten?.(error),
    said: () => said,
  };
}

test.each([true, false])(
  'what is past 4 MiB is not kept, and counted (terminal: %s)',
  async (tty) => {
    const { log, read, text } = setup(tty);
    const line = 'x'.repeat(8_000);
    for (let at = 0; at < 1_000; at += 1) log.say('info', line);
    await read();
    log.say('info', 'the end');
    await read();
    const lines = text().trimEnd().split('\n');
    const kept = lines.filter((one) => one.includes(line)).length;
    expect(kept).toBeGreaterThanOrEqual(500);
    expect(kept).toBeLessThan(600);
    expect(lines.at(-2)).toContain(`${1_000 - kept} lines were dropped`);
    expect(lines.at(-1)).toContain('the end');
  },
);

test('its own lines begin with the time of day, as those of events do', async () => {
  const { log, read, text } = setup(true);
  log.say('info', 'stopping');
  await read();
  expect(text()).toMatch(/^\d\d:\d\d:\d\d\.\d{3}Z stopping\n$/);
});

test('spans are in tenths of a millisecond', async () => {
  const { log, read, text } = setup(false);
  const delivered = { kind: 'delivered', at: 1, id: 'x', topic: 'a', attempt: 1 } as const;
  const event = { ...delivered, lane: 'delivery', by: 'e', tookMs: 1.234_567, ageMs: 12.06 };
  log.event(event as unknown as Parameters<typeof log.event>[0]);
  await read();
  expect(JSON.parse(text())).toMatchObject({ tookMs: 1.2, ageMs: 12.1 });
});

test('that nothing can be printed is said once', () => {
  const { fail, said } = setup(false);
  fail(new Error('disk full'));
  fail(new Error('disk full'));
  expect(said()).toBe('warning: cannot write the log: disk full; deliveries continue\n');
});

test.each([
  ['error', ['error']],
  ['warn', ['warn', 'error']],
  ['info', ['info', 'warn', 'error']],
  ['debug', ['debug', 'info', 'warn', 'error']],
] as const)('log.level %s prints its own lines of %j', async (level, printed) => {
  const { log, read, text } = setup(false, [], level);
  for (const one of ['debug', 'info', 'warn', 'error'] as const) log.say(one, `a line of ${one}`);
  await read();
  const lines = text().trimEnd().split('\n');
  expect(lines.map((line) => (JSON.parse(line) as { level: string }).level)).toEqual(printed);
});
