/** Bodies that are damaged or gone hold their message; a handler never gets wrong bytes (R27, R67). */
import { fixed, type Handler } from 'respool';
import { memory } from 'respool/stores/memory';
import { describe, expect, test } from 'vitest';
import { bytesOf, failing, setup, type World } from '../spool/setup.ts';

const LARGE = Buffer.alloc(50_000, 'a');

/** Enqueues with the handler not there yet, so that the body can be damaged first. */
async function waiting(
  body: unknown,
  spoil: (world: World, id: string) => Promise<void>,
): Promise<World & { readonly id: string }> {
  const world = await setup({ policies: { default: fixed('1m') } });
  const { id } = await world.spool.enqueue({ topic: 'a', body });
  await spoil(world, id);
  return { ...world, id };
}

async function damageStored({ spool, bodies }: World, id: string): Promise<void> {
  const ref = (await spool.get(id))?.envelope.body.ref ?? '';
  await bodies.remove([ref]);
  await bodies.put(ref, parts(LARGE.subarray(1), Buffer.from('b')));
}

async function cutStored({ spool, bodies }: World, id: string): Promise<void> {
  const ref = (await spool.get(id))?.envelope.body.ref ?? '';
  await bodies.remove([ref]);
  await bodies.put(ref, parts(LARGE.subarray(1)));
}

async function removeStored({ spool, bodies }: World, id: string): Promise<void> {
  await bodies.remove([(await spool.get(id))?.envelope.body.ref ?? '']);
}

async function damageInline({ data }: World, id: string): Promise<void> {
  const store = memory({ shared: data });
  await store.open();
  const entry = await store.get(id);
  if (entry === undefined) throw new Error('gone');
  const { envelope, status } = entry;
  const to = { ...status, revision: status.revision + 1 };
  const inlineBody = Buffer.from('jello');
  await store.commit([{ id, revision: status.revision, to, envelope, inlineBody }]);
}

async function* parts(...all: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* all;
}

const readers: Record<string, Handler> = {
  'body()': async (delivery) => void (await delivery.body()),
  'text()': async (delivery) => void (await delivery.text()),
  'stream()': async (delivery) => void (await bytesOf(delivery.stream())),
  'body(), swallowing what it throws': async (delivery) => {
    await delivery.body().catch(() => undefined);
  },
  'stream(), swallowing what it throws': async (delivery) => {
    await bytesOf(delivery.stream()).catch(() => undefined);
  },
};

const damages = {
  'a damaged stored body': { body: LARGE, spoil: damageStored, code: 'body.corrupt' },
  'a stored body that was cut': { body: LARGE, spoil: cutStored, code: 'body.corrupt' },
  'a missing stored body': { body: LARGE, spoil: removeStored, code: 'body.missing' },
  'a damaged inline body': { body: 'hello', spoil: damageInline, code: 'body.corrupt' },
} as const;

describe.each(Object.entries(damages))('%s', (_, { body, spoil, code }) => {
  test.each(Object.entries(readers))('read by %s is held, not retried', async (_name, handler) => {
    const { spool, clock, status, id } = await waiting(body, spoil);
    spool.handle('a', handler);
    await clock.advance('1h');
    expect(await status(id)).toMatchObject({ state: 'hold', attempts: 0, because: { code } });
  });

  test('is refused to the reader from outside too', async () => {
    const { spool, id } = await waiting(body, spoil);
    const read = async (): Promise<Buffer> => bytesOf(await spool.body(id));
    await expect(read()).rejects.toMatchObject({ code });
  });
});

test('a stored body that grew is cut off where the accepted one ended', async () => {
  const { spool, clock, status, id } = await waiting(LARGE, async ({ spool, bodies }, one) => {
    const ref = (await spool.get(one))?.envelope.body.ref ?? '';
    await bodies.remove([ref]);
    await bodies.put(ref, parts(LARGE, Buffer.from('and more'), Buffer.from('and more')));
  });
  let size = 0;
  spool.handle('a', async (delivery) => {
    for await (const part of delivery.stream()) size += part.byteLength;
  });
  await clock.settle();
  expect(size).toBe(LARGE.byteLength);
  expect((await status(id)).because?.code).toBe('body.corrupt');
});

describe('a body store', () => {
  test('that is away for a while is a failed attempt, not a damaged body', async () => {
    const { spool, clock, bodies, status } = await setup({ policies: { default: fixed('1m') } });
    let isRead = false;
    spool.handle('a', async (delivery) => {
      await delivery.body();
      isRead = true;
    });
    bodies.faults.plan = (operation, n) => (operation === 'get' && n === 1 ? 'before' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE, dedupeKey: 'k' });
    await clock.settle();
    expect(await status(id)).toMatchObject({
      state: 'deferred',
      lastFailure: { code: 'store.unavailable' },
    });
    await clock.advance('1m');
    expect(isRead).toBe(true);
  });

  test('whose stream breaks at its end fails the attempt that read it', async () => {
    const { spool, clock, bodies, status } = await setup({ policies: { default: fixed('1m') } });
    spool.handle('a', async (delivery) => void (await bytesOf(delivery.stream())));
    bodies.faults.plan = (operation, n) => (operation === 'get' && n === 1 ? 'after' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE, dedupeKey: 'k' });
    await clock.settle();
    expect((await status(id)).state).toBe('deferred');
    await clock.advance('1m');
    expect((await status(id)).ending).toBe('delivered');
  });
});

describe('an entry that cannot be read', () => {
  test('is neither delivered nor lost: it is listed, and the others go on', async () => {
    const { spool, clock, data } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.enqueue({ topic: 'a' });
    data.damage(id);
    const { handler, attempts } = failing(0);
    spool.handle('a', handler);
    await clock.advance('10m');
    expect(attempts).toEqual([1]);
    expect((await spool.page()).corrupt).toMatchObject([{ id }]);
  });
});
