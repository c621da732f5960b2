/** Every metric of a spool is moved by what it tells of, and by as much (R77, R192, R193). */
import {
  type EventOf,
  held,
  ladder,
  PermanentError,
  type Spool,
  type StoreOperation,
} from 'respool';
import { createMetrics, type Metrics } from 'respool/observe';
import { describe, expect, test } from 'vitest';
import { readVersion } from '../../src/system/version.ts';
import { failing, HOUR, makeGate, MINUTE, setup, type World } from '../spool/setup.ts';
import { watched } from './metrics-ground.ts';
import { internalsOf, setInternals, type SpoolInternals } from '../../src/spool/internals.ts';

/** What a test does, and what the scrape after it says: name and labels to value. */
interface Move {
  readonly families: readonly string[];
  readonly does: (world: World & { readonly metrics: Metrics }) => Promise<void>;
  readonly says: readonly (readonly [string, Readonly<Record<string, string>>, number])[];
}

/** Where virtual time begins. */
const START = Date.UTC(2026, 0, 1);
const SPOOL = { source: 'spool' };
const A = { ...SPOOL, topic: 'a' };
const OTHER = { source: 'other' };
const INSERT = { ...OTHER, store: 'entries', operation: 'insert' };
const VERSION = readVersion();
const alert = (rule: string, phase: 'fired' | 'resolved'): EventOf<'alert'> => ({
  kind: 'alert',
  at: 0,
  rule,
  phase,
  episode: 1,
  text: '',
});

const MOVES: Readonly<Record<string, Move>> = {
  'messages that come, and one of them twice': {
    families: ['accepted_total', 'duplicates_total'],
    does: async ({ spool }) => {
      await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
      await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
      await spool.enqueue({ topic: 'b' });
    },
    says: [
      ['accepted_total', A, 1],
      ['accepted_total', { ...SPOOL, topic: 'b' }, 1],
      ['duplicates_total', A, 1],
    ],
  },
  'one that fails twice and is delivered': {
    families: [
      'delivered_total',
      'deferred_total',
      'attempts_total',
      'attempts_to_success',
      'time_to_delivery_seconds',
      'handler_duration_seconds',
      'retry_delay_seconds',
      'engine_settled_total',
    ],
    does: async ({ spool, clock }) => {
      const { handler } = failing(2);
      spool.handle('a', async (delivery) => {
        await new Promise<void>((resolve) => clock.after(2_000, resolve));
        return handler(delivery);
      });
      await spool.enqueue({ topic: 'a' });
      await clock.advance('10m');
    },
    says: [
      ['delivered_total', A, 1],
      ['deferred_total', A, 2],
      ['attempts_total', { ...A, outcome: 'failed' }, 2],
      ['attempts_total', { ...A, outcome: 'delivered' }, 1],
      ['attempts_to_success_count', A, 1],
      ['attempts_to_success_sum', A, 3],
      ['attempts_to_success_bucket', { ...A, le: '2' }, 0],
      ['attempts_to_success_bucket', { ...A, le: '3' }, 1],
      // Three attempts of 2 s, a minute and two minutes between them.
      ['time_to_delivery_seconds_sum', A, 186],
      ['time_to_delivery_seconds_bucket', { ...A, le: '60' }, 0],
      ['time_to_delivery_seconds_bucket', { ...A, le: '300' }, 1],
      ['handler_duration_seconds_sum', A, 6],
      ['handler_duration_seconds_count', A, 3],
      ['handler_duration_seconds_bucket', { ...A, le: '1' }, 0],
      ['handler_duration_seconds_bucket', { ...A, le: '2.5' }, 3],
      // Each step of the ladder has a bucket of its own.
      ['retry_delay_seconds_sum', A, 180],
      ['retry_delay_seconds_bucket', { ...A, le: '30' }, 0],
      ['retry_delay_seconds_bucket', { ...A, le: '60' }, 1],
      ['retry_delay_seconds_bucket', { ...A, le: '120' }, 2],
      ['retry_delay_seconds_bucket', { ...A, le: '+Inf' }, 2],
      ['engine_settled_total', SPOOL, 3],
    ],
  },
  'one that is given up, and told of': {
    families: ['bounced_total', 'announced_total'],
    does: async ({ spool, clock }) => {
      spool.handle('a', failing(9, () => new PermanentError('smtp.550', 'no')).handler);
      spool.onBounce('a', () => undefined);
      await spool.enqueue({ topic: 'a' });
      await clock.settle();
    },
    says: [
      ['bounced_total', { ...A, code: 'smtp.550' }, 1],
      ['announced_total', A, 1],
    ],
  },
  'one that a person has to look at': {
    families: ['held_total', 'messages', 'topic_messages'],
    does: async ({ spool, clock }) => {
      spool.handle('a', () => held('look'));
      await spool.enqueue({ topic: 'a' });
      await clock.settle();
    },
    says: [
      ['held_total', A, 1],
      ['messages', { ...SPOOL, state: 'hold' }, 1],
      ['messages', { ...SPOOL, state: 'incoming' }, 0],
      ['topic_messages', { ...A, state: 'hold' }, 1],
    ],
  },
  'one that our stop gives back': {
    families: ['released_total'],
    does: async ({ spool, clock }) => {
      spool.handle('a', makeGate().handler);
      await spool.enqueue({ topic: 'a' });
      await clock.settle();
      const stop = spool.stop({ within: '1s' });
      await clock.advance('1m');
      await stop;
    },
    says: [
      ['released_total', A, 1],
      ['attempts_total', { ...A, outcome: 'given up' }, 1],
      ['engine_running', SPOOL, 0],
    ],
  },
  'what operators remove, softly and for good': {
    families: ['archived_total', 'removed_total', 'operator_actions_total'],
    does: async ({ spool }) => {
      const ids: string[] = [];
      for (let at = 0; at < 3; at += 1) ids.push((await spool.enqueue({ topic: 'a' })).id);
      await spool.operator({ by: 'ops' }).remove(ids.slice(0, 1));
      await spool.operator({ by: 'ops' }).remove(ids.slice(1), { hard: true });
    },
    says: [
      ['archived_total', A, 1],
      ['removed_total', A, 2],
      ['operator_actions_total', { ...SPOOL, action: 'remove' }, 2],
    ],
  },
  'an attempt that outlives its lease, and its verdict': {
    families: ['lease_losses_total', 'stale_settles_total'],
    does: async (world) => {
      const { spool, clock, store } = world;
      const gate = makeGate();
      spool.handle('a', gate.handler);
      await spool.enqueue({ topic: 'a' });
      await clock.settle();
      // The lease cannot be kept; when it is over, another process takes the message.
      store.faults.plan = () => 'before';
      const other = await setup({ with: world });
      other.spool.handle('a', () => undefined);
      await clock.advance('2m');
      store.faults.plan = () => 'ok';
      gate.open();
      await clock.settle();
    },
    says: [
      ['lease_losses_total', SPOOL, 1],
      ['stale_settles_total', SPOOL, 1],
    ],
  },
  'what the machinery tells': {
    families: [
      'trouble_total',
      'clock_jumps_total',
      'caretaker_forgotten_total',
      'caretaker_orphans_total',
    ],
    does: async ({ spool }) => {
      internalsOf(spool).emit({ kind: 'trouble', at: 0, doing: 'x', error: new Error('y') });
      internalsOf(spool).emit({ kind: 'clock-jumped', at: 0, byMs: 5_000 });
      internalsOf(spool).emit({ kind: 'cleaned-up', at: 0, forgotten: 3, orphans: 2 });
      internalsOf(spool).emit({ kind: 'cleaned-up', at: 0, forgotten: 4, orphans: 0 });
    },
    says: [
      ['trouble_total', SPOOL, 1],
      ['clock_jumps_total', SPOOL, 1],
      ['caretaker_forgotten_total', SPOOL, 7],
      ['caretaker_orphans_total', SPOOL, 2],
    ],
  },
  'alerts that fire and are over': {
    families: ['alerts_total', 'alerts_firing'],
    does: async ({ spool }) => {
      internalsOf(spool).emit(alert('slow', 'fired'));
      internalsOf(spool).emit(alert('slow', 'resolved'));
      internalsOf(spool).emit(alert('slow', 'fired'));
      internalsOf(spool).emit(alert('full', 'fired'));
      internalsOf(spool).emit(alert('full', 'resolved'));
    },
    says: [
      ['alerts_total', { rule: 'slow', phase: 'fired' }, 2],
      ['alerts_total', { rule: 'slow', phase: 'resolved' }, 1],
      ['alerts_firing', { rule: 'slow' }, 1],
      ['alerts_firing', { rule: 'full' }, 0],
    ],
  },
  'a slot that is taken, and what waits': {
    families: [
      'engine_slots',
      'engine_slots_busy',
      'engine_running',
      'oldest_age_seconds',
      'next_due_timestamp_seconds',
      'paused_topics',
    ],
    does: async ({ spool, clock }) => {
      spool.handle('a', makeGate().handler);
      await spool.operator({ by: 'ops' }).pause('b');
      await spool.enqueue({ topic: 'a' });
      await spool.enqueue({ topic: 'b', delay: '2h' });
      await clock.advance('1m');
    },
    says: [
      ['engine_slots', SPOOL, 2],
      ['engine_slots_busy', SPOOL, 1],
      ['engine_running', SPOOL, 1],
      ['oldest_age_seconds', { ...A, state: 'active' }, MINUTE / 1_000],
      ['oldest_age_seconds', { ...SPOOL, state: 'deferred', topic: 'b' }, MINUTE / 1_000],
      ['next_due_timestamp_seconds', SPOOL, (START + 2 * HOUR) / 1_000],
      ['paused_topics', SPOOL, 1],
      ['messages', { ...SPOOL, state: 'active' }, 1],
      ['messages', { ...SPOOL, state: 'deferred' }, 1],
    ],
  },
  'a spool of another name, with a store that tells': {
    families: [
      'engine_waiting',
      'engine_settling',
      'store_operation_duration_seconds',
      'store_operation_failures_total',
      'store_batch_size',
      'forecast_drain_seconds',
      'forecast_full_seconds',
    ],
    does: async ({ metrics }) => {
      const { spool, hear } = otherSpool();
      const forecast = () => ({ drainsInMs: 90_000, fullInMs: HOUR });
      metrics.watch(spool, { source: 'other', forecast });
      const insert = { store: 'entries', name: 'insert', isDone: true } as const;
      hear({ ...insert, items: 40, tookMs: 2 });
      hear({ ...insert, items: 10, tookMs: 8 });
      hear({ ...insert, items: 1, tookMs: 500, isDone: false });
      hear({ store: 'bodies', name: 'put', items: 1, tookMs: 1, isDone: true });
    },
    says: [
      ['engine_waiting', OTHER, 7],
      ['engine_settling', OTHER, 5],
      // What it had settled before anybody watched is not ours.
      ['engine_settled_total', OTHER, 0],
      ['forecast_drain_seconds', OTHER, 90],
      ['forecast_full_seconds', OTHER, 3_600],
      ['store_operation_duration_seconds_count', INSERT, 3],
      ['store_operation_duration_seconds_sum', INSERT, 0.51],
      ['store_operation_duration_seconds_bucket', { ...INSERT, le: '0.0025' }, 1],
      ['store_operation_duration_seconds_bucket', { ...INSERT, le: '0.01' }, 2],
      ['store_operation_failures_total', INSERT, 1],
      ['store_batch_size_sum', INSERT, 51],
      ['store_batch_size_bucket', { ...INSERT, le: '10' }, 2],
      ['store_batch_size_count', { ...OTHER, store: 'bodies', operation: 'put' }, 1],
    ],
  },
  'a store that does not answer': {
    families: ['scrape_failures_total', 'states_age_seconds', 'info'],
    does: async ({ store, clock }) => {
      store.faults.plan = (operation) => (operation === 'tally' ? 'before' : 'ok');
      await clock.advance('40s');
    },
    says: [
      ['scrape_failures_total', SPOOL, 1],
      ['states_age_seconds', SPOOL, 40],
      ['info', { version: VERSION }, 1],
    ],
  },
};

/** Families that need a broker, an outbox or dead letters. */
const BESIDE = /^respool_(?:rabbit|outbox|sweep|replay)/;

describe('metrics are moved by', () => {
  test.each(Object.entries(MOVES))('%s', async (_, { does, says }) => {
    const policies = { default: ladder(['1m', '2m', '4m']) };
    const world = await watched({}, { concurrency: 2, policies });
    await does(world);
    const { value } = await world.scrape();
    for (const [name, labels, expected] of says) {
      const found = value(`respool_${name}`, labels);
      expect([name, labels, round(found)]).toEqual([name, labels, expected]);
    }
  });
});

test('nothing is registered that no test moves', async () => {
  const metrics = await createMetrics();
  const registered = metrics.registry
    .getMetricsAsArray()
    .map(({ name }) => name)
    .filter((name) => !BESIDE.test(name));
  metrics.close();
  const moved = Object.values(MOVES).flatMap(({ families, says }) =>
    families.filter((family) => says.some(([name, , value]) => isOf(name, family) && value > 0)),
  );
  expect(moved.map((name) => `respool_${name}`).toSorted()).toEqual(registered.toSorted());
});

function isOf(sample: string, family: string): boolean {
  return sample.replace(/_(?:sum|count|bucket)$/, '') === family;
}

/** Sums of seconds are not exact. */
function round(value: number | undefined): number | undefined {
  return value === undefined ? undefined : Math.round(value * 1e9) / 1e9;
}

/** What looks like a spool, with an engine at work and a store that tells what the test says. */
function otherSpool(): { spool: Spool; hear: (operation: StoreOperation) => void } {
  const load = {
    isRunning: true,
    concurrency: 9,
    running: 9,
    waiting: 7,
    settling: 5,
    settled: 11,
  };
  let listener: ((operation: StoreOperation) => void) | undefined;
  const spool = {
    load,
    on: () => () => undefined,
  } as unknown as Spool;
  const internals: Partial<SpoolInternals> = {
    load,
    isOpen: true,
    on: () => () => undefined,
    now: () => START,
    tally: async () => [],
    nextDueAt: async () => null,
    pauses: async () => [],
    onStoreOperation: (hear) => {
      listener = hear;
      return () => undefined;
    },
  };
  setInternals(spool, internals as SpoolInternals);
  return { spool, hear: (operation) => listener?.(operation) };
}
