/** What an operator may do, one action at a time (R11, R12, R18–R20, R23, R200, R209). */
import { fixed, PermanentError, type Spool, type State, STATES } from 'respool';
import { describe, expect, test } from 'vitest';
import {
  codeOf,
  DAY,
  failing,
  HOUR,
  makeGate,
  MINUTE,
  rejection,
  setup,
  type World,
} from './setup.ts';

/** A message in each state; the one in active is held by a handler that waits. */
async function inEveryState(): Promise<World & { readonly ids: Record<State, string> }> {
  const world = await setup({
    policies: { default: fixed('1h') },
    retention: { delivered: { archive: '7d' } },
  });
  const { spool, clock } = world;
  const gate = makeGate();
  spool.handle('wait', gate.handler, { timeout: '1d' });
  spool.handle('fail', failing(99).handler);
  spool.handle('never', () => {
    throw new PermanentError('x', 'final');
  });
  spool.handle('fine', () => undefined);
  await spool.operator({ by: 'ops' }).pause('paused');
  const put = async (topic: string): Promise<string> =>
    (await spool.enqueue({ topic, body: 'x' })).id;
  const ids = {
    incoming: await put('paused'),
    active: await put('wait'),
    deferred: await put('fail'),
    hold: await put('paused'),
    bounce: await put('never'),
    archived: await put('fine'),
  };
  await clock.settle();
  await spool.operator({ by: 'ops' }).hold([ids.hold]);
  return { ...world, ids };
}

describe('hold and release', () => {
  test('a held message is left alone until it is released, then delivered', async () => {
    const { spool, clock, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    expect(await spool.operator({ by: 'ann' }).hold([id], { reason: 'too early' })).toEqual([
      { id, result: 'done' },
    ]);
    expect(await status(id)).toMatchObject({
      state: 'hold',
      dueAt: null,
      because: { code: 'operator.hold', text: 'too early', by: 'ann' },
    });
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.advance('2h');
    expect(attempts).toEqual([]);
    expect(await spool.operator({ by: 'ops' }).release([id])).toEqual([{ id, result: 'done' }]);
    await clock.settle();
    expect(attempts).toEqual([1]);
  });

  test('a held notice is released as a notice, never as a delivery', async () => {
    const { spool, clock } = await setup();
    const delivered = failing(99, () => new PermanentError('x', 'final'));
    spool.handle('a', delivered.handler);
    const { id } = await spool.enqueue({ topic: 'a' });
    await clock.settle();
    await spool.operator({ by: 'ops' }).hold([id]);
    const notices: string[] = [];
    spool.onBounce('a', (delivery) => void notices.push(delivery.lane));
    await spool.operator({ by: 'ops' }).release([id]);
    await clock.settle();
    expect(notices).toEqual(['notice']);
    expect(delivered.attempts).toEqual([1]);
  });

  test('only what is held can be released', async () => {
    const { spool, ids } = await inEveryState();
    const results = await spool.operator({ by: 'ops' }).release(Object.values(ids));
    expect(results.map(({ result }) => result)).toEqual([
      'refused',
      'refused',
      'refused',
      'done',
      'refused',
      'refused',
    ]);
    expect(results[0]?.why).toContain('only a held message');
  });
});

describe('a list of ids', () => {
  const calls: Record<string, (spool: Spool, ids: never) => Promise<unknown>> = {
    hold: (spool, ids) => spool.operator({ by: 'ops' }).hold(ids),
    release: (spool, ids) => spool.operator({ by: 'ops' }).release(ids),
    retryNow: (spool, ids) => spool.operator({ by: 'ops' }).retry(ids),
    bounce: (spool, ids) => spool.operator({ by: 'ops' }).bounce(ids),
    remove: (spool, ids) => spool.operator({ by: 'ops' }).remove(ids),
  };
  test.each(Object.entries(calls))(
    'or a filter is what %s takes, and nothing else',
    async (_, call) => {
      const { spool } = await setup();
      for (const ids of [null, undefined, 'abc', 7, [null], ['a', 7]]) {
        const error = await rejection(call(spool, ids as never));
        expect(error).toMatchObject({ code: 'message.invalid' });
        expect(error.message).toContain('a list of message ids');
      }
      const error = await rejection(call(spool, { 0: 'abc', length: 1 } as never));
      expect(error).toMatchObject({ code: 'config.invalid' });
      expect(error.message).toContain('of a list filter');
      expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
    },
  );
});

describe('a filter with a value that no message can have', () => {
  const filters = [{ lane: 'notices' }, { dueBefore: '2026-01-01' }, { enqueuedAfter: Number.NaN }];
  test.each(filters)('%j is refused, and no message is changed', async (filter) => {
    const { spool, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', delay: '1h' });
    const before = await status(id);
    const wrong = filter as never;
    const operator = spool.operator({ by: 'ops' });
    const calls = [operator.hold(wrong), spool.page(wrong), operator.tally('topic', wrong)];
    for (const result of await Promise.allSettled(calls)) {
      expect(result).toMatchObject({ status: 'rejected', reason: { code: 'config.invalid' } });
    }
    expect(await status(id)).toEqual(before);
  });

  test('a tally by what nothing is counted by is refused', async () => {
    const { spool } = await setup();
    const error = await rejection(spool.operator({ by: 'ops' }).tally('priority' as never));
    expect(error.message).toBe(
      'cannot use "priority" as "by": allowed is state | topic | destination | fingerprint',
    );
  });
});

describe('retryNow', () => {
  test('makes a deferred message due at once, with its attempts', async () => {
    const { spool, clock, status } = await setup({ policies: { default: fixed('1h') } });
    const { handler, attempts } = failing(1);
    spool.handle('a', handler);
    const { id } = await spool.enqueue({ topic: 'a', id: 'mine' });
    await clock.advance('1m');
    expect(await spool.operator({ by: 'ops' }).retry([id])).toEqual([{ id, result: 'done' }]);
    await clock.settle();
    expect(attempts).toEqual([1, 2]);
    expect(await status(id)).toMatchObject({ state: 'archived', replays: 0, attempts: 2 });
  });

  test('lets a held message go on', async () => {
    const { spool, status, ids } = await inEveryState();
    expect(await spool.operator({ by: 'ops' }).retry([ids.hold])).toMatchObject([
      { result: 'done' },
    ]);
    expect(await status(ids.hold)).toMatchObject({ state: 'incoming', replays: 0 });
  });

  test.each(['bounce', 'archived'] as const)(
    'starts a new round of attempts for %s, and counts the replay',
    async (state) => {
      const { spool, clock, status, ids, kinds } = await inEveryState();
      const id = ids[state];
      expect(await status(id)).toMatchObject({ state, attempts: 1 });
      await spool.operator({ by: 'ops' }).retry([id]);
      await clock.settle();
      const after = await status(id);
      expect(after).toMatchObject({ state, attempts: 1, replays: 1 });
      expect(kinds(id).filter((kind) => kind === 'started')).toHaveLength(2);
      expect(after.history).toHaveLength(2);
    },
  );

  // Regression: what had expired bounced again before any handler saw it.
  test.each(['bounce', 'archived'] as const)('delivers from %s what has expired', async (state) => {
    const archive = state === 'archived' ? ({ archive: '7d' } as const) : 'keep';
    const { spool, clock, status, kinds } = await setup({ retention: { bounced: archive } });
    const { handler, attempts } = failing(1);
    const { id } = await spool.enqueue({ topic: 'a', body: 'text', expires: '10m', delay: '1h' });
    spool.handle('a', handler);
    await clock.advance('10m');
    expect(await status(id)).toMatchObject({ state, ending: 'expired' });
    await spool.operator({ by: 'ops' }).retry([id]);
    await clock.settle();
    expect((await spool.get(id))?.envelope.expiresAt).toBeUndefined();
    expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 1, replays: 1 });
    await clock.advance('1d');
    expect(attempts).toEqual([1, 2]);
    expect(kinds(id).at(-1)).toBe('delivered');
  });

  test('is refused for a message that is being delivered, and says until when', async () => {
    const { spool, clock, ids } = await inEveryState();
    const [result] = await spool.operator({ by: 'ops' }).retry([ids.active]);
    expect(result).toMatchObject({ result: 'refused' });
    expect(result?.why).toContain(new Date(clock.now() + MINUTE).toISOString());
  });

  test('is refused for a delivered message whose body was not kept', async () => {
    const { spool, clock } = await setup();
    spool.handle('a', () => undefined);
    const { id } = await spool.enqueue({ topic: 'a', dedupeKey: 'k', body: 'x' });
    await clock.settle();
    const [result] = await spool.operator({ by: 'ops' }).retry([id]);
    expect(result?.why).toContain('enqueue it again');
  });
});

describe('bounce', () => {
  test.each(['bounce', 'move', 'control'] as const)(
    'by %s begins the retention at once when nobody announces it',
    async (how) => {
      const { spool, clock, status } = await setup({ retention: { bounced: { archive: '7d' } } });
      await spool.operator({ by: 'ops' }).pause('#');
      const { id } = await spool.enqueue({ topic: 'a' });
      if (how === 'bounce') await spool.operator({ by: 'ops' }).bounce([id]);
      else if (how === 'control') await spool.operator({ by: 'ann' }).bounce([id]);
      else await spool.operator({ by: 'ops' }).move(id, { from: 'incoming', to: 'bounce' });
      const dueAt = clock.now() + 7 * DAY;
      expect(await status(id)).toMatchObject({ state: 'archived', ending: 'bounced', dueAt });
      await clock.advance('8d');
      expect(await spool.get(id)).toBeUndefined();
    },
  );

  test('gives a message up, and the bounce handler is told', async () => {
    const { spool, clock, status } = await setup();
    await spool.operator({ by: 'ops' }).pause('other');
    const notices: string[] = [];
    spool.onBounce('other', ({ id }) => void notices.push(id));
    const { id } = await spool.enqueue({ topic: 'other' });
    await spool.operator({ by: 'ann' }).bounce([id], { reason: 'nobody wants it' });
    expect(await status(id)).toMatchObject({
      state: 'bounce',
      lane: 'notice',
      ending: 'bounced',
      because: { code: 'operator.bounce', text: 'nobody wants it', by: 'ann' },
    });
    await spool.operator({ by: 'ops' }).resume('other');
    await clock.settle();
    expect(notices).toEqual([id]);
    expect((await status(id)).dueAt).toBeNull();
  });
});

describe('remove', () => {
  test('softly archives for the retention of removals, and can be taken back', async () => {
    const { spool, clock, status } = await setup({ retention: { removed: '2h' } });
    const { id } = await spool.enqueue({ topic: 'a', body: 'x' });
    const removed = await spool.operator({ by: 'ann' }).remove([id], { reason: 'spam' });
    expect(removed).toEqual([{ id, result: 'done' }]);
    expect(await status(id)).toMatchObject({
      state: 'archived',
      ending: 'removed',
      dueAt: clock.now() + 2 * HOUR,
      because: { code: 'operator.remove', text: 'spam', by: 'ann' },
    });
    await spool.operator({ by: 'ops' }).retry([id]);
    expect((await status(id)).state).toBe('incoming');
  });

  test('hard forgets the message and its body', async () => {
    const { spool, clock, bodies } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', body: Buffer.alloc(100_000) });
    await spool.operator({ by: 'ops' }).remove([id], { hard: true });
    expect(await spool.get(id)).toBeUndefined();
    await clock.settle();
    let refs = 0;
    for await (const _ of bodies.refs(Number.MAX_SAFE_INTEGER)) refs += 1;
    expect(refs).toBe(0);
  });
});

describe('every action', () => {
  test('answers done, refused or unknown for each id, in the order of the ids', async () => {
    const { spool, ids } = await inEveryState();
    const results = await spool
      .operator({ by: 'ops' })
      .hold(['nobody', ids.incoming, ids.active, ids.incoming]);
    expect(results.map(({ id, result }) => [id, result])).toEqual([
      ['nobody', 'unknown'],
      [ids.incoming, 'done'],
      [ids.active, 'refused'],
      [ids.incoming, 'done'],
    ]);
  });

  test('works on many messages at once', async () => {
    const { spool } = await setup();
    const messages = Array.from({ length: 1_100 }, () => ({ topic: 'a' }));
    const ids = (await spool.enqueueMany(messages)).map(({ id }) => id);
    const results = await spool.operator({ by: 'ops' }).hold(ids);
    expect(results.every(({ result }) => result === 'done')).toBe(true);
    expect(await spool.count()).toMatchObject({ hold: 1_100 });
    expect((await spool.operator({ by: 'ops' }).audit()).map((line) => line.ids.length)).toEqual([
      500, 500, 100,
    ]);
  });

  test.each([
    [3, 'done'],
    [99, 'refused'],
  ] as const)('that is overtaken %i times looks again, and comes out %s', async (times, result) => {
    let overtakes = 0;
    const { spool, status } = await setup({
      extras: (store) => ({
        commit: async (changes, how) => {
          const [first] = changes;
          const entry = first === undefined ? undefined : await store.get(first.id);
          if (entry !== undefined && overtakes < times) {
            overtakes += 1;
            const { id } = entry.envelope;
            const { revision } = entry.status;
            await store.commit([{ id, revision, to: { ...entry.status, revision: revision + 1 } }]);
          }
          return store.commit(changes, how);
        },
      }),
    });
    const { id } = await spool.enqueue({ topic: 'a' });
    const [answer] = await spool.operator({ by: 'ops' }).hold([id]);
    expect(answer?.result).toBe(result);
    if (result === 'refused') expect(answer?.why).toContain('kept changing');
    expect((await status(id)).state).toBe(result === 'done' ? 'hold' : 'incoming');
  });

  // Regression: one unreadable entry made the action fail for all of them.
  test('is refused for an entry that cannot be read, and done for the others', async () => {
    const { spool, data } = await setup();
    const { id: damaged } = await spool.enqueue({ topic: 'a' });
    const { id: fine } = await spool.enqueue({ topic: 'a' });
    data.damage(damaged);
    const results = await spool.operator({ by: 'ops' }).hold([damaged, fine]);
    expect(results.map(({ result }) => result)).toEqual(['refused', 'done']);
    expect(results[0]?.why).toContain(damaged);
  });
});

describe('move', () => {
  const legal: Record<State, State[]> = {
    incoming: ['hold', 'bounce', 'archived'],
    active: [],
    deferred: ['incoming', 'hold', 'bounce', 'archived'],
    hold: ['incoming', 'bounce', 'archived'],
    bounce: ['incoming', 'hold', 'archived'],
    // It was delivered: what was removed can be held, too (operator-endings.test.ts).
    archived: ['incoming'],
  };
  test('goes where an operator may go, and nowhere else', async () => {
    for (const from of STATES) {
      for (const to of STATES) {
        const { spool, ids, status } = await inEveryState();
        await spool.operator({ by: 'ops' }).pause('#');
        const id = ids[from];
        if (legal[from].includes(to)) {
          await spool.operator({ by: 'ann' }).move(id, { from, to, reason: 'because' });
          expect([from, to, (await status(id)).state]).toEqual([from, to, to]);
        } else {
          const error = await rejection(spool.operator({ by: 'ops' }).move(id, { from, to }));
          expect([from, to, error.code]).toEqual([from, to, 'move.refused']);
          expect((await status(id)).state).toBe(from);
        }
      }
    }
  });

  test('refuses when the message is somewhere else, and says where', async () => {
    const { spool, ids } = await inEveryState();
    const error = await rejection(
      spool.operator({ by: 'ops' }).move(ids.hold, { from: 'deferred', to: 'incoming' }),
    );
    expect(error.code).toBe('move.refused');
    expect(error.message).toContain('it is in hold');
    const nobody = spool.operator({ by: 'ops' }).move('nobody', { from: 'hold', to: 'incoming' });
    expect(await codeOf(nobody)).toBe('message.unknown');
  });
});

describe('updateHeaders', () => {
  test('sets and takes away, and raises the revision', async () => {
    const { spool, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a', headers: { a: '1', b: '2' }, body: 'x' });
    expect(await spool.operator({ by: 'ann' }).setHeaders(id, { b: null, c: '3' })).toBe('done');
    expect((await spool.get(id))?.envelope.headers).toEqual({ a: '1', c: '3' });
    expect((await status(id)).revision).toBe(2);
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { action: 'setHeaders', by: 'ann', ids: [id] },
    ]);
  });

  test('is stale when the message moved on since the revision', async () => {
    const { spool, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    const { revision } = await status(id);
    expect(await spool.operator({ by: 'ops' }).setHeaders(id, { a: '1' }, { revision })).toBe(
      'done',
    );
    expect(await spool.operator({ by: 'ops' }).setHeaders(id, { a: '2' }, { revision })).toBe(
      'stale',
    );
    expect((await spool.get(id))?.envelope.headers).toEqual({ a: '1' });
  });

  test('keeps the body, inline or stored', async () => {
    const { spool, clock } = await setup();
    const seen: number[] = [];
    const { id } = await spool.enqueue({ topic: 'a', body: 'inline' });
    const { id: large } = await spool.enqueue({ topic: 'a', body: Buffer.alloc(50_000) });
    await spool.operator({ by: 'ops' }).setHeaders(id, { a: '1' });
    await spool.operator({ by: 'ops' }).setHeaders(large, { a: '1' });
    spool.handle('a', async (delivery) => void seen.push((await delivery.body()).byteLength));
    await clock.settle();
    expect(seen.toSorted((a, b) => a - b)).toEqual([6, 50_000]);
  });

  test('refuses headers that enqueue would refuse, and messages that are active', async () => {
    const { spool, ids } = await inEveryState();
    expect(
      await codeOf(spool.operator({ by: 'ops' }).setHeaders(ids.incoming, { 'a b': '1' })),
    ).toBe('message.invalid');
    expect(await codeOf(spool.operator({ by: 'ops' }).setHeaders(ids.active, { a: '1' }))).toBe(
      'move.refused',
    );
    expect(await codeOf(spool.operator({ by: 'ops' }).setHeaders('nobody', { a: '1' }))).toBe(
      'message.unknown',
    );
  });
});
