/** Copies of what is removed elsewhere: kept like what was removed softly, and never due. */
import { compress, encrypt, generateKey } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { all, bytesOf, codeOf, DAY, setup } from './setup.ts';

const SMALL = Buffer.from('small');
const LARGE = Buffer.alloc(60_000, 'large ');

const copy = (body: Uint8Array, more: object = {}) => ({
  id: 'Order/17',
  topic: 'rabbit.orders',
  headers: { 'respool-amqp': '{}', colour: 'blue' },
  body,
  reason: 'removed from queue "orders.dlq"',
  ...more,
});

describe('a kept copy', () => {
  test('lies archived as removed, under an id of its own, and says of what and why', async () => {
    const { spool, clock, events } = await setup();
    spool.handle('#', () => {
      throw new Error('nobody may get it');
    });
    await spool.operator({ by: 'ann' }).keep([copy(SMALL), copy(LARGE)]);
    await clock.advance(DAY);
    const found = await all(spool.list({ state: 'archived', topic: 'rabbit.#' }));
    expect(found).toHaveLength(2);
    const [first] = found;
    expect(first?.envelope).toMatchObject({
      topic: 'rabbit.orders',
      headers: { colour: 'blue', 'respool-original-of': 'Order/17', 'respool-amqp': '{}' },
    });
    expect(first?.envelope.id).not.toBe('Order/17');
    expect(first?.status).toMatchObject({
      state: 'archived',
      ending: 'removed',
      revision: 1,
      attempts: 0,
      because: { code: 'letter.kept', text: 'removed from queue "orders.dlq"', by: 'ann' },
    });
    const bodies = await Promise.all(
      found.map(async ({ envelope }) => bytesOf(await spool.body(envelope.id))),
    );
    expect(bodies).toEqual([SMALL, LARGE]);
    expect(events.filter(({ kind }) => kind === 'trouble')).toEqual([]);
  });

  test('goes through the transforms like any other body', async () => {
    const transforms = [compress('zstd'), encrypt({ keys: { k1: generateKey() } })];
    const { spool } = await setup({ transforms, isStarted: false });
    await spool.operator({ by: 'ops' }).keep([copy(LARGE)]);
    const [found] = await all(spool.list());
    expect(found?.envelope.body.encodings).toHaveLength(2);
    expect(await bytesOf(await spool.body(found?.envelope.id ?? ''))).toEqual(LARGE);
  });

  test('is forgotten after the retention of what was removed', async () => {
    const { spool, clock } = await setup({ isStarted: false, retention: { removed: '2d' } });
    await spool.operator({ by: 'ops' }).keep([copy(SMALL)]);
    await clock.advance(2 * DAY - 1);
    await spool.operator({ by: 'ops' }).cleanUp();
    expect(await all(spool.list())).toHaveLength(1);
    await clock.advance(1);
    await spool.operator({ by: 'ops' }).cleanUp();
    expect(await all(spool.list())).toEqual([]);
  });

  test('of a broker is not delivered, whoever asks: it goes back to its queue', async () => {
    const { spool } = await setup({ isStarted: false });
    await spool.operator({ by: 'ops' }).keep([copy(SMALL)]);
    const [found] = await all(spool.list());
    const ids = [found?.envelope.id ?? ''];
    const refused = [{ result: 'refused', why: expect.stringContaining('respool dlq restore') }];
    expect(await spool.operator({ by: 'ops' }).retry(ids)).toMatchObject(refused);
    expect(await spool.operator({ by: 'ops' }).replay(ids, { replay: 'r1' })).toMatchObject(
      refused,
    );
    expect(await spool.operator({ by: 'ops' }).remove(ids, { hard: true })).toMatchObject([
      { result: 'done' },
    ]);
  });

  test('of a message without that mark can be sent again', async () => {
    const { spool } = await setup({ isStarted: false });
    await spool.operator({ by: 'ops' }).keep([copy(SMALL, { headers: {} })]);
    const [found] = await all(spool.list());
    const ids = [found?.envelope.id ?? ''];
    expect(await spool.operator({ by: 'ops' }).replay(ids, { replay: 'r1' })).toMatchObject([
      { result: 'done' },
    ]);
  });
});

describe('copies', () => {
  test.each([
    [{ topic: 'no good' }, 'message.invalid'],
    [{ id: '' }, 'message.invalid'],
    [{ id: 'a\nb' }, 'message.invalid'],
    [{ headers: { 'a b': 'c' } }, 'message.invalid'],
    [{ body: LARGE }, 'limit.exceeded'],
  ])('of which one is no good (%j) are refused as a whole', async (more, code) => {
    const { spool } = await setup({ isStarted: false, limits: { bodyBytes: 1_000 } });
    expect(await codeOf(spool.operator({ by: 'ops' }).keep([copy(SMALL), copy(SMALL, more)]))).toBe(
      code,
    );
    expect(await all(spool.list())).toEqual([]);
  });

  test('are not there when the store could not take them', async () => {
    const { spool, store } = await setup({ isStarted: false });
    store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    expect(await codeOf(spool.operator({ by: 'ops' }).keep([copy(LARGE)]))).toBe(
      'store.unavailable',
    );
    store.faults.plan = () => 'ok';
    expect(await all(spool.list())).toEqual([]);
  });

  test('come in any number, and keep what they were when they were given', async () => {
    const { spool, count } = await setup({ isStarted: false });
    const copies = Array.from({ length: 1_200 }, (_, at) =>
      copy(Buffer.from(String(at)), { headers: { at: String(at) } }),
    );
    const keeping = spool.operator({ by: 'ops' }).keep(copies);
    copies[3]?.body.fill(0);
    await keeping;
    expect(count('insert')).toBe(3);
    const found = await all(spool.list({ header: { name: 'at', value: '3' } }));
    expect(await bytesOf(await spool.body(found[0]?.envelope.id ?? ''))).toEqual(Buffer.from('3'));
    expect((await spool.count()).archived).toBe(1_200);
  });
});
