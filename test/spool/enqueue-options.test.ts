/** Every option of enqueue has an effect that can be seen (R4–R7, R30, R34, R35, R110, R221). */
import { fixed, PermanentError, stateNumber, STATES } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, DAY, HOUR, MINUTE, rejection, SECOND, setup } from './setup.ts';

describe('enqueue', () => {
  test('answers with the id of a message that is incoming and due', async () => {
    const { spool, clock } = await setup();
    const { id, duplicate } = await spool.enqueue({ topic: 'mail.welcome', headers: { a: 'b' } });
    expect(duplicate).toBe(false);
    const entry = await spool.get(id);
    expect(entry?.envelope).toMatchObject({
      id,
      topic: 'mail.welcome',
      headers: { a: 'b' },
      enqueuedAt: clock.now(),
      priority: 5,
    });
    expect(entry?.status).toEqual({
      state: 'incoming',
      lane: 'delivery',
      policy: null,
      revision: 1,
      attempts: 0,
      postponed: 0,
      lost: 0,
      replays: 0,
      notices: 0,
      dueAt: clock.now(),
      history: [],
      notes: {},
      updatedAt: clock.now(),
    });
  });

  test('makes ids that are unique and sort in the order of the enqueues', async () => {
    const { spool } = await setup();
    const ids: string[] = [];
    for (let at = 0; at < 200; at += 1) ids.push((await spool.enqueue({ topic: 'a' })).id);
    expect(new Set(ids).size).toBe(200);
    expect(ids.toSorted()).toEqual(ids);
  });

  test('opens the store of a spool that was not started, and keeps the message for later', async () => {
    const { spool, clock } = await setup({ isStarted: false });
    const seen: string[] = [];
    spool.handle('a', ({ id }) => void seen.push(id));
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.advance('1h');
    expect(seen).toEqual([]);
    await spool.start();
    await clock.settle();
    expect(seen).toEqual([id]);
  });

  test('refuses a message while the store refuses it, and accepts it afterwards', async () => {
    const { spool, store } = await setup();
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    expect(await codeOf(spool.enqueue({ topic: 'a' }))).toBe('store.unavailable');
    store.faults.plan = () => 'ok';
    expect(await spool.count()).toMatchObject({ incoming: 0 });
    await spool.enqueue({ topic: 'a' });
    expect(await spool.count()).toMatchObject({ incoming: 1 });
  });

  test('does not show a message whose body is stored and whose entry is not', async () => {
    const { spool, store } = await setup();
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await rejection(spool.enqueue({ topic: 'a', body: Buffer.alloc(100_000) }));
    store.faults.plan = () => 'ok';
    expect((await spool.page()).entries).toEqual([]);
  });
});

describe('delay and dueAt', () => {
  test('make the message wait, deferred, without an attempt', async () => {
    const { spool, clock, status } = await setup();
    const seen: number[] = [];
    spool.handle('a', () => void seen.push(clock.now()));
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a', delay: '5m' });
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      attempts: 0,
      dueAt: start + 5 * MINUTE,
    });
    await clock.advance(5 * MINUTE - 1);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(seen).toEqual([start + 5 * MINUTE]);
  });

  test.each([
    ['a number', (at: number) => at],
    ['a Date', (at: number) => new Date(at)],
  ])('dueAt can be %s', async (_, make) => {
    const { spool, clock, status } = await setup();
    const at = clock.now() + 90 * SECOND;
    const { id } = await spool.enqueue({ topic: 'a', dueAt: make(at) });
    expect(await status(id)).toMatchObject({ state: 'deferred', dueAt: at });
  });

  test('dueAt can be a hundred years from now, and no more', async () => {
    const { spool, clock, status } = await setup();
    const at = clock.now() + 36_525 * DAY;
    const { id } = await spool.enqueue({ topic: 'a', dueAt: at });
    expect((await status(id)).dueAt).toBe(at);
    const later = spool.enqueue({ topic: 'a', dueAt: at + 1 });
    expect(await codeOf(later)).toBe('message.invalid');
  });

  test('in the past means now', async () => {
    const { spool, clock, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', dueAt: clock.now() - HOUR });
    expect(await status(id)).toMatchObject({ state: 'incoming', dueAt: clock.now() });
    const { id: zero } = await spool.enqueue({ topic: 'a', delay: 0 });
    expect(await status(zero)).toMatchObject({ state: 'incoming' });
  });

  test('cannot both be given', async () => {
    const { spool } = await setup();
    const both = spool.enqueue({ topic: 'a', delay: '1s', dueAt: 5 });
    expect(await codeOf(both)).toBe('message.invalid');
  });
});

describe('expires', () => {
  test('bounces what was not delivered in time, without a handler and without an attempt', async () => {
    const { spool, clock, status, events } = await setup();
    await spool.operator({ by: 'ops' }).pause('#');
    const seen: string[] = [];
    spool.handle('a', ({ id }) => void seen.push(id));
    const { id } = await spool.enqueue({ topic: 'a', expires: '10m' });
    await clock.advance('10m');
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(seen).toEqual([]);
    expect(await status(id)).toMatchObject({
      state: 'bounce',
      attempts: 0,
      ending: 'expired',
      because: { code: 'expired' },
    });
    expect(events).toContainEqual(
      expect.objectContaining({ kind: 'bounced', id, spent: false }) as unknown,
    );
  });

  test('lets a message be delivered up to its last millisecond', async () => {
    const { spool, clock } = await setup();
    await spool.operator({ by: 'ops' }).pause('#');
    const seen: string[] = [];
    spool.handle('a', ({ id }) => void seen.push(id));
    const { id } = await spool.enqueue({ topic: 'a', expires: '10m' });
    await clock.advance(10 * MINUTE - 1);
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(seen).toEqual([id]);
  });

  test('bounds a deferral: it is never put off past its expiry', async () => {
    const { spool, clock, status, events } = await setup({
      policies: { default: fixed('1h') },
    });
    spool.handle('a', () => {
      throw new Error('no');
    });
    const start = clock.now();
    const { id } = await spool.enqueue({ topic: 'a', expires: '90m' });
    await clock.advance('1h');
    const { dueAt } = await status(id);
    expect(dueAt).toBe(start + 90 * MINUTE);
    // Regression: the event told of a time after the expiry.
    const told = events.filter((event) => event.kind === 'deferred').map((event) => event.dueAt);
    expect(told).toEqual([start + HOUR, start + 90 * MINUTE]);
    await clock.advance('30m');
    expect(await status(id)).toMatchObject({ state: 'bounce', ending: 'expired', attempts: 2 });
  });

  // Regression: a delay longer than the expiry kept the message past its end.
  test('bounds a delay too', async () => {
    const { spool, clock, status } = await setup();
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a', delay: '1h', expires: '10m' });
    await clock.advance('10m');
    expect(await status(id)).toMatchObject({ state: 'bounce', ending: 'expired' });
  });

  test('means nothing to a held, an archived and an announced message', async () => {
    const { spool, clock, status } = await setup({ retention: { delivered: { archive: '7d' } } });
    const { id: held } = await spool.enqueue({ topic: 'b', expires: '1m' });
    await spool.operator({ by: 'ops' }).hold([held]);
    spool.handle('a', () => undefined);
    const { id: archived } = await spool.enqueue({ topic: 'a', expires: '1m' });
    await clock.advance('1h');
    expect((await status(held)).state).toBe('hold');
    expect(await status(archived)).toMatchObject({ state: 'archived', ending: 'delivered' });
    const notices: string[] = [];
    spool.handle('c', () => {
      throw new PermanentError('x', 'final');
    });
    spool.onBounce('c', ({ id }) => {
      notices.push(id);
      if (notices.length === 1) throw new Error('not yet');
    });
    const { id } = await spool.enqueue({ topic: 'c', expires: '1m' });
    await clock.advance('1h');
    expect(notices).toEqual([id, id]);
  });
});

describe('priority', () => {
  test('decides the order: 0 first, 9 last, 5 by default, then by age', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    await spool.operator({ by: 'ops' }).pause('#');
    const order: string[] = [];
    spool.handle('a', ({ headers }) => void order.push(headers['name'] ?? ''));
    const enqueue = async (name: string, priority?: number): Promise<void> => {
      const chosen = priority === undefined ? {} : { priority };
      await spool.enqueue({ topic: 'a', headers: { name }, ...chosen });
      await clock.advance(1);
    };
    await enqueue('nine', 9);
    await enqueue('default');
    await enqueue('five', 5);
    await enqueue('six', 6);
    await enqueue('zero', 0);
    await enqueue('one', 1);
    await spool.operator({ by: 'ops' }).resume('#');
    await clock.settle();
    expect(order).toEqual(['zero', 'one', 'default', 'five', 'six', 'nine']);
  });

  test('decides among deferred messages that are due together', async () => {
    const { spool, clock } = await setup({ concurrency: 1 });
    const order: number[] = [];
    spool.handle('a', ({ envelope }) => void order.push(envelope.priority));
    const dueAt = clock.now() + MINUTE;
    for (const priority of [7, 2, 9, 0]) await spool.enqueue({ topic: 'a', dueAt, priority });
    await clock.advance('1m');
    expect(order).toEqual([0, 2, 7, 9]);
  });
});

describe('id and dedupeKey', () => {
  test('an id of the caller is used, and used again it is a duplicate that changes nothing', async () => {
    // Weakness 10: elsewhere a duplicate id destroys the first message.
    const { spool, kinds } = await setup();
    const first = await spool.enqueue({ id: 'order-1', topic: 'a', body: 'first' });
    expect(first).toEqual({ id: 'order-1', duplicate: false });
    const large = Buffer.alloc(100_000);
    const again = await spool.enqueue({ id: 'order-1', topic: 'b', body: large });
    expect(again).toEqual({ id: 'order-1', duplicate: true });
    const parts: Uint8Array[] = [];
    for await (const part of await spool.body('order-1')) parts.push(part);
    expect(Buffer.concat(parts).toString()).toBe('first');
    expect((await spool.get('order-1'))?.envelope.topic).toBe('a');
    expect(kinds('order-1')).toEqual(['accepted', 'duplicate']);
  });

  test('the body of a duplicate is not left behind', async () => {
    const { spool, bodies } = await setup();
    const body = Buffer.alloc(100_000);
    await spool.enqueue({ topic: 'a', dedupeKey: 'k', body });
    await spool.enqueue({ topic: 'a', dedupeKey: 'k', body });
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(1);
  });

  test('a dedupe key leads to the first message, in every state but gone', async () => {
    const { spool } = await setup();
    const message = { topic: 'a', dedupeKey: 'welcome-42' };
    const { id } = await spool.enqueue(message);
    const duplicate = { id, duplicate: true };
    expect(await spool.enqueue(message)).toEqual(duplicate);
    await spool.operator({ by: 'ops' }).hold([id]);
    expect(await spool.enqueue(message)).toEqual(duplicate);
    await spool.operator({ by: 'ops' }).bounce([id]);
    expect(await spool.enqueue(message)).toEqual(duplicate);
    await spool.operator({ by: 'ops' }).remove([id]);
    expect(await spool.enqueue(message)).toEqual(duplicate);
    await spool.operator({ by: 'ops' }).remove([id], { hard: true });
    expect(await spool.enqueue(message)).toMatchObject({ duplicate: false });
  });

  test.each(['dedupeKey', 'id'] as const)(
    'after the delivery a repeated %s is a duplicate for the window, then free',
    async (field) => {
      const { spool, clock, status } = await setup({ retention: { dedupeWindow: '2h' } });
      let delivered = 0;
      spool.handle('a', () => void (delivered += 1));
      const message = { topic: 'a', [field]: 'k1', body: Buffer.alloc(50_000) };
      const { id } = await spool.enqueue(message);
      await clock.settle();
      expect(await status(id)).toMatchObject({ state: 'archived', ending: 'delivered' });
      expect((await spool.get(id))?.envelope.body.place).toBe('none');
      await clock.advance(2 * HOUR - MINUTE);
      expect(await spool.enqueue(message)).toEqual({ id, duplicate: true });
      await clock.advance(3 * MINUTE);
      expect(await spool.enqueue(message)).toMatchObject({ duplicate: false });
      await clock.settle();
      expect(delivered).toBe(2);
    },
  );

  test('the window is a day by default', async () => {
    const { spool, clock, status } = await setup();
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a', dedupeKey: 'k' });
    await clock.settle();
    expect((await status(id)).dueAt).toBe(clock.now() + DAY);
  });

  test('a message without either is forgotten with its delivery', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
  });
});

describe('what enqueue refuses', () => {
  const bad: Record<string, { message: unknown; code: string; names: string[] }> = {
    'no topic': { message: {}, code: 'message.invalid', names: ['topic', 'undefined'] },
    'no message': { message: null, code: 'message.invalid', names: ['topic'] },
    'a topic with a space': {
      message: { topic: 'a b' },
      code: 'message.invalid',
      names: ['topic', '"a b"', '255'],
    },
    'a topic pattern': { message: { topic: 'a.*' }, code: 'message.invalid', names: ['"a.*"'] },
    'a priority of 10': {
      message: { topic: 'a', priority: 10 },
      code: 'message.invalid',
      names: ['priority', '10', '0', '9'],
    },
    'half a priority': {
      message: { topic: 'a', priority: 1.5 },
      code: 'message.invalid',
      names: ['1.5'],
    },
    'an id with a capital': {
      message: { topic: 'a', id: 'A' },
      code: 'message.invalid',
      names: ['id', '"A"', '64'],
    },
    'an id that is a path': {
      message: { topic: 'a', id: '../x' },
      code: 'message.invalid',
      names: ['../x'],
    },
    'an empty dedupe key': {
      message: { topic: 'a', dedupeKey: '' },
      code: 'message.invalid',
      names: ['dedupeKey'],
    },
    'a header that is a number': {
      message: { topic: 'a', headers: { n: 1 } },
      code: 'message.invalid',
      names: ['"n"', '1'],
    },
    'a header with a line break': {
      message: { topic: 'a', headers: { n: 'a\r\nb: c' } },
      code: 'message.invalid',
      names: ['"n"'],
    },
    'too many header bytes': {
      message: { topic: 'a', headers: { n: 'x'.repeat(40_000) } },
      code: 'limit.exceeded',
      names: ['40001', '32768'],
    },
    'a delay that is no duration': {
      message: { topic: 'a', delay: 'soon' },
      code: 'config.invalid',
      names: ['"delay"', '"soon"', '15m'],
    },
    'a dueAt that is no time': {
      message: { topic: 'a', dueAt: Number.NaN },
      code: 'message.invalid',
      names: ['dueAt', 'NaN'],
    },
    'a dueAt that no Date can hold': {
      message: { topic: 'a', dueAt: Number.MAX_SAFE_INTEGER },
      code: 'message.invalid',
      names: ['dueAt', '9007199254740991', '2126-01-02T', '100 years'],
    },
    'a dueAt of another century': {
      message: { topic: 'a', dueAt: new Date('2500-01-01T00:00:00Z') },
      code: 'message.invalid',
      names: ['dueAt', '2500-01-01', '2126-01-02T', '100 years'],
    },
    'a delay of a thousand years': {
      message: { topic: 'a', delay: '365250d' },
      code: 'config.invalid',
      names: ['"delay"', '365250d', '36525d'],
    },
    'an expiry of a thousand years': {
      message: { topic: 'a', expires: '365250d' },
      code: 'config.invalid',
      names: ['"expires"', '365250d', '36525d'],
    },
    'a field that does not exist': {
      message: { topic: 'a', prority: 1 },
      code: 'message.invalid',
      names: ['prority', 'priority'],
    },
  };
  test.each(Object.entries(bad))('%s', async (_, { message, code, names }) => {
    const { spool } = await setup();
    const error = await rejection(spool.enqueue(message as never));
    expect(error.code).toBe(code);
    for (const name of names) expect(error.message).toContain(name);
    expect(await spool.count()).toMatchObject({ incoming: 0, deferred: 0 });
  });

  test('header limits can be set', async () => {
    const { spool } = await setup({ limits: { headerBytes: 4 } });
    await spool.enqueue({ topic: 'a', headers: { n: 'xyz' } });
    const error = await rejection(spool.enqueue({ topic: 'a', headers: { n: 'wxyz' } }));
    expect(error.code).toBe('limit.exceeded');
  });
});

test('the six states have the names and numbers that other systems know', () => {
  expect(STATES).toEqual(['incoming', 'active', 'deferred', 'hold', 'bounce', 'archived']);
  expect(STATES.map(stateNumber)).toEqual([0, 1, 2, 3, 4, 5]);
});
