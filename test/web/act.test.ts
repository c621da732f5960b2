/** What operators do over HTTP: to one message, to a list of ids, to a filter. */
import { fixed } from 'respool';
import { describe, expect, test } from 'vitest';
import { json, refusal, setup, type World } from './setup.ts';

interface DryRun {
  readonly count: number;
  readonly confirm: string;
  readonly expiresAt: number;
}

const fill = async ({ spool }: World, count: number, topic = 'a'): Promise<void> => {
  const messages = Array.from({ length: count }, () => ({ topic }));
  await spool.enqueueMany(messages);
};

describe('one message', () => {
  test('is held, released, tried again, bounced, given a policy and removed', async () => {
    const { ask, post, spool } = await setup({ spool: { policies: { slow: fixed('1h') } } });
    await spool.enqueue({ topic: 'a', id: 'x' });
    const done = { id: 'x', result: 'done' };
    const state = async (): Promise<unknown> => (await spool.get('x'))?.status.state;
    expect(await json(post('/v1/messages/x/hold', { reason: 'odd' }))).toEqual(done);
    expect((await spool.get('x'))?.status.because).toMatchObject({ text: 'odd', by: 'local' });
    expect(await json(post('/v1/messages/x/release'))).toEqual(done);
    expect(await state()).toBe('incoming');
    expect(await json(post('/v1/messages/x/policy', { policy: 'slow' }))).toEqual(done);
    expect((await spool.get('x'))?.status.policy).toBe('slow');
    expect(await json(post('/v1/messages/x/bounce', {}))).toEqual(done);
    expect(await state()).toBe('bounce');
    expect(await json(post('/v1/messages/x/retry'))).toEqual(done);
    expect(await state()).toBe('incoming');
    expect(await json(ask('/v1/messages/x?reason=spam', { method: 'DELETE' }))).toEqual(done);
    expect((await spool.get('x'))?.status).toMatchObject({ state: 'archived' });
    expect(await json(ask('/v1/messages/x?hard=true', { method: 'DELETE' }))).toEqual(done);
    expect(await spool.get('x')).toBeUndefined();
  });

  test('that is not there is 404, one in no state for it 409', async () => {
    const { post, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    expect(await refusal(post('/v1/messages/y/hold'))).toEqual([404, 'message.unknown']);
    expect(await refusal(post('/v1/messages/x/release'))).toEqual([409, 'move.refused']);
    expect(await refusal(post('/v1/messages/x/policy', { policy: 'no' }))).toEqual([
      400,
      'policy.unknown',
    ]);
    expect((await post('/v1/messages/x/policy')).status).toBe(415);
    expect((await post('/v1/messages/x/hold', { why: 'x' })).status).toBe(400);
    expect((await post('/v1/messages/x/hold', { reason: 'x'.repeat(1_001) })).status).toBe(400);
  });

  test('is changed in the name of who says so, printable and short', async () => {
    const { post, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    const as = (by: string) =>
      post('/v1/messages/x/hold', undefined, { headers: { 'respool-by': by } });
    expect((await as('ann b.')).status).toBe(200);
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { by: 'ann b.', action: 'hold', ids: ['x'] },
    ]);
    expect((await as('x'.repeat(65))).status).toBe(400);
    expect((await as('\u00e4')).status).toBe(400);
  });

  test('is not changed by a GET', async () => {
    const { ask, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    for (const path of ['hold', 'release', 'retry', 'bounce', 'policy']) {
      expect((await ask(`/v1/messages/x/${path}`)).status).toBe(405);
    }
    for (const path of ['/v1/pause', '/v1/resume', '/v1/bulk']) {
      expect((await ask(path)).status).toBe(405);
    }
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });
});

describe('a list of ids', () => {
  test.each([
    [{ kind: 'hold', reason: 'odd' }, 'hold'],
    [{ kind: 'bounce' }, 'bounce'],
    [{ kind: 'retry' }, 'incoming'],
    [{ kind: 'release' }, 'incoming'],
    [{ kind: 'remove' }, 'archived'],
    [{ kind: 'policy', policy: 'default' }, 'incoming'],
  ])('is acted on at once: %j', async (action, state) => {
    const { post, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    if (action.kind === 'retry' || action.kind === 'release')
      await spool.operator({ by: 'ops' }).hold(['x']);
    expect(await json(post('/v1/bulk', { action, ids: ['x', 'y'] }))).toEqual({
      results: [
        { id: 'x', result: 'done' },
        { id: 'y', result: 'unknown' },
      ],
    });
    expect((await spool.get('x'))?.status.state).toBe(state);
  });

  test.each([
    { ids: [] },
    { ids: ['../x'] },
    { ids: Array.from({ length: 5_001 }, () => 'x') },
    { ids: ['x'], filter: { topic: 'a' } },
    { ids: ['x'], dryRun: true },
    { ids: ['x'], action: { kind: 'explode' } },
    { ids: ['x'], action: { kind: 'release', reason: 'x' } },
    { ids: ['x'], action: { kind: 'policy', policy: 'none' } },
  ])('is refused as it should be (%#)', async (given) => {
    const { post, spool } = await setup();
    await spool.enqueue({ topic: 'a', id: 'x' });
    const answer = await post('/v1/bulk', { action: { kind: 'hold' }, ...given });
    expect(answer.status).toBe(400);
    expect((await spool.get('x'))?.status.state).toBe('incoming');
  });
});

describe('a filter', () => {
  const hold = { action: { kind: 'hold', reason: 'odd' }, filter: { topic: 'a', olderThan: 0 } };

  test('is counted first and acted on with the confirmation', async () => {
    const world = await setup();
    const { post, spool, clock } = world;
    await fill(world, 3);
    await fill(world, 1, 'b');
    const dry = await json<DryRun>(post('/v1/bulk', { ...hold, filter: { topic: 'a' } }));
    expect(dry).toMatchObject({ count: 3, filter: { topic: 'a' } });
    expect(dry.expiresAt).toBe(clock.now() + 600_000);
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
    // What comes after the count is not touched.
    await clock.advance('1s');
    await fill(world, 1);
    const request = { ...hold, filter: { topic: 'a' }, confirm: dry.confirm };
    expect(await json(post('/v1/bulk', request))).toEqual({
      seen: 3,
      done: 3,
      refused: 0,
      unknown: 0,
      refusals: [],
    });
    expect(await spool.count()).toMatchObject({ hold: 3, incoming: 2 });
    const [record] = await spool.operator({ by: 'ops' }).audit();
    expect(record).toMatchObject({
      by: 'local',
      action: 'bulk.hold',
      details: { count: 3, reason: 'odd', filter: { topic: 'a' } },
    });
  });

  test('is only counted with dryRun, confirmation or not', async () => {
    const world = await setup();
    await fill(world, 2);
    const request = { action: { kind: 'hold' }, filter: { topic: 'a' }, dryRun: true };
    const { confirm } = await json<DryRun>(world.post('/v1/bulk', request));
    expect(await json(world.post('/v1/bulk', { ...request, confirm }))).toHaveProperty('count', 2);
    expect((await world.spool.count()).hold).toBe(0);
  });

  test('is not acted on with a confirmation for something else', async () => {
    const world = await setup();
    const { post, spool, clock } = world;
    await fill(world, 2);
    const asked = { action: { kind: 'hold' }, filter: { topic: 'a', state: ['incoming'] } };
    const { confirm } = await json<DryRun>(post('/v1/bulk', asked));
    const [payload = '', mac = ''] = confirm.split('.');
    const other = Buffer.from(
      Buffer.from(payload, 'base64url').toString().replace('"count":2', '"count":9'),
    ).toString('base64url');
    const wrong = [
      { ...asked, action: { kind: 'bounce' }, confirm },
      { ...asked, action: { kind: 'hold', reason: 'x' }, confirm },
      { ...asked, filter: { topic: 'b' }, confirm },
      { ...asked, filter: { topic: 'a' }, confirm },
      { ...asked, confirm: 'nonsense' },
      { ...asked, confirm: '' },
      { ...asked, confirm: `${other}.${mac}` },
      { ...asked, confirm, after: 'nonsense' },
    ];
    for (const request of wrong) {
      expect(await refusal(post('/v1/bulk', request))).toEqual([
        409,
        'move.refused',
        'confirm.invalid',
      ]);
    }
    // The order of names is no other filter.
    const turned = { ...asked, filter: { state: ['incoming'], topic: 'a' }, confirm };
    await clock.advance('9m');
    expect(await json(post('/v1/bulk', turned))).toMatchObject({ done: 2 });
    expect(await refusal(post('/v1/bulk', turned))).toEqual([
      409,
      'move.refused',
      'confirm.invalid',
    ]);
    // What follows the token makes no other token of it.
    const released = { action: { kind: 'release' }, filter: { topic: 'a', state: ['hold'] } };
    const back = await json<DryRun>(post('/v1/bulk', released));
    await post('/v1/bulk', { ...released, confirm: back.confirm });
    for (const more of ['.x', '.', '=', '.x.y']) {
      const again = await post('/v1/bulk', { ...turned, confirm: `${confirm}${more}` });
      expect([more, again.status]).toEqual([more, 409]);
    }
    expect((await spool.count()).hold).toBe(0);
    const late = await json<DryRun>(post('/v1/bulk', asked));
    await clock.advance('10m');
    expect((await post('/v1/bulk', { ...asked, confirm: late.confirm })).status).toBe(409);
    expect((await spool.count()).hold).toBe(0);
  });

  test('is not acted on when more messages fit than were counted', async () => {
    const world = await setup();
    const { post, spool } = world;
    await fill(world, 2);
    await spool.enqueue({ topic: 'a', id: 'x' });
    await spool.operator({ by: 'ops' }).hold(['x']);
    const asked = { action: { kind: 'bounce' }, filter: { state: 'incoming' } };
    const { count, confirm } = await json<DryRun>(post('/v1/bulk', asked));
    expect(count).toBe(2);
    await spool.operator({ by: 'ops' }).release(['x']);
    expect(await refusal(post('/v1/bulk', { ...asked, confirm }))).toEqual([
      409,
      'move.refused',
      'confirm.more',
    ]);
    expect((await spool.count()).bounce).toBe(0);
  });

  test('that leaves nothing out needs the word for it', async () => {
    const world = await setup();
    const { post } = world;
    await fill(world, 2);
    const action = { kind: 'hold' };
    for (const request of [{ action }, { action, filter: {} }]) {
      expect(await refusal(post('/v1/bulk', request))).toEqual([400, 'config.invalid']);
    }
    const asked = { action, all: true };
    const { confirm } = await json<DryRun>(post('/v1/bulk', asked));
    expect(await json(post('/v1/bulk', { ...asked, confirm }))).toMatchObject({ done: 2 });
  });

  test('of many messages goes on where the answer before ended', async () => {
    const world = await setup();
    const { post, spool } = world;
    for (let at = 0; at < 6; at += 1) await fill(world, 900);
    const asked = { action: { kind: 'remove', hard: true }, filter: { topic: 'a' } };
    const { count, confirm } = await json<DryRun>(post('/v1/bulk', asked));
    expect(count).toBe(5_400);
    const first = await json<{ next: string }>(post('/v1/bulk', { ...asked, confirm }));
    expect(first).toMatchObject({ seen: 5_000, done: 5_000, next: expect.any(String) });
    const second = await json(post('/v1/bulk', { ...asked, confirm, after: first.next }));
    expect(second).toMatchObject({ seen: 400, done: 400 });
    expect(second).not.toHaveProperty('next');
    expect((await spool.count()).incoming).toBe(0);
    await fill(world, 10);
    for (const after of [first.next, `${first.next}.x`]) {
      expect(await refusal(post('/v1/bulk', { ...asked, confirm, after }))).toEqual([
        409,
        'move.refused',
        'confirm.invalid',
      ]);
    }
    expect((await spool.count()).incoming).toBe(10);
  });

  test('tells of the first refusals', async () => {
    const world = await setup();
    const { post } = world;
    await fill(world, 12);
    const asked = { action: { kind: 'release' }, filter: { state: ['incoming'] } };
    const { confirm } = await json<DryRun>(post('/v1/bulk', asked));
    const answer = await json<{ refusals: object[] }>(post('/v1/bulk', { ...asked, confirm }));
    expect(answer).toMatchObject({ seen: 12, done: 0, refused: 12 });
    expect(answer.refusals).toHaveLength(10);
  });
});
