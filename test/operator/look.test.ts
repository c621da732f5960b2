/** control: the spool in numbers, by age, and as it happens. */
import { internalsOf } from '../../src/spool/internals.ts';
import { createOperator } from '../../src/spool/operator/spool-operator.ts';
import { ThroughputMeter } from '../../src/spool/operator/throughput.ts';
import { fixed, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { setup } from '../spool/setup.ts';

describe('stats', () => {
  test('count each state, with its oldest message, the next due time and what is paused', async () => {
    const { spool, clock } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const began = clock.now();
    await spool.enqueue({ topic: 'a', delay: '1h' });
    await clock.advance('1m');
    await spool.enqueue({ topic: 'a', delay: '3h' });
    await operator.pause('b.*');
    const stats = await operator.stats();
    expect(stats.states.deferred).toEqual({ count: 2, oldestAt: began });
    expect(stats.states.hold).toEqual({ count: 0, oldestAt: null });
    expect(stats.nextDueAt).toBe(began + 3_600_000);
    expect(stats.paused).toEqual([{ topic: 'b.*', by: 'ann', at: clock.now() }]);
    expect(await operator.pauses()).toEqual(stats.paused);
    expect(stats.at).toBe(clock.now());
  });

  test('tell load and flow only where messages are delivered', async () => {
    const { spool, clock } = await setup({ policies: { default: fixed('1h', { attempts: 2 }) } });
    const meter = new ThroughputMeter(internalsOf(spool));
    const operator = createOperator(internalsOf(spool), { by: 'ann', meter });
    spool.handle('good', () => new Promise<void>((resolve) => void clock.after(20, resolve)));
    spool.handle('bad', () => Promise.reject(new Error('no')));
    // Notices of bounces are not what went through.
    spool.handle('gone', () => Promise.reject(new PermanentError('gone', 'no')));
    spool.onBounce('gone', () => Promise.reject(new Error('nobody to tell')));
    for (const topic of ['good', 'bad', 'gone']) await spool.enqueue({ topic });
    await clock.advance(20);
    const { load, flow } = await operator.stats();
    expect(load).toMatchObject({ isRunning: true, running: 0 });
    expect(flow).toMatchObject({ accepted: 3, delivered: 1, deferred: 1, bounced: 1, held: 0 });
    expect(flow?.tookMs).toEqual({ p50: 20, p95: 20, p99: 20, max: 20 });
    expect(flow?.ageMs).toMatchObject({ p50: 20 });
    await clock.advance('2m');
    expect((await operator.stats()).flow).toMatchObject({
      windowMs: 60_000,
      accepted: 0,
      delivered: 0,
      tookMs: null,
    });
    meter.stop();
    await spool.stop();
    const looking = await operator.stats();
    expect([looking.load, looking.flow]).toEqual([undefined, undefined]);
  });
});

describe('shape', () => {
  test('counts what waits by topic and age', async () => {
    const { spool, clock } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const put = (topic: string) => spool.enqueue({ topic, delay: '30d', destination: 'acme' });
    await put('old');
    await clock.advance('2d');
    await put('old');
    await clock.advance('7m');
    await put('new');
    await spool.enqueue({ topic: 'held', delay: '1d', id: 'held' });
    await spool.operator({ by: 'ops' }).hold(['held']);
    const shape = await operator.shape();
    expect(shape.boundsMs.map((ms) => ms / 60_000)).toEqual([
      5, 10, 20, 40, 80, 160, 320, 640, 1_280,
    ]);
    expect(shape.rows).toEqual([
      { key: 'old', total: 2, counts: [0, 1, 0, 0, 0, 0, 0, 0, 0, 1] },
      { key: 'new', total: 1, counts: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
    ]);
    expect(shape.total).toEqual({
      key: 'TOTAL',
      total: 3,
      counts: [1, 1, 0, 0, 0, 0, 0, 0, 0, 1],
    });
  });

  test('counts by destination, and other states when asked to', async () => {
    const { spool } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const { id } = await spool.enqueue({ topic: 'a', destination: 'acme' });
    await spool.enqueue({ topic: 'a' });
    expect((await operator.shape({ by: 'destination' })).rows).toMatchObject([
      { key: 'acme', total: 1 },
    ]);
    await spool.operator({ by: 'ops' }).hold([id]);
    expect((await operator.shape({ filter: { state: 'hold' } })).rows).toMatchObject([
      { key: 'a', total: 1 },
    ]);
    const wrong = operator.shape({ by: 'colour' as 'topic' });
    await expect(wrong).rejects.toMatchObject({ code: 'config.invalid' });
  });
});

describe('events', () => {
  test('are told from the call on, of the kinds that were asked for, until the signal', async () => {
    const { spool, clock } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const abort = new AbortController();
    const events = operator.events({ signal: abort.signal, kinds: ['accepted', 'held'] });
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.operator({ by: 'ops' }).pause('#');
    await clock.settle();
    const heard: unknown[] = [];
    for await (const event of events) {
      heard.push([event.kind, 'id' in event ? event.id : undefined]);
      if (heard.length === 1) abort.abort();
    }
    expect(heard).toEqual([['accepted', id]]);
  });

  test('that a slow listener missed are counted, not kept', async () => {
    const { spool } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const abort = new AbortController();
    const events = operator.events({ signal: abort.signal, kinds: ['accepted'] });
    await spool.enqueueMany(Array.from({ length: 1_005 }, () => ({ topic: 'a' })));
    let count = 0;
    for await (const event of events) {
      count += 1;
      if (event.kind !== 'missed') continue;
      expect(event.count).toBe(5);
      abort.abort();
    }
    expect(count).toBe(1_001);
  });

  test('carry an error as its text and its code', async () => {
    const { spool, store, clock } = await setup();
    const operator = spool.operator({ by: 'ann' });
    const abort = new AbortController();
    const events = operator.events({ signal: abort.signal, kinds: ['trouble'] });
    store.faults.plan = () => 'before';
    await clock.advance('2m');
    for await (const event of events) {
      expect(JSON.parse(JSON.stringify(event))).toMatchObject({
        kind: 'trouble',
        error: expect.stringMatching(/./),
        code: 'store.unavailable',
      });
      abort.abort();
    }
    store.faults.plan = () => 'ok';
  });
});

test('policies are named, the default among them', async () => {
  const { spool } = await setup({ policies: { slow: fixed('1h') } });
  const names = (await spool.operator({ by: 'ann' }).policies()).map(({ name }) => name);
  expect(names.toSorted()).toEqual(['default', 'slow']);
});

test('messages come in through an operator too, one or many', async () => {
  const { spool } = await setup();
  const operator = spool.operator({ by: 'ann' });
  const { id } = await operator.enqueue({ topic: 'a', body: 'hello' });
  await operator.enqueueMany([{ topic: 'b' }]);
  let text = '';
  for await (const part of await operator.body(id)) text += Buffer.from(part).toString();
  expect([text, (await spool.count()).incoming]).toEqual(['hello', 2]);
});
