/** dlq sweep --listen: what health, readiness and metrics say, and what they cost. */
import { inRounds, createClosers } from '../../src/cli/lifetime.ts';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { SimClock } from 'respool/testkit';
import { createHealth } from '../../src/cli/commands/dlq/sweep/sweep.ts';
import { type HealthAnswers, startListening } from '../../src/cli/commands/dlq/sweep/listen.ts';
import { createSweepMetrics, LABELS_MAX } from '../../src/cli/commands/dlq/sweep/metrics.ts';
import type { SweepRun } from '../../src/cli/commands/dlq/sweep/run.ts';
import { systemClock } from '../../src/system/clock.ts';
import { createLabels } from '../../src/observe/metrics/context.ts';

const EVERY_MS = 60_000;

function runOf(more: Partial<SweepRun> = {}): SweepRun {
  return { endedAt: 5_000, tookMs: 1_500, isWell: true, reports: [], problems: [], ...more };
}

function reportOf(queue: string, more: object = {}): SweepRun['reports'][number] {
  const counts = { total: 3, seen: 3, moved: 1, left: 2, already: 0, tookMs: 1 };
  return { queue, target: 'dead', end: 'done', ...counts, ...more };
}

describe('readiness', () => {
  test('a sweep is ready after its first run that went well', () => {
    const health = createHealth(new SimClock(), EVERY_MS);
    expect(health.reasons()).toEqual(['no run has ended yet']);
    health.hear(runOf());
    expect(health.reasons()).toEqual([]);
  });

  test('a failed run is told with its reasons until the next one that goes well', () => {
    const health = createHealth(new SimClock(), EVERY_MS);
    health.hear(runOf({ isWell: false, error: new Error('broker away') }));
    expect(health.reasons()).toEqual(['broker away']);
    health.hear(runOf({ isWell: false, reports: [reportOf('a', { error: 'no target' })] }));
    expect(health.reasons()).toEqual(['a: no target']);
    const problem = { text: 'no queue matches', isSkipped: false };
    const skipped = { text: 'it is a lock', isSkipped: true };
    health.hear(runOf({ isWell: false, problems: [problem, skipped] }));
    expect(health.reasons()).toEqual(['no queue matches']);
    health.hear(runOf());
    expect(health.reasons()).toEqual([]);
  });

  test('a run that does not come for twice the span is missed', async () => {
    const clock = new SimClock();
    const health = createHealth(clock, EVERY_MS);
    health.hear(runOf());
    await clock.advance(2 * EVERY_MS);
    expect(health.reasons()).toEqual([]);
    await clock.advance(1);
    expect(health.reasons()).toEqual(['no run has succeeded for 2m, one is due every 1m']);
  });
});

describe('rounds', () => {
  test('close all that they opened, the last first, also when one of it fails', async () => {
    const closed: string[] = [];
    const { atEnd, close } = createClosers();
    atEnd(() => void closed.push('connection'));
    atEnd(() => Promise.reject(new Error('the store is away')));
    atEnd(() => void closed.push('lock'));
    await expect(close()).rejects.toThrow('the store is away');
    expect(closed).toEqual(['lock', 'connection']);
    await close();
    expect(closed).toHaveLength(2);
  });

  test('go from start to start, and one that takes longer is followed at once', async () => {
    const clock = new SimClock();
    const over = new AbortController();
    const starts: number[] = [];
    const first = clock.monotonic();
    const running = inRounds({ clock, everyMs: EVERY_MS, signal: over.signal }, async () => {
      starts.push(clock.monotonic() - first);
      const tookMs = starts.length === 2 ? 1.5 * EVERY_MS : 1_000;
      await new Promise<void>((resolve) => {
        clock.after(tookMs, resolve);
      });
    });
    await clock.advance(4 * EVERY_MS);
    over.abort();
    await clock.advance(EVERY_MS);
    await running;
    expect(starts).toEqual([0, EVERY_MS, 2.5 * EVERY_MS, 3.5 * EVERY_MS]);
  });
});

describe('metrics', () => {
  test('count runs, messages by queue, the last success and how long it took', async () => {
    const metrics = createSweepMetrics();
    expect((await metrics.text()).text).toContain('respool_sweep_runs_total{result="failed"} 0');
    metrics.count(runOf({ reports: [reportOf('a"\\\n'), reportOf('b')] }));
    metrics.count(runOf({ isWell: false, endedAt: 9_000, reports: [reportOf('b')] }));
    const { type, text } = await metrics.text();
    expect(type).toContain('text/plain');
    expect(text.split('\n')).toEqual(
      expect.arrayContaining([
        'respool_sweep_runs_total{result="succeeded"} 1',
        'respool_sweep_runs_total{result="failed"} 1',
        'respool_sweep_messages_total{queue="a\\"\\\\\\n"} 1',
        'respool_sweep_messages_total{queue="b"} 2',
        'respool_sweep_last_success_timestamp_seconds 5',
        'respool_sweep_duration_seconds_bucket{le="2.5"} 2',
        'respool_sweep_duration_seconds_count 2',
      ]),
    );
  });

  test('tell what the last run left, not the sum of all runs', async () => {
    const metrics = createSweepMetrics();
    const lines = async (): Promise<readonly string[]> =>
      (await metrics.text()).text
        .split('\n')
        .filter((line) => line.startsWith('respool_sweep_left'));
    metrics.count(runOf({ reports: [reportOf('a'), reportOf('b')] }));
    metrics.count(runOf({ reports: [reportOf('b', { left: 5 })] }));
    expect(await lines()).toEqual(['respool_sweep_left{queue="b"} 5']);
    metrics.count(runOf({ isWell: false, error: new Error('broker away') }));
    expect(await lines()).toEqual(['respool_sweep_left{queue="b"} 5']);
    const locked = { end: 'locked', error: 'locked', seen: 0, left: 0 };
    metrics.count(runOf({ isWell: false, reports: [reportOf('b', locked)] }));
    expect(await lines()).toEqual([]);
  });

  test('have at most 500 queues as labels, then others together', () => {
    const labelOf = createLabels(LABELS_MAX);
    const labels = Array.from({ length: 600 }, (_, at) => labelOf(`q${at}`));
    expect(new Set(labels).size).toBe(501);
    expect(labelOf('q0')).toBe('q0');
    expect(labelOf('q599')).toBe('other');
  });

  test('their library is not loaded before somebody listens', async () => {
    const root = path.join(import.meta.dirname, '../..');
    const script =
      "const { createRequire } = await import('node:module');" +
      "await import('./src/cli/commands.ts'); await import('./src/cli/commands/dlq/sweep/sweep.ts');" +
      "const require = createRequire(process.cwd() + '/x.js');" +
      'const isLoaded = () => Object.keys(require.cache).some((one) => /prometheus/.test(one));' +
      'const before = isLoaded();' +
      "await import('./src/cli/commands/dlq/sweep/metrics.ts'); console.log(before, isLoaded());";
    const words = ['--conditions=respool-source', '--input-type=module', '-e', script];
    const { stdout } = await promisify(execFile)(process.execPath, words, { cwd: root });
    expect(stdout.trim()).toBe('false true');
  });
});

describe('the listener', () => {
  async function asked(
    answers: Partial<HealthAnswers>,
  ): Promise<(way: string, init?: RequestInit) => Promise<Response>> {
    const listening = await startListening(
      { host: '127.0.0.1', port: 0 },
      {
        reasons: () => [],
        metrics: () => Promise.resolve({ type: 'text/plain', text: 'x 1\n' }),
        ...answers,
      },
      systemClock,
    );
    onTestFinished(() => listening.close());
    return (way, init) => fetch(new URL(way, listening.url), init);
  }

  test('answers health, readiness and metrics, and nothing else', async () => {
    const ask = await asked({});
    expect(await (await ask('/healthz')).json()).toEqual({ status: 'ok' });
    expect((await ask('/readyz?x=1')).status).toBe(200);
    expect(await (await ask('/metrics')).text()).toBe('x 1\n');
    expect((await ask('/')).status).toBe(404);
    expect((await ask('/metrics', { method: 'POST' })).status).toBe(405);
  });

  test('says why it is not ready', async () => {
    const ask = await asked({ reasons: () => ['broker away'] });
    const answer = await ask('/readyz');
    expect(answer.status).toBe(503);
    expect(await answer.json()).toEqual({ status: 'no', reasons: ['broker away'] });
    expect((await ask('/healthz')).status).toBe(200);
  });

  test('goes on when metrics cannot be made', async () => {
    const ask = await asked({ metrics: () => Promise.reject(new Error('odd')) });
    expect((await ask('/metrics')).status).toBe(500);
    expect((await ask('/healthz')).status).toBe(200);
  });

  test('a port that is taken is refused in words', async () => {
    const ask = await asked({});
    const port = Number(new URL((await ask('/healthz')).url).port);
    const answers = { reasons: () => [], metrics: () => Promise.reject(new Error('')) };
    await expect(startListening({ host: '127.0.0.1', port }, answers, systemClock)).rejects.toThrow(
      'another process listens there; choose another with --listen',
    );
  });
});
