/** The metrics of passes over dead letters: sweeps and replays. */

import { PermanentError, type SpoolEvent } from 'respool';
import { describe, expect, test } from 'vitest';
import { createSpoolLetters, planReplay, runReplay } from 'respool/dead-letters';
import { drive } from '../dead-letters/replay/setup.ts';
import { halfDead, openGround } from '../rabbit/queues/sweep-ground.ts';
import { withService } from '../services/index.ts';
import { bench } from './broker-ground.ts';
import { watched } from './metrics-ground.ts';
import { internalsOf } from '../../src/spool/internals.ts';

type Replay = Extract<SpoolEvent, { kind: 'replay' }>;

describe('sweeps', () => {
  const report = { queue: 'a', moved: 3, left: 2, seen: 5 };

  test('a run is counted with its queues', async () => {
    const { metrics, scrape } = await bench();
    expect((await scrape()).value('respool_sweep_last_success_timestamp_seconds')).toBeUndefined();
    metrics.sweep({ endedAt: 5_000, tookMs: 1_500, isWell: true, reports: [report] });
    const again = { ...report, left: 1, error: 'locked' };
    metrics.sweep({ endedAt: 9_000, tookMs: 100, isWell: false, reports: [again] });
    const told = await scrape();
    expect(told.value('respool_sweep_runs_total', { result: 'succeeded' })).toBe(1);
    expect(told.value('respool_sweep_runs_total', { result: 'failed' })).toBe(1);
    expect(told.value('respool_sweep_messages_total', { queue: 'a' })).toBe(6);
    expect(told.value('respool_sweep_left', { queue: 'a' })).toBe(1);
    expect(told.value('respool_sweep_last_success_timestamp_seconds')).toBe(5);
    expect(told.value('respool_sweep_duration_seconds_count')).toBe(2);
  });

  test('a sweep that a spool tells of is counted, one queue at a time', async () => {
    const { spool, scrape } = await watched();
    const swept = { at: 7_000, kind: 'sweep', target: 't', ...report } as const;
    internalsOf(spool).emit(swept);
    internalsOf(spool).emit({ ...swept, queue: 'b', left: 0, error: 'refused' });
    const told = await scrape();
    expect(told.value('respool_sweep_messages_total', { queue: 'a' })).toBe(3);
    expect(told.value('respool_sweep_left', { queue: 'a' })).toBe(2);
    expect(told.value('respool_sweep_left', { queue: 'b' })).toBe(0);
    expect(told.value('respool_sweep_runs_total', { result: 'failed' })).toBe(1);
    expect(told.value('respool_sweep_last_success_timestamp_seconds')).toBe(7);
  });

  test('at most `queuesMax` queues have labels of their own', async () => {
    const { metrics, scrape } = await bench({ queuesMax: 2 });
    const reports = Array.from({ length: 5 }, (_, at) => ({ ...report, queue: `q${at}` }));
    metrics.sweep({ endedAt: 0, tookMs: 1, isWell: true, reports });
    const told = await scrape();
    expect(told.labelled('queue')).toEqual(new Set(['q0', 'q1', 'other']));
    expect(told.value('respool_sweep_left', { queue: 'other' })).toBe(6);
  });
});

withService('rabbitmq', () => {
  test('a sweep at a broker moves its counters by way of its events', async () => {
    const { spool, scrape } = await watched();
    const { queues, pair, sweep } = await openGround();
    const { queue, target } = await pair();
    await queues.fill(queue, 20, halfDead);
    const swept = await sweep({
      queue,
      target,
      onEvent: (event) => internalsOf(spool).emit(event),
    });
    expect(swept).toMatchObject({ moved: 10, left: 10 });
    const told = await scrape();
    expect(told.value('respool_sweep_messages_total', { queue })).toBe(10);
    expect(told.value('respool_sweep_left', { queue })).toBe(10);
    expect(told.value('respool_sweep_runs_total', { result: 'succeeded' })).toBe(1);
  });
});

describe('replays', () => {
  const event = (state: Replay['state'], sent: number, more: Partial<Replay> = {}): Replay => ({
    at: 0,
    kind: 'replay',
    replay: 'r1',
    by: 'ann',
    failed: 0,
    again: 0,
    ...more,
    state,
    sent,
  });

  test('their states are counted, and the letters by what came of them', async () => {
    const { spool, scrape } = await watched();
    internalsOf(spool).emit(event('running', 0));
    internalsOf(spool).emit(event('paused', 4, { failed: 1 }));
    internalsOf(spool).emit(event('running', 4, { failed: 1 }));
    internalsOf(spool).emit(event('done', 9, { failed: 1, again: 2 }));
    const told = await scrape();
    expect(told.value('respool_replays_total', { state: 'running' })).toBe(2);
    expect(told.value('respool_replays_total', { state: 'done' })).toBe(1);
    expect(told.value('respool_replay_letters_total', { result: 'sent' })).toBe(9);
    expect(told.value('respool_replay_letters_total', { result: 'failed' })).toBe(1);
    expect(told.value('respool_replay_letters_total', { result: 'again' })).toBe(2);
  });

  test('what one had sent before it is first heard of is not counted again', async () => {
    const { spool, scrape } = await watched();
    internalsOf(spool).emit(event('running', 100));
    internalsOf(spool).emit(event('done', 103));
    const told = await scrape();
    expect(told.value('respool_replay_letters_total', { result: 'sent' })).toBe(3);
  });

  test('a replay of bounced messages moves its counters', async () => {
    const { spool, clock, scrape } = await watched();
    let isBroken = true;
    spool.handle('mail', () => {
      if (isBroken) throw new PermanentError('mail.refused', 'no such user');
    });
    for (let at = 0; at < 8; at += 1) await spool.enqueue({ topic: 'mail' });
    await clock.advance(60_000);
    isBroken = false;
    const operator = spool.operator({ by: 'ann' });
    const letters = createSpoolLetters(operator, { kinds: ['dead'] });
    const source = { kind: 'spool', kinds: ['dead'] } as const;
    const { id } = await planReplay(operator, letters, source, {}, { clock });
    await drive(clock, runReplay(operator, letters, id, { clock }));
    const told = await scrape();
    expect(told.value('respool_replays_total', { state: 'planned' })).toBe(1);
    expect(told.value('respool_replays_total', { state: 'done' })).toBe(1);
    expect(told.value('respool_replay_letters_total', { result: 'sent' })).toBe(8);
    await spool.stop();
  });
});
