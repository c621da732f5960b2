/** dlq sweep — what a run prints of queues that were refused. */
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { createOut, type Io } from '../../src/cli/ui/output.ts';
import { printRun } from '../../src/cli/commands/dlq/sweep/report.ts';
import type { SweepCommandSettings } from '../../src/cli/commands/dlq/sweep/settings.ts';

async function told(queue: string, error: string): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const io = { env: {}, isTTY: () => false, stdout, stderr } as unknown as Io;
  const out = createOut(io, { json: false, quiet: true, verbose: false, color: false });
  const counts = { total: 0, seen: 0, moved: 0, left: 0, already: 0, tookMs: 1 };
  const report = { queue, target: 'dead', end: 'refused' as const, error, ...counts };
  const run = { endedAt: 5_000, tookMs: 1, isWell: false, reports: [report], problems: [] };
  await printRun(out, { isDryRun: false } as SweepCommandSettings, run);
  stderr.end();
  return text(stderr);
}

test('each command of a remedy is on a line of its own', async () => {
  const stderr = await told('q', 'it has a limit; lift it\nrun: rabbitmqctl x\nor run: PUT /y');
  expect(stderr.split('\n')).toEqual([
    'warning: q: it has a limit; lift it',
    '  run: rabbitmqctl x',
    '  or run: PUT /y',
    '',
  ]);
});

test('a name or an error with line feeds writes no warning of its own', async () => {
  const stderr = await told('q\nwarning: a', 'b\nwarning: c\u001b[2J');
  expect(stderr).toBe('warning: q warning: a: b\n  warning: c\n');
});
