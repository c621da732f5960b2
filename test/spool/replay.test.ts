/** Replays: what had ended goes once more, as it was or repaired, and no step can lose a body. */
import { compress, encrypt, generateKey, type Transform } from 'respool/transforms';
import { PermanentError, type ReplayOrder } from 'respool';
import { describe, expect, test } from 'vitest';
import { all, bytesOf, codeOf, rejection, setup, type World, type WorldOptions } from './setup.ts';

const SMALL = Buffer.from('{"broken":true');
const LARGE = Buffer.alloc(60_000, '{"broken":true ');
const MENDED = Buffer.from('{"broken":false}');
const MENDED_LARGE = Buffer.alloc(70_000, '{"mended":true} ');
const TRANSFORMS: readonly Transform[] = [
  compress('zstd'),
  encrypt({ keys: { k1: generateKey() } }),
];

/** A spool with one message that bounced. */
async function bounced(
  body: Buffer,
  options: WorldOptions = {},
): Promise<World & { readonly id: string }> {
  const world = await setup({ isStarted: false, ...options });
  const { id } = await world.spool.enqueue({ topic: 'a', body, headers: { keep: '1', drop: '2' } });
  await giveUp(world, id);
  return { ...world, id };
}

async function giveUp({ spool }: World, id: string): Promise<void> {
  await spool.process(id, () => {
    throw new PermanentError('smtp.550', 'no such user');
  });
}

async function textOf({ spool }: World, id: string): Promise<Buffer> {
  return bytesOf(await spool.body(id));
}

async function refs({ bodies, spool }: World): Promise<string[]> {
  // Open again, after a stop.
  await spool.count();
  return (await all(bodies.refs(Number.MAX_SAFE_INTEGER))).map(({ ref }) => ref);
}

describe('a replay', () => {
  test('is delivered once more, with its counter and its operation', async () => {
    const { spool, clock, id } = await bounced(SMALL);
    const got: string[] = [];
    spool.handle('a', async (delivery) => {
      const text = await delivery.text();
      got.push(`${delivery.headers['respool-replay']} ${text}`);
    });
    await spool.start();
    expect(await spool.operator({ by: 'ann' }).replay([id, 'nobody'], { replay: 'r1' })).toEqual([
      { id, result: 'done' },
      { id: 'nobody', result: 'unknown' },
    ]);
    await clock.settle();
    expect(got).toEqual([`r1 ${SMALL.toString()}`]);
  });

  test('counts each round, whoever asks for it', async () => {
    const world = await bounced(SMALL);
    const { spool, id, status } = world;
    for (const replay of ['r1', 'r2', 'r3']) {
      await spool.operator({ by: 'ops' }).replay([id], { replay });
      await giveUp(world, id);
    }
    expect(await status(id)).toMatchObject({ state: 'bounce', replays: 3, attempts: 1 });
    expect((await spool.get(id))?.envelope.headers['respool-replay']).toBe('r3');
  });

  test('is on the audit record before it is done, without the body', async () => {
    const { spool, id, store, status } = await bounced(SMALL);
    store.faults.plan = (operation) => (operation === 'records.append' ? 'before' : 'ok');
    const order = {
      replay: 'r1',
      topic: 'b',
      change: { body: MENDED, headers: { drop: null }, contentType: 'application/json' },
    };
    expect(await codeOf(spool.operator({ by: 'ann' }).replay([id], order))).toBe(
      'store.unavailable',
    );
    expect((await status(id)).state).toBe('bounce');
    store.faults.plan = () => 'ok';
    await spool.operator({ by: 'ann' }).replay([id], order);
    const line = (await spool.operator({ by: 'ops' }).audit()).at(-1);
    expect(line).toMatchObject({ by: 'ann', action: 'replay', ids: [id] });
    expect(line?.details).toEqual({
      replay: 'r1',
      topic: 'b',
      headers: { drop: null },
      contentType: 'application/json',
      bodyBytes: MENDED.byteLength,
    });
  });

  test('changes topic, headers and content type, and leaves the rest', async () => {
    const world = await bounced(SMALL);
    const { spool, id } = world;
    const change = { headers: { drop: null, add: '3' }, contentType: 'application/json' };
    await spool.operator({ by: 'ops' }).replay([id], { replay: 'r1', topic: 'b.c', change });
    const { envelope } = (await spool.get(id)) ?? {};
    expect(envelope).toMatchObject({ topic: 'b.c', body: { size: SMALL.byteLength } });
    expect(envelope?.headers).toEqual({
      keep: '1',
      add: '3',
      'content-type': 'application/json',
      'respool-replay': 'r1',
    });
    expect((await textOf(world, id)).equals(SMALL)).toBe(true);
  });

  test('of another round than was seen is refused', async () => {
    const world = await bounced(SMALL);
    const { spool, id } = world;
    await spool.operator({ by: 'ops' }).replay([id], { replay: 'r1', replays: 0 });
    await giveUp(world, id);
    expect(
      await spool.operator({ by: 'ops' }).replay([id], { replay: 'r2', replays: 0 }),
    ).toMatchObject([
      { result: 'refused', why: expect.stringContaining('it was sent again meanwhile, 1 times') },
    ]);
    expect(await spool.operator({ by: 'ops' }).replay([id], { replay: 'r2', replays: 1 })).toEqual([
      { id, result: 'done' },
    ]);
  });

  test.each([
    [{ replay: '' }, 'message.invalid'],
    [{ replay: 'r\n1' }, 'message.invalid'],
    [{ replay: 'r1', topic: 'no good' }, 'message.invalid'],
    [{ replay: 'r1', to: 'b' }, 'config.invalid'],
    [{ replay: 'r1', change: { text: 'x' } }, 'config.invalid'],
  ])('of %j is refused as a whole', async (order, code) => {
    const { spool, id, status } = await bounced(SMALL);
    expect(await codeOf(spool.operator({ by: 'ops' }).replay([id], order as ReplayOrder))).toBe(
      code,
    );
    expect((await status(id)).state).toBe('bounce');
    expect((await spool.operator({ by: 'ops' }).audit()).map(({ action }) => action)).toEqual([
      'process',
    ]);
  });

  test('that makes one message too large refuses that one', async () => {
    const limits = { bodyBytes: 1_000, headerBytes: 1_000 };
    const { spool, id, status } = await bounced(SMALL, { limits });
    const orders = [
      { change: { body: LARGE } },
      { change: { headers: { long: 'x'.repeat(1_001) } } },
      { change: { headers: { 'no good': 'x' } } },
    ];
    for (const order of orders) {
      expect(
        await spool.operator({ by: 'ops' }).replay([id], { replay: 'r1', ...order }),
      ).toMatchObject([
        {
          result: 'refused',
          why: expect.stringContaining(`cannot replay message "${id}": cannot`),
        },
      ]);
    }
    expect(await status(id)).toMatchObject({ state: 'bounce', replays: 0 });
  });
});

describe.each<[string, readonly Transform[]]>([
  ['plain', []],
  ['compressed and encrypted', TRANSFORMS],
])('a repaired body, %s', (_, transforms) => {
  test.each<[string, Buffer, Buffer]>([
    ['a small one by a small one', SMALL, MENDED],
    ['a small one by a large one', SMALL, MENDED_LARGE],
    ['a large one by a small one', LARGE, MENDED],
    ['a large one by a large one', LARGE, MENDED_LARGE],
    ['any by nothing', LARGE, Buffer.alloc(0)],
  ])('replaces %s', async (__, before, after) => {
    // Small enough that what is compressed well has to go to the store all the same.
    const world = await bounced(before, { transforms, limits: { inlineBodyBytes: 1_000 } });
    const { spool, id } = world;
    const old = (await spool.get(id))?.envelope.body;
    const given = Buffer.from(after);
    const sending = spool
      .operator({ by: 'ops' })
      .replay([id], { replay: 'r1', change: { body: given } });
    // Ours by then: the caller may use its buffer again.
    given.fill(0);
    expect(await sending).toEqual([{ id, result: 'done' }]);
    expect((await textOf(world, id)).equals(after)).toBe(true);
    const { body } = (await spool.get(id))?.envelope ?? {};
    expect(body?.size).toBe(after.byteLength);
    expect(body?.encodings).toHaveLength(transforms.length);
    expect(body?.digest).not.toBe(old?.digest);
    // A stop waits for the remover of bodies.
    await spool.stop();
    const kept = await refs(world);
    expect(kept).toEqual(body?.place === 'store' ? [body.ref] : []);
    if (old?.place === 'store') expect(kept).not.toContain(old.ref);
    expect((await textOf(world, id)).equals(after)).toBe(true);
  });
});

describe('nothing is lost', () => {
  test.each(['before', 'after'] as const)(
    'when the store fails %s the commit: the message has one whole body',
    async (when) => {
      const world = await bounced(LARGE);
      const { spool, id, store, status } = world;
      store.faults.plan = (operation) => (operation === 'commit' ? when : 'ok');
      const order = { replay: 'r1', change: { body: MENDED_LARGE } };
      expect(await codeOf(spool.operator({ by: 'ops' }).replay([id], order))).toBe(
        'store.unavailable',
      );
      store.faults.plan = () => 'ok';
      const isSent = when === 'after';
      expect((await status(id)).state).toBe(isSent ? 'incoming' : 'bounce');
      expect((await textOf(world, id)).equals(isSent ? MENDED_LARGE : LARGE)).toBe(true);
    },
  );

  test('when the new body cannot be written, the message is as it was', async () => {
    const world = await bounced(LARGE);
    const { spool, id, bodies, status } = world;
    bodies.faults.plan = (operation) => (operation === 'put' ? 'before' : 'ok');
    await rejection(
      spool.operator({ by: 'ops' }).replay([id], { replay: 'r1', change: { body: MENDED_LARGE } }),
    );
    bodies.faults.plan = () => 'ok';
    expect(await status(id)).toMatchObject({ state: 'bounce', replays: 0 });
    expect((await textOf(world, id)).equals(LARGE)).toBe(true);
  });

  test('the old body stays until the commit is durable', async () => {
    const world = await bounced(LARGE);
    const { spool, id, store } = world;
    const old = (await spool.get(id))?.envelope.body.ref ?? '';
    store.faults.plan = (operation) => (operation === 'flush' ? 'before' : 'ok');
    await spool
      .operator({ by: 'ops' })
      .replay([id], { replay: 'r1', change: { body: MENDED_LARGE } });
    await spool.stop();
    // Nobody could say that the new entry survives: the old body is the caretaker's now.
    expect(await refs(world)).toContain(old);
    store.faults.plan = () => 'ok';
    expect((await textOf(world, id)).equals(MENDED_LARGE)).toBe(true);
  });

  test('when somebody was quicker, what was written for it is taken away again', async () => {
    const world = await bounced(LARGE);
    const { spool, id, bodies, status } = world;
    const other = await setup({ with: world, isStarted: false });
    let isFirst = true;
    bodies.faults.plan = (operation) => {
      if (operation === 'put' && isFirst) {
        isFirst = false;
        return { delayMs: 1_000 };
      }
      return 'ok';
    };
    const slow = spool
      .operator({ by: 'ops' })
      .replay([id], { replay: 'r1', change: { body: MENDED_LARGE } });
    await world.clock.settle();
    expect(await other.spool.operator({ by: 'ops' }).replay([id], { replay: 'r2' })).toEqual([
      { id, result: 'done' },
    ]);
    const [[result]] = await Promise.all([slow, world.clock.advance(1_000)]);
    expect(result).toMatchObject({ result: 'refused', why: expect.stringContaining('incoming') });
    expect((await status(id)).replays).toBe(1);
    expect((await textOf(world, id)).equals(LARGE)).toBe(true);
    expect(await refs(world)).toEqual([(await spool.get(id))?.envelope.body.ref]);
  });
});
