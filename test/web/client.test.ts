/** The operator over HTTP does what the operator beside the spool does. */
import { fixed, RespoolError } from 'respool';
import { describe, expect, test } from 'vitest';
import { connectOperator } from 'respool/web';
import { all, bytesOf, codeOf, rejection } from '../spool/setup.ts';
import { moving, setup, SETTINGS, type WorldOptions } from './setup.ts';

const connected = async (options: WorldOptions = {}) => {
  const world = await setup(options);
  const far = connectOperator({ url: world.url, by: 'ann' });
  const near = world.spool.operator({ by: 'ann' });
  return { ...world, far, near };
};

describe('enqueue', () => {
  test.each([
    ['text', 'grüße', 'grüße'],
    ['bytes', Buffer.from('bytes'), 'bytes'],
    ['a JSON value', { a: 1 }, '{"a":1}'],
    ['nothing', undefined, ''],
    [
      'a stream',
      (async function* () {
        yield 'one ';
        yield Buffer.from('two');
      })(),
      'one two',
    ],
    ['a Blob', new Blob(['blob']), 'blob'],
  ])('sends %s as a spool would take it', async (_, body, text) => {
    const { far, spool } = await connected();
    const { id, duplicate } = await far.enqueue({ topic: 'a/b', body });
    expect(duplicate).toBe(false);
    const entry = await spool.get(id);
    expect(entry?.envelope).toMatchObject({ topic: 'a/b', headers: {} });
    expect((await bytesOf(await spool.body(id))).toString()).toBe(text);
  });

  test.each([
    ['small', 'x'],
    ['large', Buffer.alloc(1_500_000)],
  ])('takes every option along with a %s body', async (_, body) => {
    const limits = { bodyBytes: 2_000_000 };
    const { far, spool, clock } = await connected({
      spool: { limits },
      parts: { bodyMaxBytes: limits.bodyBytes },
    });
    const dueAt = clock.now() + 60_000;
    const options = {
      topic: 'a',
      id: 'mine',
      headers: { 'x-name': 'Jürgen' },
      policy: 'default',
      priority: 3,
      dueAt: new Date(dueAt),
      expires: '1h',
      destination: 'dä',
      dedupeKey: 'k',
      orderKey: 'ö',
    };
    await far.enqueue({ ...options, body });
    const { envelope, status } = (await spool.get('mine')) ?? {};
    expect(envelope).toMatchObject({
      headers: { 'x-name': 'Jürgen' },
      priority: 3,
      destination: 'dä',
      dedupeKey: 'k',
      orderKey: 'ö',
      expiresAt: clock.now() + 3_600_000,
      body: { size: body.length },
    });
    expect(status).toMatchObject({ policy: 'default', dueAt });
    expect(await far.enqueue({ ...options, body })).toEqual({ id: 'mine', duplicate: true });
  });

  test('of many is one write, or a refusal', async () => {
    const { far, spool } = await connected();
    expect(await far.enqueueMany([])).toEqual([]);
    const made = await far.enqueueMany([{ topic: 'a', id: 'x', body: 'x' }, { topic: 'b' }]);
    expect(made).toMatchObject([{ id: 'x', duplicate: false }, { duplicate: false }]);
    expect(await codeOf(far.enqueueMany([{ topic: 'a' }, { topic: 'no good' }]))).toBe(
      'message.invalid',
    );
    const many = Array.from({ length: 1_001 }, () => ({ topic: 'a' }));
    expect(await codeOf(far.enqueueMany(many))).toBe('limit.exceeded');
    const heavy = [{ topic: 'a', body: Buffer.alloc(8_400_000) }];
    expect(await codeOf(far.enqueueMany(heavy))).toBe('limit.exceeded');
    const streams = [{ topic: 'a', body: new Blob(['x']) }];
    expect(await codeOf(far.enqueueMany(streams))).toBe('limit.exceeded');
    expect((await spool.count()).incoming).toBe(2);
  });
});

describe('a look', () => {
  test('shows the same from far and near', async () => {
    const { far, near, spool, clock } = await connected({
      spool: { policies: { slow: fixed('1h') } },
    });
    await spool.enqueue({
      topic: 'a.b',
      id: 'x',
      body: 'hi',
      headers: { h: 'v:w' },
      destination: 'd',
    });
    await clock.advance('1h');
    await spool.enqueue({ topic: 'c', id: 'y' });
    await spool.operator({ by: 'ops' }).hold(['y']);
    await spool.operator({ by: 'ops' }).pause('a.*');
    expect(await far.get('x')).toEqual(await near.get('x'));
    for (const id of ['nobody', '..', 'A b']) expect(await far.get(id)).toBeUndefined();
    expect(await codeOf(far.body('..'))).toBe('message.unknown');
    expect((await bytesOf(await far.body('x'))).toString()).toBe('hi');
    expect(await codeOf(far.body('nobody'))).toBe('message.unknown');
    const filters = [
      {},
      { state: 'hold' },
      { state: ['incoming', 'hold'] },
      { ids: ['x'] },
      { header: { name: 'h' } },
      { header: { name: 'h', value: 'v:w' } },
      { topic: 'a.*', destination: 'd' },
      { olderThan: '30m' },
      { since: 1_800_000 },
      { enqueuedAfter: clock.now() - 1 },
      { order: 'updatedAt', descending: true },
      { limit: 1 },
      { ids: [] },
      { state: [] },
    ] as const;
    for (const filter of filters) expect(await far.page(filter)).toEqual(await near.page(filter));
    const { next = '' } = await far.page({ limit: 1 });
    expect((await far.page({ after: next })).entries).toHaveLength(1);
    expect(await far.count()).toEqual(await near.count());
    expect(await far.tally('topic')).toEqual(await near.tally('topic'));
    expect(await far.tally('topic', { state: [] })).toEqual([]);
    expect(await far.tally('state', { topic: 'c' })).toEqual(
      await near.tally('state', { topic: 'c' }),
    );
    expect(await far.policies()).toEqual(JSON.parse(JSON.stringify(await near.policies())));
    expect(await far.pauses()).toEqual(await near.pauses());
    expect(await far.audit()).toEqual(await near.audit());
    expect(await far.audit(1, 1)).toEqual(await near.audit(1, 1));
    expect(await far.stats()).toEqual(await near.stats());
    expect(await far.shape()).toEqual(await near.shape());
    const options = { by: 'destination', filter: { topic: 'a.*' } } as const;
    expect(await far.shape(options)).toEqual(await near.shape(options));
    const none = { key: 'TOTAL', total: 0, counts: Array.from({ length: 10 }, () => 0) };
    for (const filter of [{ state: [] }, { ids: [] }]) {
      expect(await far.shape({ filter })).toEqual(await near.shape({ filter }));
      expect(await far.shape({ filter })).toMatchObject({ rows: [], total: none });
    }
    const unsaid = { filter: { state: undefined } } as object;
    expect(await far.shape(unsaid)).toEqual(await near.shape(unsaid));
    expect(await far.check()).toEqual(await near.check());
  });

  test('shows the first messages of order keys, the same from far and near', async () => {
    const { far, near, spool } = await connected();
    const keys = ['ann', 'ann', 'bob', 'bob', 'alone'];
    await spool.enqueueMany(keys.map((orderKey) => ({ topic: 'a', orderKey, delay: '1h' })));
    expect(await far.keyHeads()).toHaveLength(2);
    expect(await far.keyHeads()).toEqual(await near.keyHeads());
    expect(await far.keyHeads(1)).toEqual(await near.keyHeads(1));
    expect(await codeOf(far.keyHeads(501))).toBe('limit.exceeded');
  });

  test('hears the events until its signal fires', async () => {
    const { far, spool } = await connected();
    const over = new AbortController();
    const events = far.events({ signal: over.signal, kinds: ['accepted'] });
    const heard: string[] = [];
    const done = (async () => {
      for await (const event of events) {
        heard.push(event.kind);
        over.abort();
      }
    })();
    // Until it listens, what happens is not for it.
    while (heard.length === 0) {
      await spool.enqueue({ topic: 'a' });
      await new Promise((resolve) => setImmediate(resolve));
    }
    await done;
    expect(heard[0]).toBe('accepted');
  });
});

describe.each(['near', 'far'] as const)('the operator that is %s', (where) => {
  test('acts on every message of a filter', async () => {
    const { [where]: operator, spool } = await connected({
      spool: { policies: { slow: fixed('1h') } },
    });
    await spool.enqueueMany([{ topic: 'a' }, { topic: 'a' }, { topic: 'b' }]);
    const totals = { seen: 2, done: 2, refused: 0, unknown: 0, refusals: [] };
    expect(await operator.hold({ topic: 'a' }, { reason: 'odd' })).toEqual(totals);
    expect(await spool.count()).toMatchObject({ hold: 2, incoming: 1 });
    expect(await operator.setPolicy({ topic: 'a' }, 'slow')).toEqual(totals);
    expect(await operator.release({ topic: 'a' })).toEqual(totals);
    expect(await operator.bounce({ topic: 'a' })).toEqual(totals);
    expect(await operator.retry({ topic: 'a' })).toEqual(totals);
    expect(await operator.remove({ topic: 'a' }, { hard: true })).toEqual(totals);
    expect(await spool.count()).toMatchObject({ archived: 0, incoming: 1 });
  });

  test('acts on every message there is only when that is said', async () => {
    const { [where]: operator, spool } = await connected();
    await spool.enqueueMany([{ topic: 'a' }, { topic: 'b' }]);
    for (const empty of [{}, { topic: undefined }, { text: '' }, { idPrefix: '' }] as object[]) {
      const refusal = expect(operator.remove(empty, { hard: true })).rejects;
      await refusal.toThrow(/without a filter: give one, or { topic: '#' }/);
    }
    expect(await spool.count()).toMatchObject({ incoming: 2 });
    expect(await operator.remove({ topic: '#' }, { hard: true })).toMatchObject({ done: 2 });
  });

  test('moves a message, and refuses what its state does not allow', async () => {
    const { [where]: operator, spool } = await connected();
    const { id } = await spool.enqueue({ topic: 'a' });
    await operator.move(id, { from: 'incoming', to: 'hold', reason: 'odd' });
    expect((await spool.get(id))?.status).toMatchObject({ state: 'hold' });
    const again = operator.move(id, { from: 'incoming', to: 'hold' });
    expect(await codeOf(again)).toBe('move.refused');
    const unknown = operator.move('nobody', { from: 'incoming', to: 'hold' });
    expect(await codeOf(unknown)).toBe('message.unknown');
  });

  test('changes headers, unless the message has moved on', async () => {
    const { [where]: operator, spool } = await connected();
    const { id } = await spool.enqueue({ topic: 'a', headers: { x: '1', y: '1' } });
    const revision = (await spool.get(id))?.status.revision ?? 0;
    expect(await operator.setHeaders(id, { x: null, y: '2' }, { revision })).toBe('done');
    expect((await spool.get(id))?.envelope.headers).toEqual({ y: '2' });
    expect(await operator.setHeaders(id, { y: '3' }, { revision })).toBe('stale');
    expect(await operator.setHeaders(id, { y: '4' })).toBe('done');
    expect(await codeOf(operator.setHeaders('nobody', {}))).toBe('message.unknown');
  });

  test('cleans up what is past its retention, and lists what is left', async () => {
    const { [where]: operator, spool } = await connected();
    const [id = ''] = (await spool.enqueueMany([{ topic: 'a' }, { topic: 'b' }])).map(
      (one) => one.id,
    );
    const result = await operator.cleanUp();
    expect(result).toEqual({ forgotten: 0, orphans: 0, unhandled: 0 });
    expect((await all(operator.list({ topic: 'a' }))).map(({ envelope }) => envelope.id)).toEqual([
      id,
    ]);
  });
});

describe('an action', () => {
  test('is done in the name of the operator', async () => {
    const { far, spool } = await connected({ spool: { policies: { slow: fixed('1h') } } });
    await spool.enqueue({ topic: 'a', id: 'x' });
    const done = [{ id: 'x', result: 'done' }];
    expect(far.by).toBe('ann');
    expect(await far.hold(['../y', 'x', 'y'], { reason: 'odd' })).toEqual([
      { id: '../y', result: 'unknown' },
      ...done,
      { id: 'y', result: 'unknown' },
    ]);
    expect(await far.release(['x'])).toEqual(done);
    expect(await far.setPolicy(['x'], 'slow')).toEqual(done);
    expect(await far.bounce(['x'], { reason: 'enough' })).toEqual(done);
    expect(await far.retry(['x'])).toEqual(done);
    await far.pause('a.*');
    await far.pause('#');
    await far.resume('#');
    await far.resume('a.*');
    expect(await far.remove(['x'], { reason: 'spam' })).toEqual(done);
    expect(await far.remove(['x'], { hard: true })).toEqual(done);
    expect(await far.hold([])).toEqual([]);
    const lines = await spool.operator({ by: 'ops' }).audit();
    expect(lines).toHaveLength(11);
    expect(lines.every(({ by }) => by === 'ann')).toBe(true);
    expect(await codeOf(far.setPolicy(['x'], 'none'))).toBe('policy.unknown');
  });

  test('over a filter is counted, then done', async () => {
    const { far, spool, near } = await connected();
    await spool.enqueueMany(Array.from({ length: 5_200 }, () => ({ topic: 'a' })));
    const bulk = await far.prepare({ kind: 'hold' }, { topic: 'a' });
    const same = await near.prepare({ kind: 'hold' }, { topic: 'a' });
    expect(bulk).toMatchObject({ count: 5_200, filter: same.filter });
    expect((await spool.count()).hold).toBe(0);
    const steps = await all(bulk.run());
    expect(steps.map(({ done }) => done)).toEqual([5_000, 5_200]);
    expect((await spool.count()).hold).toBe(5_200);
    const everything = await far.prepare({ kind: 'release' }, {});
    expect(everything.count).toBe(5_200);
  });
});

describe('trouble', () => {
  test('comes back with the code the service gave it', async () => {
    const { far } = await connected({
      operator: () => ({
        enqueue: () => Promise.reject(new RespoolError('store.full', 'the disk is full')),
      }),
    });
    expect(await rejection(far.enqueue({ topic: 'a' }))).toMatchObject({
      code: 'store.full',
      message: expect.stringContaining('the disk is full'),
    });
    expect(await codeOf(far.enqueue({ topic: 'no good' }))).toBe('store.full');
    expect(await codeOf(far.page({ limit: 501 }))).toBe('limit.exceeded');
  });

  test('is a header or option that no request can carry', async () => {
    const { far } = await connected();
    const body = new Blob(['x']);
    for (const wrong of [{ headers: { a: 'b\r\nc' } }, { destination: 'a\nb' }, { id: 'a\0' }]) {
      expect(await codeOf(far.enqueue({ topic: 'a', body, ...wrong }))).toBe('message.invalid');
    }
  });

  test('is a token that cannot be one, and the error does not show it', async () => {
    const { url } = await setup();
    expect(() => connectOperator({ url, token: 'two\nlines' })).toThrow(/token of the service/);
    expect(() => connectOperator({ url, token: 'two\nlines' })).not.toThrow(/two/);
  });

  test('is not a name that HTTP cannot carry: it goes on record as far as it can', async () => {
    const { url, spool } = await setup();
    await connectOperator({ url, by: 'Jürgen 漢' }).pause('#');
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([{ by: 'J?rgen ?' }]);
  });

  test('is told when nobody answers', async () => {
    const { service, far, clock } = await connected();
    await Promise.all([service.stop(), clock.advance('3s')]);
    expect(await rejection(far.stats())).toMatchObject({
      code: 'store.unavailable',
      message: expect.stringMatching(/no service answers at http.*is `respool serve` running\?/),
    });
  });

  test('is told when a body is cut off on its way', async () => {
    const { far, spool } = await connected({
      operator: () => ({
        body: async () =>
          (async function* () {
            for (let at = 0; at < 3; at += 1) yield Buffer.alloc(100);
            throw new RespoolError('body.corrupt', 'no');
          })(),
      }),
    });
    await spool.enqueue({ topic: 'a', id: 'x', body: Buffer.alloc(300) });
    expect(await codeOf(bytesOf(await far.body('x')))).toBe('store.unavailable');
  });

  test('is a wrong token or URL, before anything else', async () => {
    const { url, clock } = await setup({ settings: { ...SETTINGS, token: 'right' } });
    const wrong = rejection(connectOperator({ url, token: 'wrong' }).stats());
    expect(await moving(clock, wrong)).toMatchObject({ code: 'config.invalid' });
    expect(await connectOperator({ url: `${url}/`, token: 'right' }).pauses()).toEqual([]);
    for (const bad of ['nonsense', 'ftp://host', 'http://name:secret@host']) {
      expect(() => connectOperator({ url: bad })).toThrow(/URL of the service/);
      expect(() => connectOperator({ url: bad })).not.toThrow(/secret/);
    }
  });
});

test('a list that is all duplicates is answered as such', async () => {
  const { url } = await setup();
  const far = connectOperator({ url });
  const messages = [
    { topic: 'a', id: 'one' },
    { topic: 'a', id: 'two' },
  ];
  expect((await far.enqueueMany(messages)).map(({ duplicate }) => duplicate)).toEqual([
    false,
    false,
  ]);
  expect(await far.enqueueMany(messages)).toEqual([
    { id: 'one', duplicate: true },
    { id: 'two', duplicate: true },
  ]);
  const [, third] = await far.enqueueMany([{ topic: 'a', id: 'one' }, { topic: 'a' }]);
  expect(third).toMatchObject({ duplicate: false });
});
