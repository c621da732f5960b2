/** How long messages are kept after their end (R21–R24, R29). */
import { PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { codeOf, DAY, failing, HOUR, setup, type World, type WorldOptions } from './setup.ts';

async function ended(options: WorldOptions): Promise<World> {
  const world = await setup({ caretaker: { every: '1d' }, ...options });
  world.spool.handle('fine', () => undefined);
  world.spool.handle('never', failing(999, () => new PermanentError('x', 'final')).handler);
  return world;
}

async function refs({ bodies }: World): Promise<number> {
  let found = 0;
  for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) found += 1;
  return found;
}

describe('a delivered message', () => {
  test('is removed by default, with its body', async () => {
    const world = await ended({});
    const { spool, clock } = world;
    const { id } = await spool.enqueue({ topic: 'fine', body: Buffer.alloc(50_000) });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
    expect(await refs(world)).toBe(0);
  });

  test('is archived for the asked time, with its body, and then forgotten', async () => {
    const world = await ended({ retention: { delivered: { archive: '2h' } } });
    const { spool, clock, status } = world;
    const { id } = await spool.enqueue({ topic: 'fine', body: Buffer.alloc(50_000) });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'archived',
      ending: 'delivered',
      dueAt: clock.now() + 2 * HOUR,
    });
    await clock.advance(2 * HOUR - 1);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ forgotten: 0 });
    await clock.advance(1);
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ forgotten: 1 });
    await clock.settle();
    expect(await spool.get(id)).toBeUndefined();
    expect(await refs(world)).toBe(0);
  });

  test('is forgotten by the caretaker without being asked', async () => {
    const { spool, clock } = await ended({
      retention: { delivered: { archive: '2h' } },
      caretaker: { every: '10m' },
    });
    const { id } = await spool.enqueue({ topic: 'fine' });
    await clock.advance('1h59m');
    expect(await spool.get(id)).toBeDefined();
    await clock.advance('11m');
    expect(await spool.get(id)).toBeUndefined();
  });

  test('can be delivered again while it is archived', async () => {
    const { spool, clock, status, kinds } = await ended({
      retention: { delivered: { archive: '7d' } },
    });
    const { id } = await spool.enqueue({ topic: 'fine', body: 'x' });
    await clock.advance('1h');
    await spool.operator({ by: 'ops' }).retry([id]);
    await clock.settle();
    expect(kinds(id).filter((kind) => kind === 'delivered')).toHaveLength(2);
    expect(await status(id)).toMatchObject({ replays: 1, dueAt: clock.now() + 7 * DAY });
  });

  test('with a dedupe key is remembered without its body', async () => {
    const world = await ended({});
    const { spool, clock } = world;
    const { id } = await spool.enqueue({
      topic: 'fine',
      dedupeKey: 'k',
      body: Buffer.alloc(50_000),
    });
    const small = await spool.enqueue({ topic: 'fine', id: 'mine', body: 'x' });
    await clock.settle();
    expect(await refs(world)).toBe(0);
    for (const one of [id, small.id]) {
      expect((await spool.get(one))?.envelope.body.place).toBe('none');
      const [result] = await spool.operator({ by: 'ops' }).retry([one]);
      expect(result?.result).toBe('refused');
      const read = async (): Promise<void> => {
        for await (const _ of await spool.body(one));
      };
      expect(await codeOf(read())).toBe('body.missing');
    }
  });
});

describe('a bounced message', () => {
  test('is kept in bounce by default, after its notice too', async () => {
    const { spool, clock, status } = await ended({});
    spool.onBounce('never', () => undefined);
    const { id } = await spool.enqueue({ topic: 'never' });
    await clock.advance('3d');
    await spool.operator({ by: 'ops' }).cleanUp();
    expect((await status(id)).state).toBe('bounce');
  });

  // Weakness 3: elsewhere the option that archives bounces deletes them.
  test('is archived after its notice when that is asked for, and kept for that long', async () => {
    const { spool, clock, status } = await ended({ retention: { bounced: { archive: '2h' } } });
    const notices = failing(1);
    spool.onBounce('never', notices.handler, {
      policy: { maxAttempts: 3, maxAgeMs: null, jitter: 0, backoff: { kind: 'fixed', delayMs: 1 } },
    });
    const { id } = await spool.enqueue({ topic: 'never', body: 'x' });
    await clock.settle();
    expect((await status(id)).state).toBe('bounce');
    await clock.advance(1);
    expect(await status(id)).toMatchObject({
      state: 'archived',
      ending: 'bounced',
      dueAt: clock.now() + 2 * HOUR,
      lastFailure: { code: 'x' },
    });
    await clock.advance('2h');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ forgotten: 1 });
  });

  test('is archived at once when there is no bounce handler', async () => {
    const { spool, clock, status } = await ended({ retention: { bounced: { archive: '2h' } } });
    const { id } = await spool.enqueue({ topic: 'never' });
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'archived', ending: 'bounced' });
    await spool.operator({ by: 'ops' }).retry([id]);
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'archived', replays: 1 });
  });

  test('by an operator whose process does not deliver waits for its notice', async () => {
    const world = await ended({ retention: { bounced: { archive: '2h' } } });
    const { spool, clock, status } = world;
    const { id } = await spool.enqueue({ topic: 'other', delay: '1h' });
    // Which handlers there are is known only where they are registered.
    const operator = await setup({ with: world, isStarted: false });
    await operator.spool.operator({ by: 'ops' }).bounce([id]);
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'bounce', ending: 'bounced' });
    spool.onBounce('other', () => undefined);
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'archived', ending: 'bounced' });
  });

  test('that expired is archived as expired', async () => {
    const { spool, clock, status } = await ended({ retention: { bounced: { archive: '2h' } } });
    const { id } = await spool.enqueue({ topic: 'fine', delay: '1h', expires: '1m' });
    await clock.advance('1m');
    expect(await status(id)).toMatchObject({ state: 'archived', ending: 'expired' });
  });
});

describe('a removed message', () => {
  test('is kept for a week by default', async () => {
    const { spool, clock, status } = await ended({});
    const { id } = await spool.enqueue({ topic: 'other', delay: '1h' });
    await spool.operator({ by: 'ops' }).remove([id]);
    expect((await status(id)).dueAt).toBe(clock.now() + 7 * DAY);
  });

  test('is forgotten after the asked time', async () => {
    const { spool, clock } = await ended({ retention: { removed: '1h' } });
    const { id } = await spool.enqueue({ topic: 'other', delay: '5h' });
    await spool.operator({ by: 'ops' }).remove([id]);
    await clock.advance('1h');
    expect(await spool.operator({ by: 'ops' }).cleanUp()).toEqual({
      forgotten: 1,
      orphans: 0,
      unhandled: 0,
    });
    expect(await spool.get(id)).toBeUndefined();
  });
});

test('the caretaker forgets more than a page at once', async () => {
  const { spool, clock, events } = await ended({ retention: { removed: 0 } });
  const messages = Array.from({ length: 1_300 }, () => ({ topic: 'other', delay: '5h' }));
  const ids = (await spool.enqueueMany(messages)).map(({ id }) => id);
  await spool.operator({ by: 'ops' }).remove(ids);
  expect(await spool.operator({ by: 'ops' }).cleanUp()).toMatchObject({ forgotten: 1_300 });
  await clock.settle();
  expect(events).toContainEqual(expect.objectContaining({ kind: 'cleaned-up', forgotten: 1_300 }));
});
