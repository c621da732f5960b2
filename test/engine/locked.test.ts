/** A body that cannot be read for want of a key or a transform holds its message and costs nothing. */
// Loaded before time is virtual: the spool loads its codecs when it meets the first strange body.
import 'respool/transforms';
import { fixed, type Handler, RespoolError } from 'respool';
import type { Transform } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { flip, lock } from '../spool/sample-transforms.ts';
import { bytesOf, setup, type World } from '../spool/setup.ts';

const SMALL = '{"a":1}';
const LARGE: string = JSON.stringify('a'.repeat(50_000));

/** A message that was written under one list of transforms, and is delivered under another. */
async function waiting(
  body: string,
  before: readonly Transform[],
  after: readonly Transform[],
): Promise<World & { readonly id: string }> {
  const writing = await setup({ transforms: before, isStarted: false });
  const { id } = await writing.spool.enqueue({ topic: 'a', body });
  await writing.spool.stop();
  const policies = { default: fixed('1m', { attempts: 1 }) };
  return { ...(await setup({ with: writing, transforms: after, policies })), id };
}

/** Fails as a codec does whose package was taken away. */
function withoutPackage(transform: Transform): Transform {
  const fail = (): never => {
    throw new RespoolError('peer.missing', 'the package "flip" is not installed');
  };
  return {
    ...transform,
    reader: (encoding, context) => {
      const reader = transform.reader(encoding, context);
      return reader && { decode: fail, decodeBytes: fail };
    },
  };
}

const wants: Record<string, readonly [Transform[], Transform[], string]> = {
  'whose key is missing': [[lock({ k1: 5 }, 'k1')], [lock({ k2: 6 }, 'k2')], 'key.unavailable'],
  'whose transform is missing': [[flip(1)], [], 'transform.missing'],
  'whose codec is missing its package': [[flip(1)], [withoutPackage(flip(1))], 'peer.missing'],
  'whose slow transform is missing its key': [
    [flip(1, { isSlow: true }), lock({ k1: 5 }, 'k1')],
    [flip(1, { isSlow: true }), lock({ k2: 6 }, 'k2')],
    'key.unavailable',
  ],
};

const readers: Record<string, Handler> = {
  'body()': async (delivery) => void (await delivery.body()),
  'text()': async (delivery) => void (await delivery.text()),
  'json()': async (delivery) => void (await delivery.json()),
  'stream()': async (delivery) => void (await bytesOf(delivery.stream())),
  'body(), swallowing what it throws': async (delivery) => {
    await delivery.body().catch(() => undefined);
  },
  'stream(), swallowing what it throws': async (delivery) => {
    await bytesOf(delivery.stream()).catch(() => undefined);
  },
  'json(), wrapping what it throws': async (delivery) => {
    await delivery.json().catch((cause: unknown) => {
      throw new Error('no luck', { cause });
    });
  },
  'text(), and then no end': async (delivery) => {
    await delivery.text().catch(() => undefined);
    await new Promise(() => undefined);
  },
};

describe.each(Object.entries(wants))('a body %s', (_, [before, after, code]) => {
  describe.each([
    ['small', SMALL],
    ['large', LARGE],
  ])('and %s', (_size, body) => {
    test.each(Object.entries(readers))('read by %s holds its message', async (_name, handler) => {
      const { spool, clock, status, id } = await waiting(body, before, after);
      let runs = 0;
      spool.handle('a', async (delivery) => {
        runs += 1;
        return handler(delivery);
      });
      await clock.advance('1h');
      expect(runs).toBe(1);
      expect(await status(id)).toMatchObject({ state: 'hold', attempts: 0, because: { code } });
    });
  });

  test('is told by check as what it is, and left alone by its repair', async () => {
    const { spool, status, id } = await waiting(SMALL, before, after);
    const { findings } = await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings).toMatchObject([{ kind: code, id }]);
    expect(findings[0]).not.toHaveProperty('repaired');
    expect(await status(id)).toMatchObject({ state: 'incoming' });
  });

  test('is delivered once what it takes is there and it is released', async () => {
    const { id, ...world } = await waiting(SMALL, before, after);
    world.spool.handle('a', async (delivery) => void (await delivery.json()));
    await world.clock.advance('1h');
    await world.spool.stop();
    const { spool, clock } = await setup({ with: world, transforms: [...before] });
    const seen: unknown[] = [];
    spool.handle('a', async (delivery) => void seen.push(delivery.attempt, await delivery.json()));
    await spool.operator({ by: 'ops' }).release([id]);
    await clock.advance('1m');
    expect(seen).toEqual([1, { a: 1 }]);
  });

  test('read by who is told of a bounce holds the notice, and costs none', async () => {
    const { spool, clock, status, id } = await waiting(SMALL, before, after);
    await spool.operator({ by: 'ops' }).bounce([id]);
    spool.onBounce('a', async (delivery) => {
      await delivery.body().catch(() => undefined);
    });
    await clock.advance('1h');
    expect(await status(id)).toMatchObject({
      state: 'hold',
      lane: 'notice',
      notices: 0,
      because: { code },
    });
  });
});

test('a key that cannot be fetched for a while makes its message wait at no cost', async () => {
  let isAway = true;
  const locked = lock({ k1: 5 }, 'k1');
  const fetching: Transform = {
    ...locked,
    reader: (encoding, context) => {
      if (isAway) throw new RespoolError('store.unavailable', 'the keys are away');
      return locked.reader(encoding, context);
    },
  };
  const { spool, clock, status } = await setup({
    transforms: [fetching],
    policies: { default: fixed('1m', { attempts: 1 }) },
    immediate: false,
    poll: '1s',
  });
  spool.handle('a', async (delivery) => void (await delivery.text()));
  const { id } = await spool.enqueue({ topic: 'a', body: SMALL, dedupeKey: 'k' });
  await clock.advance('5s');
  expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 0 });
  isAway = false;
  await clock.advance('11s');
  expect(await status(id)).toMatchObject({ ending: 'delivered' });
});
