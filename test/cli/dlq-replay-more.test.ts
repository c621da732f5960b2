/** dlq replay — what each option does, what is left when it is done, and signals in between. */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import type { RecordStore } from 'respool';
import type { Replay } from 'respool/dead-letters';
import { interruptible } from '../../src/cli/lifetime.ts';
import { replayLogKind, REPLAYS_RECORD_KIND } from '../../src/core/reserved-headers.ts';
import { type DeadShell, deadSpool } from './dlq-ground.ts';

async function replayed(shell: DeadShell, argv: readonly string[]) {
  const ran = await shell.cli(['dlq', 'replay', ...argv, '--yes', '--json']);
  const [replay] = ran.objects();
  return { code: ran.code, replay: replay as unknown as Replay };
}

/** Looks at what is on record, and may change it. */
async function onRecord<T>(
  shell: DeadShell,
  work: (records: RecordStore) => Promise<T>,
): Promise<T> {
  const spool = shell.spool();
  try {
    return await work(spool.operator({ by: 'test' }).records);
  } finally {
    await spool.stop();
  }
}

/** Breaks the first letter, and leaves the others as they are. */
async function withBreaking(): Promise<{ readonly shell: DeadShell; readonly file: string }> {
  const shell = await deadSpool();
  const file = path.join(shell.folder, 'repair.mjs');
  const text = "({ id }) => { if (id === 'dead-1') throw new Error('broken') }";
  await writeFile(file, `export default ${text};\n`);
  return { shell, file };
}

test.each([
  ['1', [1, 1, 1]],
  ['4', [2, 1]],
  ['100', [3]],
])('--window %s puts down %j at once as about to be sent', async (window, batches) => {
  const shell = await deadSpool();
  const { replay } = await replayed(shell, ['--canary', '0', '--window', window]);
  expect(replay.counts.sent).toBe(3);
  const log = await onRecord(shell, (records) => records.read(replayLogKind(replay.id), 0, 100));
  const steps = log.map(({ record }) => record as { readonly intent?: readonly number[] });
  expect(steps.flatMap(({ intent = [] }) => intent.length).filter((count) => count > 0)).toEqual(
    batches,
  );
});

test.each([
  ['40', /1 of 2 letters failed/],
  ['60', /0 of 1 canaries were attempted/],
])('--stop-above %s with half of the canaries failed stops by %s', async (limit, because) => {
  const { shell, file } = await withBreaking();
  const how = ['--canary', '1', '--canary-wait', '0s', '--transform', file];
  const { code, replay } = await replayed(shell, [...how, '--stop-above', limit]);
  expect([code, replay.state, replay.counts.sent]).toEqual([1, 'stopped', 1]);
  expect(replay.because).toMatch(because);
  expect(replay.counts.failed).toBe(1);
});

test('canaries only, and no service: it stops, and says that they were not attempted', async () => {
  const shell = await deadSpool();
  const how = ['--limit', '3', '--canary', '3', '--canary-wait', '1s', '--yes'];
  const ran = await shell.cli(['dlq', 'replay', ...how]);
  expect(ran.code).toBe(1);
  expect(ran.stdout).toMatch(/^replay \S+ is stopped: 0 of 3 canaries were attempted: /m);
  expect(ran.stderr).toContain('respool dlq replays resume');
  expect(ran.stderr).not.toContain('to send the rest');
});

describe('a replay that is done', () => {
  test('except for what is unsure tells how to send it, and does so', async () => {
    const shell = await deadSpool();
    const { replay } = await replayed(shell, ['--plan-only', '--canary', '0']);
    await onRecord(shell, async (records) => {
      const running = { ...replay, state: 'running', runner: { name: 'dead', until: 0 } };
      await records.put(REPLAYS_RECORD_KIND, replay.id, running);
      await records.append(replayLogKind(replay.id), { kind: 'step', at: 1, intent: [0] });
    });
    const left = await shell.cli(['dlq', 'replays', 'resume', replay.id]);
    const line = `respool dlq replays resume ${replay.id} --unsure send`;
    expect([left.code, left.stdout]).toEqual([1, expect.stringContaining('is done')]);
    expect(left.stderr).toContain(line);
    const sent = await shell.cli([...line.split(' ').slice(1), '--json']);
    expect([sent.code, sent.objects()]).toMatchObject([
      0,
      [{ state: 'done', counts: { sent: 3, unsure: 0 } }],
    ]);
    const over = await shell.cli(['dlq', 'replays', 'resume', replay.id]);
    expect([over.code, over.stderr]).toEqual([1, expect.stringContaining('it is done')]);
  });

  test('except for what failed tells how to try again', async () => {
    const { shell, file } = await withBreaking();
    const how = ['--canary', '0', '--transform', file, '--yes'];
    const ran = await shell.cli(['dlq', 'replay', ...how]);
    expect([ran.code, ran.stdout]).toEqual([1, expect.stringContaining('sent 2 of 3, failed 1')]);
    const [, line = ''] = /to try the failed ones: respool (.+)/.exec(ran.stderr) ?? [];
    const again = await shell.cli([...line.split(' '), '--json']);
    expect([again.code, again.objects()]).toMatchObject([
      1,
      [{ state: 'done', counts: { sent: 2, failed: 1 } }],
    ]);
  });
});

test('a signal that comes too late to end the work is heard all the same', async () => {
  let raise: (signal: 'SIGINT' | 'SIGTERM') => void = () => undefined;
  const io = {
    onSignal: (listener: typeof raise) => {
      raise = listener;
      return () => undefined;
    },
  };
  const work = async (): Promise<string> => {
    raise('SIGTERM');
    return 'planned';
  };
  await expect(interruptible(io, '; nothing was sent', work)).rejects.toThrow(/nothing was sent/);
  await expect(interruptible(io, '', async () => 'planned')).resolves.toBe('planned');
});

test('ids and reasons that would steer a terminal are shown as what they are', async () => {
  const shell = await deadSpool();
  const { replay } = await replayed(shell, ['--plan-only']);
  const evil = '\u001b[2J\u202egnp.exe\nreplay is done';
  await onRecord(shell, async (records) => {
    const { plan } = replay;
    const groups = [{ group: evil, code: evil, reason: evil, count: 1 }];
    const cannot = [{ why: 'unroutable', text: evil, count: 1, ids: [evil] }];
    const routes = [{ to: evil, count: 1 }];
    const value = { ...replay, by: evil, because: evil, plan: { ...plan, groups, cannot, routes } };
    await records.put(REPLAYS_RECORD_KIND, replay.id, value);
    const results = [{ result: 'failed', code: evil, reason: evil, to: evil, items: [0] }];
    await records.append(replayLogKind(replay.id), { kind: 'step', at: 1, results });
  });
  for (const argv of [['list'], ['show', replay.id], ['report', replay.id]]) {
    const { stdout, stderr } = await shell.cli(['dlq', 'replays', ...argv], { columns: 200 });
    const told = stdout + stderr;
    expect([told.includes('\u001b'), told.includes('\u202e')]).toEqual([false, false]);
    expect(told).not.toMatch(/^replay is done/m);
    expect(stdout).toContain('gnp.exe');
  }
});
