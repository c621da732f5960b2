/** A relay whose target is gone, or takes only some messages: nothing spins, nothing is blocked. */
import { failure, type OutgoingMessage } from 'respool';
import { describe, expect, test } from 'vitest';
import { confirmed, put, relayWorld, TestSink, type Answers } from './relay-setup.ts';

const gone = (parcels: readonly OutgoingMessage[]): Answers =>
  parcels.map(() => failure('transient', 'broker.unavailable', 'there is no connection'));

const MINUTE = 60_000;

/** All that mean: no answer. */
const AWAY = ['broker.unavailable', 'engine.stopping', 'store.unavailable'];
const CODES = [
  ...AWAY,
  'store.full',
  'peer.missing',
  'config.invalid',
  'sink.unanswered',
  'broker.unconfirmed',
];

describe('a target that is gone', () => {
  test('costs no attempt, and the relay stops claiming: one message asks, after pauses that double', async () => {
    const sink = new TestSink();
    sink.answer = gone;
    const { relay, clock, spool, events, count } = relayWorld(sink);
    await put(spool, 2_000);
    await relay.start();
    await clock.settle();
    expect(relay.load).toMatchObject({ target: 'open', running: 0, waiting: 0 });
    // It began with one, and took no more.
    expect(sink.ids).toHaveLength(1);
    const claims = count('claim');
    const asked: number[] = [];
    const start = clock.now();
    sink.answer = (parcels) => {
      asked.push(clock.now() - start);
      expect(parcels).toHaveLength(1);
      return gone(parcels);
    };
    await clock.advance(2 * MINUTE);
    expect(asked).toEqual([1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000]);
    expect(count('claim') - claims).toBeLessThanOrEqual(2 * asked.length);
    const states = await spool.count();
    expect(states.active).toBe(0);
    for await (const { status } of spool.list()) expect(status.attempts).toBe(0);
    // Told once, not for every probe.
    expect(events.filter(({ kind }) => kind === 'trouble')).toMatchObject([
      { doing: 'sending to sink "tin"', error: { code: 'broker.unavailable' } },
    ]);
    await relay.stop();
  });

  test('gets back what was in hand when it went, unsent but for one send', async () => {
    const sink = new TestSink();
    const { relay, clock, spool } = relayWorld(sink);
    await put(spool, 800);
    sink.answer = (parcels) => (sink.sends.length < 3 ? confirmed(parcels) : gone(parcels));
    await relay.start();
    await clock.settle();
    expect(sink.sends).toHaveLength(3);
    expect(relay.load).toMatchObject({ target: 'open', running: 0, waiting: 0 });
    expect(await spool.count()).toMatchObject({ active: 0 });
    for await (const { status } of spool.list()) expect(status.attempts).toBe(0);
    await relay.stop();
  });

  test('goes on with everything once a probe is answered', async () => {
    const sink = new TestSink();
    sink.answer = gone;
    const { relay, clock, spool } = relayWorld(sink);
    const ids = await put(spool, 300);
    await relay.start();
    await clock.settle();
    sink.answer = confirmed;
    sink.sends.length = 0;
    await clock.advance(1_000);
    expect(sink.sends[0]).toHaveLength(1);
    expect(sink.ids.toSorted()).toEqual(ids.toSorted());
    expect(relay.load.target).toBe('closed');
    expect(await spool.count()).toMatchObject({ incoming: 0, deferred: 0, active: 0 });
    await relay.stop();
  });

  test('is asked at once when it says that it is back', async () => {
    const sink = new TestSink();
    let call = (): void => undefined;
    let isHeard = false;
    sink.onBack = (onBack) => {
      call = onBack;
      isHeard = true;
      return () => {
        isHeard = false;
      };
    };
    sink.answer = gone;
    const { relay, clock, spool } = relayWorld(sink, { pauseAfter: '1h' });
    await put(spool, 10);
    await relay.start();
    await clock.advance('10m');
    expect(sink.sends).toHaveLength(1);
    sink.answer = confirmed;
    call();
    await clock.settle();
    expect(
      new Set(
        sink.sends
          .slice(1)
          .flat()
          .map(({ id }) => id),
      ).size,
    ).toBe(10);
    await relay.stop();
    expect(isHeard).toBe(false);
  });

  test('may take as long to answer as it likes: one probe at a time', async () => {
    const sink = new TestSink();
    sink.answer = gone;
    const { relay, clock, spool } = relayWorld(sink, { pauseAfter: '2s', topics: ['a', 'b'] });
    await put(spool, 50, 'a');
    await put(spool, 50, 'b');
    await relay.start();
    await clock.settle();
    let running = 0;
    let most = 0;
    sink.sends.length = 0;
    sink.answer = async (parcels) => {
      running += 1;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => clock.after(20_000, resolve));
      running -= 1;
      return gone(parcels);
    };
    await clock.advance(MINUTE);
    expect(most).toBe(1);
    // After 2 s, and 4 s after its answer; also with several patterns of topics.
    expect(sink.sends.map((parcels) => parcels.length)).toEqual([1, 1, 1]);
    const stopped = relay.stop({ within: '1m' });
    await clock.advance(MINUTE);
    await stopped;
  });

  test('is a sink that throws, or answers nothing that can be read, as well', async () => {
    const sink = new TestSink();
    const { relay, clock, spool, status, events } = relayWorld(sink);
    const [id = ''] = await put(spool, 1);
    sink.answer = () => {
      throw new Error('out of order');
    };
    await relay.start();
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      attempts: 0,
      postponed: 1,
      because: { code: 'sink.unanswered', text: expect.stringContaining('out of order') },
    });
    sink.answer = () => 'yes' as never;
    await clock.advance('10m');
    expect((await status(id)).attempts).toBe(0);
    expect(sink.sends.length).toBeLessThan(30);
    expect(events.filter(({ kind }) => kind === 'trouble')).toHaveLength(1);
    sink.answer = confirmed;
    await clock.advance('1m');
    expect(await spool.get(id)).toBeUndefined();
    await relay.stop();
  });

  test('is one that says nothing at all, after two minutes', async () => {
    const sink = new TestSink();
    sink.answer = () => new Promise(() => undefined);
    const { relay, clock, spool } = relayWorld(sink);
    const ids = await put(spool, 200);
    await relay.start();
    await clock.advance('119s');
    expect(relay.load).toMatchObject({ target: 'half-open' });
    expect(sink.sends).toHaveLength(1);
    await clock.advance('1s');
    expect(relay.load).toMatchObject({ running: 0, target: 'open' });
    expect(await spool.count()).toMatchObject({ active: 0 });
    sink.answer = confirmed;
    // The one that asked comes last.
    await clock.advance('3s');
    expect(new Set(sink.ids)).toEqual(new Set(ids));
    expect(await spool.count()).toMatchObject({ incoming: 0, deferred: 0 });
    await relay.stop();
  });

  test('charges nobody for coming and going', async () => {
    const sink = new TestSink();
    const { relay, clock, spool } = relayWorld(sink);
    await put(spool, 300);
    // Two sends are answered, the third is lost, and it is away for five minutes.
    let downUntil = 0;
    let sends = 0;
    sink.answer = (parcels) => {
      if (clock.now() < downUntil) return gone(parcels);
      sends += 1;
      if (sends % 3 !== 0) return confirmed(parcels);
      downUntil = clock.now() + 5 * MINUTE;
      return parcels.map(() => failure('transient', 'broker.unconfirmed', 'lost'));
    };
    await relay.start();
    await clock.advance('2h');
    for await (const { status } of spool.list()) expect(status.attempts).toBeLessThan(5);
    expect(await spool.count()).toMatchObject({ bounce: 0 });
    sink.answer = confirmed;
    await clock.advance('10m');
    expect(await spool.count()).toMatchObject({ incoming: 0, deferred: 0 });
    await relay.stop();
  });

  test('has few claimed for each probe, however many patterns of topics there are', async () => {
    const sink = new TestSink();
    sink.answer = gone;
    const topics = Array.from({ length: 20 }, (_, at) => `t${at}`);
    const { relay, clock, spool, events } = relayWorld(sink, { topics });
    for (const topic of topics) await put(spool, 20, topic);
    await relay.start();
    await clock.settle();
    // One of each; and one of them all is sent.
    expect(events.filter(({ kind }) => kind === 'claimed').length).toBeLessThanOrEqual(20);
    expect(sink.ids).toHaveLength(1);
    await relay.stop();
  });

  test('lets a relay stop at once, without a timer left', async () => {
    const sink = new TestSink();
    sink.answer = gone;
    const { relay, clock, spool } = relayWorld(sink);
    await put(spool, 10);
    await relay.start();
    await clock.settle();
    await relay.stop();
    const sends = sink.sends.length;
    await clock.advance('1h');
    expect(sink.sends).toHaveLength(sends);
  });
});

describe('a message that the target does not take', () => {
  test('backs off by its policy, bounces after its attempts with the last error, and holds nobody up', async () => {
    const sink = new TestSink();
    const { relay, clock, spool, status } = relayWorld(sink);
    const [bad = '', ...good] = await put(spool, 20);
    sink.answer = (parcels) =>
      parcels.map(({ id }) =>
        id === bad ? failure('transient', 'broker.unroutable', 'no queue takes it') : 'confirmed',
      );
    await relay.start();
    await clock.settle();
    for (const id of good) expect(await spool.get(id)).toBeUndefined();
    expect(relay.load.target).toBe('closed');
    expect(await status(bad)).toMatchObject({ state: 'deferred', attempts: 1 });
    await clock.advance('3s');
    expect(await status(bad)).toMatchObject({ state: 'deferred', attempts: 3 });
    await clock.advance('3h');
    expect(await status(bad)).toMatchObject({
      state: 'bounce',
      attempts: 20,
      lastFailure: { code: 'broker.unroutable', reason: 'no queue takes it' },
    });
    expect(sink.ids.filter((id) => id === bad)).toHaveLength(20);
    // Replayed by an operator.
    sink.answer = confirmed;
    await spool.operator({ by: 'ops' }).retry([bad]);
    await clock.advance('31s');
    expect(await spool.get(bad)).toBeUndefined();
    await relay.stop();
  });

  test('pays for it when the sink breaks on it, and others get through', async () => {
    const sink = new TestSink();
    const { relay, clock, spool, status } = relayWorld(sink);
    const ids = await put(spool, 40);
    const bad = ids[7] ?? '';
    sink.answer = (parcels) => {
      if (parcels.some(({ id }) => id === bad)) throw new Error('cannot read that');
      return confirmed(parcels);
    };
    await relay.start();
    await clock.advance('2m');
    for (const id of ids) if (id !== bad) expect(await spool.get(id)).toBeUndefined();
    expect((await status(bad)).attempts).toBeGreaterThan(0);
    // New ones go past it.
    const more = await put(spool, 40);
    await clock.advance('2m');
    for (const id of more) expect(await spool.get(id)).toBeUndefined();
    await relay.stop();
  });

  test.each(CODES)('pays for it when it is the first and has no answer but "%s"', async (code) => {
    const sink = new TestSink();
    const { relay, clock, spool, status } = relayWorld(sink);
    const ids = await put(spool, 16);
    // Those that speak of the whole target are believed a little longer.
    const bad = ids.slice(0, AWAY.includes(code) ? 1 : 3);
    const answer = (id: string) =>
      bad.includes(id) ? failure('transient', code, 'not this one') : ('confirmed' as const);
    // The whole send is lost with it, as a channel is.
    sink.answer = (parcels) => {
      const poison = parcels.find(({ id }) => bad.includes(id));
      return parcels.map(({ id }) => answer(poison?.id ?? id));
    };
    await relay.start();
    await clock.advance('1m');
    for (const id of ids.slice(bad.length)) expect(await spool.get(id)).toBeUndefined();
    const more = await put(spool, 40);
    await clock.advance('1m');
    for (const id of more) expect(await spool.get(id)).toBeUndefined();
    // Only while others are answered it is known to be its own fault.
    for (let minute = 0; minute < 240; minute += 1) {
      await put(spool, 1);
      await clock.advance('1m');
    }
    for (const id of bad) {
      expect(await status(id)).toMatchObject({
        state: 'bounce',
        attempts: 20,
        lastFailure: { code, reason: 'not this one' },
      });
    }
    await relay.stop();
  });

  test('does not make the relay spin when the target goes and comes back with each try', async () => {
    const sink = new TestSink();
    let call = (): void => undefined;
    sink.onBack = (onBack) => {
      call = onBack;
      return () => undefined;
    };
    const { relay, clock, spool } = relayWorld(sink);
    const [id = ''] = await put(spool, 1);
    sink.answer = (parcels) => {
      clock.after(10, () => call());
      return parcels.map(() => failure('transient', 'broker.unconfirmed', 'channel lost'));
    };
    await relay.start();
    await clock.advance('5m');
    expect(sink.sends.length).toBeLessThan(25);
    sink.answer = confirmed;
    await clock.advance('31s');
    expect(await spool.get(id)).toBeUndefined();
    expect(await spool.count()).toMatchObject({ deferred: 0 });
    await relay.stop();
  });

  test.each([
    ['sink.unanswered', 500],
    ['broker.unavailable', 500],
    ['sink.unanswered', 1],
  ])(
    'is not in the way of others, though twelve of them come first ("%s", %d at once)',
    async (code, concurrency) => {
      const sink = new TestSink();
      const { relay, clock, spool } = relayWorld(sink, { concurrency });
      const ids = await put(spool, 40);
      const bad = new Set(ids.slice(0, 12));
      sink.answer = (parcels) => {
        const isLost = parcels.some(({ id }) => bad.has(id));
        return parcels.map(() => (isLost ? failure('transient', code, 'lost') : 'confirmed'));
      };
      await relay.start();
      // One at a time, a third of the probes are of new messages: twelve of 36, 30 s each.
      await clock.advance('30m');
      for (const id of ids.slice(12)) expect(await spool.get(id)).toBeUndefined();
      await relay.stop();
    },
  );
});
