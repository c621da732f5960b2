/** What a relay can be told, in memory and virtual time: every option shows its effect. */
import {
  delivered,
  exponential,
  failed,
  failure,
  type Middleware,
  PermanentError,
  type Status,
} from 'respool';
import { describe, expect, test } from 'vitest';
import { Messages } from '../../src/outbox/message.ts';
import type { RelayOptions, RelayTarget } from 'respool/outbox';
import { POLICY, put, relayWorld, type RelayWorld, TestSink } from './relay-setup.ts';

async function started(world: RelayWorld): Promise<RelayWorld> {
  await world.relay.start();
  await world.clock.settle();
  return world;
}

describe('a relay', () => {
  test('sends id, topic, headers, body and time of what was emitted', async () => {
    const sink = new TestSink();
    const world = relayWorld(sink);
    const at = world.clock.now();
    const headers = { 'content-type': 'application/json', x: '1' };
    const { id } = await world.spool.enqueue({ topic: 'order.new', headers, body: { a: 1 } });
    const { relay } = await started(world);
    expect(sink.sends).toEqual([
      [{ id, topic: 'order.new', headers, body: expect.anything(), enqueuedAt: at }],
    ]);
    expect(Buffer.from(sink.sends[0]?.[0]?.body ?? []).toString()).toBe('{"a":1}');
    await relay.stop();
    // Whoever made the sink closes it.
    expect(sink.isClosed).toBe(false);
  });

  test('has 500 in hand and sends 100 at once, in the order of their emits, unless told otherwise', async () => {
    const sink = new TestSink();
    const many = relayWorld(sink);
    const ids = await put(many.spool, 700);
    await started(many);
    expect(many.relay.load.concurrency).toBe(500);
    const sizes = sink.sends.map((parcels) => parcels.length);
    // One of eight asks whether anybody is there.
    expect(sizes.slice(0, 7)).toEqual([1, 7, ...Array<number>(5).fill(100)]);
    expect(sink.ids).toEqual(ids);
    await many.relay.stop();

    const other = new TestSink();
    let release = (): void => undefined;
    const first = new Promise<void>((resolve) => {
      release = resolve;
    });
    other.answer = async (parcels) => {
      if (other.sends.length > 1) await first;
      return parcels.map(() => 'confirmed');
    };
    const few = relayWorld(other, { batch: 5, concurrency: 20 });
    await put(few.spool, 51);
    await started(few);
    expect(few.relay.load).toMatchObject({ running: 20, concurrency: 20 });
    expect(other.sends.map((parcels) => parcels.length)).toEqual([1, 5]);
    release();
    await few.clock.settle();
    expect(Math.max(...other.sends.map((parcels) => parcels.length))).toBe(5);
    expect(other.ids).toHaveLength(51);
    await few.relay.stop();
  });

  test('takes only the topics it is for, and leaves the rest alone', async () => {
    const sink = new TestSink();
    const world = relayWorld(sink, { topics: ['order.*', 'mail.#'] });
    const [a = '', b = ''] = [
      ...(await put(world.spool, 1, 'order.new')),
      ...(await put(world.spool, 1, 'mail.to.me')),
    ];
    const [other = ''] = await put(world.spool, 1, 'bill.new');
    await started(world);
    await world.clock.advance('1h');
    expect(sink.ids.toSorted()).toEqual([a, b].toSorted());
    expect(await world.status(other)).toMatchObject({ state: 'incoming', attempts: 0 });
    await world.relay.stop();
  });

  test('sends nothing before its time, and at that time without looking in between', async () => {
    const sink = new TestSink();
    const world = relayWorld(sink, { poll: '1h' });
    const { clock, spool, count } = world;
    const { id } = await spool.enqueue({ topic: 'order.new', delay: '20m' });
    await started(world);
    const claims = count('claim');
    await clock.advance('1199s');
    expect(sink.ids).toEqual([]);
    expect(count('claim')).toBe(claims);
    await clock.advance('1s');
    expect(sink.ids).toEqual([id]);
    await world.relay.stop();
  });

  test('looks every "poll", 30s unless told otherwise', async () => {
    for (const [poll, within] of [
      [undefined, 30],
      ['5s', 5],
    ] as const) {
      const sink = new TestSink();
      const world = relayWorld(sink, poll === undefined ? {} : { poll });
      await started(world);
      const [id] = await put(world.spool, 1);
      await world.clock.advance((within - 1) * 1_000);
      expect(sink.ids).toEqual([]);
      await world.clock.advance(1_000);
      expect(sink.ids).toEqual([id]);
      await world.relay.stop();
    }
  });

  test('holds what it claimed for "lease", and for longer while it is on its way', async () => {
    const sink = new TestSink();
    sink.answer = () => new Promise(() => undefined);
    const world = relayWorld(sink, { lease: '10s' });
    const [id = ''] = await put(world.spool, 1);
    await started(world);
    const { dueAt } = await world.status(id);
    expect(dueAt).toBe(world.clock.now() + 10_000);
    await world.clock.advance('1m');
    expect(await world.status(id)).toMatchObject({ state: 'active' });
    expect((await world.status(id)).dueAt).toBeGreaterThan(world.clock.now());
    expect(sink.sends).toHaveLength(1);
    const stopped = world.relay.stop({ within: '1s' });
    await world.clock.advance('20s');
    await stopped;
    expect(await world.status(id)).toMatchObject({ state: 'incoming', attempts: 0 });
  });

  test('runs its middleware around every send', async () => {
    const seen: string[] = [];
    const look: Middleware = async (delivery, next) => {
      const outcome = await next();
      seen.push(`${delivery.topic} ${outcome.kind}`);
      return outcome;
    };
    const world = relayWorld(new TestSink(), { middleware: [look] });
    await put(world.spool, 1);
    await started(world);
    expect(seen).toEqual(['order.new delivered']);
    await world.relay.stop();
  });

  test('goes by the policies of its outbox', async () => {
    const sink = new TestSink();
    sink.answer = (parcels) => parcels.map(() => failure('transient', 'x', 'no'));
    const twice = exponential({ first: '1m', attempts: 2 });
    const world = relayWorld(sink, {}, { policies: { default: POLICY, twice } });
    const { id } = await world.spool.enqueue({ topic: 'a', policy: 'twice' });
    await started(world);
    await world.clock.advance('59s');
    expect(await world.status(id)).toMatchObject({ state: 'deferred', attempts: 1 });
    await world.clock.advance('1s');
    expect(await world.status(id)).toMatchObject({ state: 'bounce', attempts: 2 });
    await world.relay.stop();
  });

  test('hands each message to a route by itself, and goes by its word', async () => {
    const said = new Map([
      ['a', () => delivered()],
      ['b', () => failed(failure('transient', 'http.503', 'later'))],
      [
        'c',
        () => {
          throw new PermanentError('http.410', 'gone');
        },
      ],
    ]);
    const world = relayWorld({ deliver: (delivery) => said.get(delivery.topic)?.() });
    const [a = '', b = '', c = ''] = (
      await world.spool.enqueueMany(['a', 'b', 'c'].map((topic) => ({ topic })))
    ).map(({ id }) => id);
    await started(world);
    expect(await world.spool.get(a)).toBeUndefined();
    expect(await world.status(b)).toMatchObject({ state: 'deferred', attempts: 1 });
    expect(await world.status(c)).toMatchObject({ state: 'bounce' });
    await world.relay.stop();
  });

  test('forgets old keys of the inbox every minute, and sooner while there are some', async () => {
    const answers = [3, 2, 0, 0];
    const asked: number[] = [];
    const world: RelayWorld = relayWorld(
      new TestSink(),
      {},
      {
        deleteExpiredKeys: () => {
          asked.push(world.clock.now());
          const found = answers.shift();
          return found === undefined ? Promise.reject(new Error('no')) : Promise.resolve(found);
        },
      },
    );
    const start = world.clock.now();
    await started(world);
    await world.clock.advance('3m');
    const times = asked.map((at) => (at - start) / 1_000);
    expect(times).toEqual([0, 1, 2, 62, 122]);
    expect(world.events.filter(({ kind }) => kind === 'trouble')).toMatchObject([
      { doing: 'forgetting old keys of the inbox' },
    ]);
    await world.relay.stop();
    await world.clock.advance('1h');
    expect(asked).toHaveLength(5);
  });

  test('is started once, and not again after its stop', async () => {
    const { relay } = await started(relayWorld(new TestSink()));
    await expect(relay.start()).rejects.toThrow('it is started already');
    await Promise.all([relay.stop(), relay.stop()]);
    await expect(relay.start()).rejects.toMatchObject({
      code: 'config.invalid',
      message: expect.stringContaining('it was stopped; make another'),
    });
  });

  test('that was stopped while it could not open its store stays stopped', async () => {
    let fail = (): void => undefined;
    const opening = new Promise<void>((_, reject) => {
      fail = () => reject(new Error('no server'));
    });
    const { makeStore } = relayWorld(new TestSink()).parts;
    const broken: typeof makeStore = (options) => {
      const store = makeStore(options);
      return Object.assign(Object.create(store) as typeof store, { open: () => opening });
    };
    const { relay } = relayWorld(new TestSink(), {}, { makeStore: broken });
    const starting = relay.start();
    const stopping = relay.stop();
    fail();
    await expect(starting).rejects.toThrow('no server');
    await stopping;
    await expect(relay.start()).rejects.toThrow('it was stopped');
  });

  test('that could not open its store can be started again', async () => {
    let isBroken = true;
    const sink = new TestSink();
    const world = relayWorld(sink);
    const { makeStore } = world.parts;
    const second = relayWorld(
      sink,
      {},
      {
        ...world.parts,
        makeStore: () => {
          const store = makeStore();
          const open = async (): Promise<void> => {
            if (isBroken) throw new Error('no tables');
            await store.open();
          };
          return Object.assign(Object.create(store) as typeof store, { open });
        },
      },
    );
    await put(world.spool, 1);
    await expect(second.relay.start()).rejects.toThrow('no tables');
    isBroken = false;
    await second.relay.start();
    await world.clock.settle();
    expect(sink.ids).toHaveLength(1);
    await second.relay.stop();
  });
});

describe('what becomes of messages', () => {
  const afterwards = async (
    cleanUp: RelayOptions['cleanUp'],
    span: string,
  ): Promise<Status | undefined> => {
    const world = relayWorld(new TestSink(), cleanUp === undefined ? {} : { cleanUp });
    const [id = ''] = await put(world.spool, 1);
    await started(world);
    await world.clock.advance(span);
    const status = (await world.spool.get(id))?.status;
    await world.relay.stop();
    return status;
  };

  test('that were sent: gone at once, kept for good, or for a while', async () => {
    expect(await afterwards(undefined, '1s')).toBeUndefined();
    expect(await afterwards('at once', '1s')).toBeUndefined();
    expect(await afterwards('never', '5d')).toMatchObject({ state: 'archived' });
    expect(await afterwards('2h', '1h')).toMatchObject({ state: 'archived', ending: 'delivered' });
    expect(await afterwards('2h', '122m')).toBeUndefined();
  });

  test('that were to move to parts of a table: the store is told', () => {
    const asked: unknown[] = [];
    const world = relayWorld(new TestSink());
    relayWorld(
      new TestSink(),
      { cleanUp: { partition: '1d', keep: '30d' } },
      {
        makeStore: (options) => {
          asked.push(options);
          return world.parts.makeStore();
        },
      },
    );
    expect(asked).toEqual([{ partition: { partition: '1d', keep: '30d' } }]);
  });

  test('that expire bounce, by their own time or by that of the relay from their emit on', async () => {
    const sink = new TestSink();
    sink.answer = (parcels) => parcels.map(() => failure('transient', 'x', 'not yet'));
    const world = relayWorld(sink, { expires: '1h' });
    const { clock, spool, status } = world;
    const [plain = ''] = await put(spool, 1);
    const { id: own } = await spool.enqueue({ topic: 'order.new', expires: '80m' });
    await clock.advance('30m');
    await started(world);
    expect(await status(plain)).toMatchObject({ state: 'deferred' });
    await clock.advance('31m');
    expect(await status(plain)).toMatchObject({
      state: 'bounce',
      ending: 'expired',
      because: { code: 'expired' },
    });
    expect(await status(own)).toMatchObject({ state: 'deferred' });
    await clock.advance('20m');
    expect(await status(own)).toMatchObject({ state: 'bounce', ending: 'expired' });
    // Somebody wants it sent all the same.
    sink.answer = (parcels) => parcels.map(() => 'confirmed');
    await spool.operator({ by: 'ops' }).retry([plain, own]);
    await clock.advance('1m');
    expect(await spool.get(plain)).toBeUndefined();
    expect(await spool.get(own)).toBeUndefined();
    await world.relay.stop();
  });
});

test('the time of a relay counts from the eta of a message that was to wait', async () => {
  const sink = new TestSink();
  sink.answer = (parcels) => parcels.map(() => failure('transient', 'x', 'not yet'));
  const world = relayWorld(sink, { expires: '30m' });
  const { clock, status, parts } = world;
  const messages = new Messages({
    expiresMs: undefined,
    maxBytes: 10,
    policies: new Set(),
    encoders: [],
    makeId: () => 'late',
  });
  const own = messages.capture({ routingKey: 'order.new', body: 1, eta: '2h' });
  const store = parts.makeStore();
  await store.open();
  await store.insert([messages.entry(own, clock.now())]);
  await started(world);
  await clock.advance('119m');
  expect(sink.ids).toEqual([]);
  await clock.advance('20m');
  expect(sink.ids).toContain('late');
  expect(await status('late')).toMatchObject({ state: 'deferred' });
  await clock.advance('11m');
  expect(await status('late')).toMatchObject({ state: 'bounce', ending: 'expired' });
  await world.relay.stop();
  await store.close();
});

describe('a relay refuses', () => {
  const sink = new TestSink();
  test.each<[string, object, RegExp]>([
    ['no target', { to: undefined }, /as "to" of a relay/],
    ['a target of another kind', { to: { url: 'x' } }, /an object with url as "to" of a relay/],
    ['a spool as it is', { to: { enqueue: () => 1 } }, /cannot use a spool .*spoolSink\(spool\)/],
    ['an exchange without a name', { to: { amqp: 'amqp://x' } }, /exchange/],
    ['a misspelt target', { to: { amqp: 'amqp://x', exchange: 'x', key: 'y' } }, /"key"/],
    ['a route that is no function', { to: { deliver: 'x' } }, /to\.deliver/],
    ['an unknown option', { to: sink, batchMax: 1 }, /batchMax/],
    ['batch', { to: sink, batch: 0 }, /"batch"/],
    ['concurrency', { to: sink, concurrency: 10_001 }, /"concurrency"/],
    ['topics', { to: sink, topics: [] }, /"topics"/],
    ['a topic', { to: sink, topics: 'a..b' }, /topic pattern/],
    ['expires', { to: sink, expires: 0 }, /expires/],
    ['cleanUp', { to: sink, cleanUp: 'soon' }, /cleanUp.*'at once', 'never'/],
    ['cleanUp of nothing', { to: sink, cleanUp: null }, /cleanUp/],
    ['parts without an age', { to: sink, cleanUp: { partition: '1d' } }, /cleanUp\.keep/],
    ['pauseAfter', { to: sink, pauseAfter: '2h' }, /pauseAfter/],
    ['lease', { to: sink, lease: '1ms' }, /lease/],
    ['poll', { to: sink, poll: '2h' }, /poll/],
    ['middleware', { to: sink, middleware: [1] }, /middleware/],
  ])('%s', (_, { to, ...options }: { readonly to?: RelayTarget }, text) => {
    expect(() => relayWorld(to as RelayTarget, options)).toThrow(
      expect.objectContaining({ message: expect.stringMatching(text) }),
    );
  });

  test.each<[string, unknown]>([
    ['a text', 'amqp://ann:hunter2@shop'],
    ['an object', { url: 'amqp://ann:hunter2@shop', exchange: 'shop' }],
    ['a list', ['amqp://ann:hunter2@shop']],
    ['a handler', { deliver: 'http://ann:hunter2@shop' }],
  ])('%s without showing the password in it', (_, to) => {
    let said = '';
    try {
      relayWorld(to as RelayTarget);
    } catch (error) {
      said = (error as Error).message;
    }
    expect(said).toContain('of a relay: ');
    expect(said).not.toContain('hunter2');
  });
});
