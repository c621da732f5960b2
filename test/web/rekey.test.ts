/** Rekeying over HTTP: counted, confirmed, done behind the answer, told, stopped. */
import { type RekeyOptions, type RekeyProgress, RespoolError } from 'respool';
import { SimClock } from 'respool/testkit';
import { encrypt, generateKey } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { connectOperator } from 'respool/web';
import { all } from '../spool/setup.ts';
import { json, refusal, setup, type World, type WorldOptions } from './setup.ts';

const TROUBLE = { id: 'x', code: 'key.unavailable', text: 'no key "k0"' };

/** A service whose rekeying stands still after one of three until it may go on, or is stopped. */
async function standing(more: WorldOptions = {}) {
  const begun = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  const asked: Omit<RekeyOptions, 'by'>[] = [];
  const rekey = async (options: Omit<RekeyOptions, 'by'> = {}): Promise<RekeyProgress> => {
    asked.push(options);
    const at = (done: number, unreadable: number): RekeyProgress => ({
      count: 3,
      done,
      left: 3 - done - unreadable,
      unreadable,
      troubles: unreadable === 0 ? [] : [TROUBLE],
    });
    if (options.dryRun === true) return at(0, 0);
    options.onProgress?.(at(1, 0));
    begun.resolve();
    const stopped = new Promise<never>((_, reject) => {
      options.signal?.addEventListener('abort', () => reject(options.signal?.reason as Error));
    });
    await Promise.race([goOn.promise, stopped]);
    return at(2, 1);
  };
  const world = await setup({ operator: () => ({ rekey }), ...more });
  return { ...world, asked, begun: begun.promise, goOn: goOn.resolve, fail: goOn.reject };
}

const count = async ({ post }: Pick<World, 'post'>, body: object = {}): Promise<string> =>
  (await json<{ confirm: string }>(post('/v1/rekey', body))).confirm;

/** Until it has ended. */
async function ended({ ask }: Pick<World, 'ask'>): Promise<Record<string, unknown>> {
  for (;;) {
    const state = await json(ask('/v1/rekey'));
    if (state['isRunning'] === false) return state;
  }
}

describe('in two steps', () => {
  test('the first counts and does nothing, the second begins and answers at once', async () => {
    const world = await standing();
    const { ask, post, asked, begun, goOn } = world;
    const counted = await json(post('/v1/rekey'));
    expect(counted).toMatchObject({ count: 3, confirm: expect.any(String) as string });
    expect(asked).toEqual([{ filter: {}, dryRun: true }]);
    const answer = await post('/v1/rekey', { confirm: counted['confirm'] });
    expect(answer.status).toBe(202);
    expect(await json(answer)).toMatchObject({ isRunning: true, by: 'local', count: 3 });
    await begun;
    expect(await json(ask('/v1/rekey'))).toMatchObject({ isRunning: true, done: 1, left: 2 });
    goOn();
    expect(await ended(world)).toEqual({
      isRunning: false,
      by: 'local',
      count: 3,
      done: 2,
      left: 0,
      unreadable: 1,
      troubles: [TROUBLE],
    });
  });

  test('before the first there is nothing to tell, and nothing to stop', async () => {
    const { ask } = await standing();
    const nothing = { isRunning: false, count: 0, done: 0, left: 0, unreadable: 0, troubles: [] };
    expect(await json(ask('/v1/rekey'))).toEqual(nothing);
    expect(await json(ask('/v1/rekey', { method: 'DELETE' }))).toEqual(nothing);
  });

  test('a confirmation is for its filter, once, and for a while', async () => {
    const world = await standing();
    const { post, clock, goOn } = world;
    const filter = { topic: 'a' };
    const confirm = await count(world, { filter });
    expect(await refusal(post('/v1/rekey', { confirm }))).toEqual([
      409,
      'move.refused',
      'confirm.invalid',
    ]);
    goOn();
    expect((await post('/v1/rekey', { filter, confirm })).status).toBe(202);
    await ended(world);
    expect((await post('/v1/rekey', { filter, confirm })).status).toBe(409);
    const old = await count(world);
    await clock.advance('11m');
    expect((await post('/v1/rekey', { confirm: old })).status).toBe(409);
  });

  test('one runs at a time', async () => {
    const world = await standing();
    const confirms = [await count(world), await count(world, { filter: { topic: 'a' } })];
    expect((await world.post('/v1/rekey', { confirm: confirms[0] })).status).toBe(202);
    const second = world.post('/v1/rekey', { filter: { topic: 'a' }, confirm: confirms[1] });
    expect(await refusal(second)).toEqual([409, 'move.refused', 'rekey.running']);
  });
});

describe('an end before everything is done', () => {
  test('DELETE stops it, and says how far it came', async () => {
    const world = await standing();
    await world.post('/v1/rekey', { confirm: await count(world) });
    await world.begun;
    expect(await json(world.ask('/v1/rekey', { method: 'DELETE' }))).toMatchObject({
      isRunning: false,
      done: 1,
      error: { message: expect.stringContaining('run it again') as string },
    });
  });

  test('an error of the spool is told, any other only to the log', async () => {
    for (const [error, message] of [
      [new RespoolError('store.full', 'the disk is full'), 'the disk is full'],
      [new Error('canary'), 'it failed inside the service; its log says why'],
    ] as const) {
      const world = await standing();
      await world.post('/v1/rekey', { confirm: await count(world) });
      await world.begun;
      world.fail(error);
      expect(await ended(world)).toMatchObject({ done: 1, error: { message } });
      expect(world.logs.join().includes('canary')).toBe(error.message === 'canary');
    }
  });
});

describe('the operator over HTTP', () => {
  test('does it for real: the bodies are encrypted afterwards', async () => {
    const transforms = [encrypt({ keys: { k1: generateKey() } })];
    const { url, spool } = await setup({ spool: { transforms } });
    await spool.enqueue({ topic: 'a', body: 'x' });
    const far = connectOperator({ url, by: 'ann' });
    expect(await far.rekey({ dryRun: true })).toMatchObject({ count: 0 });
    expect(await far.rekey()).toMatchObject({ count: 0, done: 0 });
    const [{ envelope } = { envelope: undefined }] = await all(spool.list());
    expect(envelope?.body.encodings).toEqual(['aes-256-gcm;key=k1']);
    expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { action: 'rekey', by: 'ann' },
    ]);
  });

  test('counts once for the question and the answer, and tells how far it is', async () => {
    const world = await standing();
    const clock = new SimClock();
    const far = connectOperator({ url: world.url, clock });
    expect(await far.rekey({ dryRun: true })).toMatchObject({ count: 3, left: 3 });
    const heard: number[] = [];
    const first = Promise.withResolvers<void>();
    const result = far.rekey({
      onProgress: ({ done }) => {
        heard.push(done);
        if (done === 1) first.resolve();
      },
    });
    await world.begun;
    await clock.advance('500ms');
    await first.promise;
    world.goOn();
    await clock.advance('500ms');
    await expect
      .poll(async () => {
        await clock.advance('500ms');
        return Promise.race([result, Promise.resolve()]);
      })
      .toEqual({ count: 3, done: 2, left: 0, unreadable: 1, troubles: [TROUBLE] });
    expect(heard.at(-1)).toBe(2);
    expect(world.asked.filter(({ dryRun }) => dryRun)).toHaveLength(1);
  });

  test('its signal stops it in the service', async () => {
    const world = await standing();
    const far = connectOperator({ url: world.url, clock: new SimClock() });
    const stop = new AbortController();
    const result = far.rekey({ signal: stop.signal });
    await world.begun;
    stop.abort(new Error('enough'));
    await expect(result).rejects.toThrow('enough');
    expect(await ended(world)).toMatchObject({ isRunning: false, done: 1 });
  });

  test('an end in the service is its error here', async () => {
    const world = await standing();
    const clock = new SimClock();
    const far = connectOperator({ url: world.url, clock });
    const result = far.rekey();
    const seen = expect(result).rejects.toMatchObject({ code: 'store.full' });
    await world.begun;
    world.fail(new RespoolError('store.full', 'the disk is full'));
    await ended(world);
    await clock.advance('1s');
    await seen;
  });
});
