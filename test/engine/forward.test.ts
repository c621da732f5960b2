/** forward: a handler that hands messages over to a sink, many in one send (R149). */
import {
  failure,
  fixed,
  forward,
  type ForwardOptions,
  type OutgoingMessage,
  type Sink,
  type SpoolOptions,
} from 'respool';
import { describe, expect, test } from 'vitest';
import { setup } from '../spool/setup.ts';

type Answers = Awaited<ReturnType<Sink['send']>>;

/** A sink that keeps what it is given, and answers as told. */
function sinkOf(answer: (parcels: readonly OutgoingMessage[]) => Answers | Promise<Answers>): {
  readonly sink: Sink;
  readonly sends: (readonly OutgoingMessage[])[];
} {
  const sends: (readonly OutgoingMessage[])[] = [];
  const send: Sink['send'] = async (parcels) => {
    sends.push(parcels);
    return answer(parcels);
  };
  return { sends, sink: { name: 'tin', send, close: async () => undefined } };
}

const confirmed = (parcels: readonly OutgoingMessage[]): Answers =>
  parcels.map(() => 'confirmed' as const);

const RETRY: SpoolOptions = { policies: { default: fixed('1m', { attempts: 3 }) } };

describe('forward', () => {
  test('hands over id, topic, headers, body and time, and takes "confirmed" for delivered', async () => {
    const { sink, sends } = sinkOf(confirmed);
    const { spool, clock, kinds } = await setup();
    spool.handle('#', forward(sink));
    const at = clock.now();
    const { id } = await spool.enqueue({ topic: 'a.b', headers: { x: '1' }, body: 'hello' });
    await clock.settle();
    expect(sends).toEqual([
      [{ id, topic: 'a.b', headers: { x: '1' }, body: expect.anything(), enqueuedAt: at }],
    ]);
    expect(Buffer.from(sends[0]?.[0]?.body ?? []).toString()).toBe('hello');
    expect(kinds(id)).toContain('delivered');
  });

  test('sends together what comes while a send is on its way, at most batchMax', async () => {
    let release = (): void => undefined;
    const first = new Promise<void>((resolve) => {
      release = resolve;
    });
    const { sink, sends } = sinkOf(async (parcels) => {
      await first;
      return confirmed(parcels);
    });
    const { spool, clock } = await setup({ concurrency: 10 });
    spool.handle('#', forward(sink, { batchMax: 5 }));
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    for (let at = 0; at < 9; at += 1) await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(sends.map((parcels) => parcels.length)).toEqual([1]);
    release();
    await clock.settle();
    expect(sends.map((parcels) => parcels.length)).toEqual([1, 5, 4]);
  });

  test('has sendsMax sends on their way at once', async () => {
    const { sink, sends } = sinkOf(() => new Promise(() => undefined));
    const { spool, clock } = await setup({ concurrency: 10 });
    spool.handle('#', forward(sink, { sendsMax: 3 }));
    for (let at = 0; at < 6; at += 1) {
      await spool.enqueue({ topic: 'a' });
      await clock.settle();
    }
    expect(sends).toHaveLength(3);
  });

  test('gives every message the answer that is its own', async () => {
    const { sink } = sinkOf((parcels) =>
      parcels.map(({ topic }) => {
        if (topic === 'good') return 'confirmed';
        return failure(topic === 'never' ? 'permanent' : 'transient', `tin.${topic}`, 'no');
      }),
    );
    const { spool, clock, status } = await setup(RETRY);
    spool.handle('#', forward(sink));
    const ids: Record<string, string> = {};
    for (const topic of ['later', 'good', 'never']) {
      ids[topic] = (await spool.enqueue({ topic })).id;
    }
    await clock.settle();
    expect(await spool.get(ids['good'] ?? '')).toBeUndefined();
    expect(await status(ids['later'] ?? '')).toMatchObject({
      state: 'deferred',
      lastFailure: { code: 'tin.later' },
    });
    expect(await status(ids['never'] ?? '')).toMatchObject({
      state: 'bounce',
      lastFailure: { code: 'tin.never' },
    });
  });

  test.each([
    ['throws', () => Promise.reject(new Error('the line is cut'))],
    ['answers too little', () => []],
    [
      'answers nonsense',
      (parcels: readonly OutgoingMessage[]) => parcels.map(() => 'yes' as 'confirmed'),
    ],
  ])('tries again, with the same id, when the sink %s', async (_, answer) => {
    let isBroken = true;
    const { sink, sends } = sinkOf((parcels) => (isBroken ? answer(parcels) : confirmed(parcels)));
    const { spool, clock, status } = await setup(RETRY);
    spool.handle('#', forward(sink));
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 1 });
    isBroken = false;
    await clock.advance('1m');
    expect(sends.map(([parcel]) => parcel?.id)).toEqual([id, id]);
    expect(await spool.get(id)).toBeUndefined();
  });

  test('bounces a body above maxBytes and does not send it', async () => {
    const { sink, sends } = sinkOf(confirmed);
    const { spool, clock, status } = await setup();
    spool.handle('#', forward(sink, { maxBytes: 4 }));
    const { id } = await spool.enqueue({ topic: 'a', body: 'hello' });
    await clock.settle();
    expect(sends).toEqual([]);
    expect(await status(id)).toMatchObject({
      state: 'bounce',
      lastFailure: { code: 'limit.exceeded', reason: expect.stringContaining('at most 4') },
    });
  });

  test('does not send what was given back while it waited in line', async () => {
    let answer = (): void => undefined;
    const { sink, sends } = sinkOf(async (parcels) => {
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      return confirmed(parcels);
    });
    const { spool, clock, status } = await setup({ concurrency: 10 });
    spool.handle('#', forward(sink));
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const { id } = await spool.enqueue({ topic: 'b' });
    await clock.settle();
    const stopped = spool.stop({ within: '1s' });
    await clock.advance('20s');
    await stopped;
    answer();
    await clock.settle();
    expect(sends.map((parcels) => parcels.map(({ topic }) => topic))).toEqual([['a']]);
    expect(await status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
  });

  test('sends under the topic that the option names', async () => {
    const { sink, sends } = sinkOf(confirmed);
    const { spool, clock } = await setup();
    spool.handle('#', forward(sink, { topic: ({ topic }) => `out.${topic}` }));
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(sends[0]?.[0]?.topic).toBe('out.a');
  });

  test.each([
    [{ batchMax: 0 }, /"batchMax"/],
    [{ sendsMax: 101 }, /"sendsMax"/],
    [{ maxBytes: -1 }, /"maxBytes"/],
    [{ batch: 1 }, /there is no option "batch"/],
  ])('refuses %j', (options, text) => {
    const { sink } = sinkOf(confirmed);
    expect(() => forward(sink, options as ForwardOptions)).toThrow(text);
  });

  test('refuses what is no sink', () => {
    expect(() => forward({} as Sink)).toThrow(expect.objectContaining({ code: 'config.invalid' }));
  });
});
