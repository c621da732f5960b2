/** dlq sweep --every — rounds, health and metrics, and its end by a signal. */
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../rabbit/until.ts';
import { withService } from '../services/index.ts';
import type { Running, Shell } from './setup.ts';
import { sweepShell } from './sweep-ground.ts';

/** So many that a run with one in hand takes its time. */
const LETTERS = 300;

/** Runs until the test ends, at the latest. */
function sweeping(shell: Shell, argv: readonly string[]): Running {
  const running = shell.start(['dlq', 'sweep', '--every', '1s', ...argv]);
  onTestFinished(async () => {
    running.signal('SIGTERM');
    await running.ended;
  });
  return running;
}

async function urlOf(running: Running): Promise<string> {
  const [, url = ''] = await running.printed(/listening on (http:\S+):/);
  return url;
}

withService('rabbitmq', () => {
  test('runs at once and again, counts, and ends with 0', async () => {
    const shell = await sweepShell();
    const { lay, prefix, depth } = shell;
    const queue = await lay('dlq', [4, 1]);
    const words = ['--queue', queue, '--target', `${prefix}.failed`, '--listen', '0'];
    const running = sweeping(shell, words);
    const url = await urlOf(running);
    await running.printed(/ swept queues=1 moved=1 left=1 /);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    await lay('dlq', [9]);
    await running.printed(/ swept queues=1 moved=1 left=1 [\s\S]* swept queues=1 moved=1 left=1 /);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toMatch(/respool_sweep_runs_total\{result="succeeded"\} [2-9]/);
    expect(metrics).toContain(`respool_sweep_messages_total{queue="${queue}"} 2`);
    expect(metrics).toMatch(/respool_sweep_last_success_timestamp_seconds \d{9}/);
    expect(metrics).toMatch(/respool_sweep_duration_seconds_count [2-9]/);
    running.signal('SIGTERM');
    const { code, stderr } = await running.ended;
    expect(code, stderr).toBe(0);
    expect(await depth(queue)).toBe(1);
    expect(await depth(`${prefix}.failed`)).toBe(2);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });

  test('a broker that is away is a failed run, told by health, and tried again', async () => {
    const shell = await sweepShell();
    const words = ['--queue', 'a', '--target', 'b', '--url', 'amqp://127.0.0.1:1', '--listen', '0'];
    const running = sweeping(shell, words);
    const url = await urlOf(running);
    await running.printed(/(?: failed queues=0 [\s\S]*){2}/);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    const ready = await fetch(`${url}/readyz`);
    expect(ready.status).toBe(503);
    expect(await ready.json()).toMatchObject({
      reasons: expect.arrayContaining([expect.stringContaining('cannot connect')]) as string[],
    });
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toMatch(/respool_sweep_runs_total\{result="failed"\} [2-9]/);
    running.signal('SIGINT');
    expect((await running.ended).code).toBe(0);
  });

  test('--json prints one object per run', async () => {
    const shell = await sweepShell();
    const queue = await shell.lay('dlq', [4]);
    const words = ['--queue', queue, '--target', `${shell.prefix}.failed`, '--json'];
    const running = sweeping(shell, words);
    await running.printed(/(?:"status":"success"[\s\S]*){2}/);
    running.signal('SIGTERM');
    const { objects } = await running.ended;
    expect(objects().slice(0, 2)).toMatchObject([
      { status: 'success', results: { moved: 1 } },
      { status: 'success', results: { moved: 0 } },
    ]);
  });

  test.each([
    ['--every', ['--every', '1h'], 0],
    ['a single run', [], 143],
  ])('SIGTERM in the middle of %s gives back what is in hand', async (_title, more, code) => {
    const shell = await sweepShell();
    const { lay, prefix, depth, channel } = shell;
    const queue = await lay(
      'dlq',
      Array.from({ length: LETTERS }, () => 4),
    );
    const target = `${prefix}.failed`;
    await channel.assertQueue(target, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
    const words = ['dlq', 'sweep', '--queue', queue, '--target', target, '--window', '1'];
    const running = shell.start([...words, ...more]);
    await until(async () => ((await depth(target)) > 0 ? true : undefined));
    running.signal('SIGTERM');
    const ran = await running.ended;
    expect(ran.code, ran.stderr).toBe(code);
    // The broker counts what was given back a moment later.
    await until(async () => {
      const all = (await depth(queue)) + (await depth(target));
      return all === LETTERS ? true : undefined;
    });
  });
});
