/** Bodies that are damaged or gone hold their message; a handler never gets wrong bytes (R27, R67). */
import { fixed, type Handler, RespoolError } from 'respool';
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
  const policies = { default: fixed('1m', { attempts: 1, maxAge: '30s' }) };

  test.each(Object.entries(readers))(
    'that is away while %s reads makes the message wait, whatever its policy says',
    async (_name, handler) => {
      const { spool, clock, bodies, status } = await setup({ policies });
      const attempts: number[] = [];
      spool.handle('a', async (delivery) => {
        attempts.push(delivery.attempt);
        await handler(delivery);
      });
      bodies.faults.plan = (operation) => (operation === 'get' ? 'before' : 'ok');
      const { id } = await spool.enqueue({ topic: 'a', body: LARGE, dedupeKey: 'k' });
      await clock.advance('1m');
      const because = { code: 'store.unavailable', by: 'engine' };
      expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 0, because });
      expect((await status(id)).lastFailure).toBeUndefined();
      bodies.faults.plan = () => 'ok';
      await clock.advance('10s');
      expect((await status(id)).ending).toBe('delivered');
      expect(attempts).toEqual(Array.from({ length: 8 }, () => 1));
    },
  );

  test('that is away when a handler of notices reads costs no notice', async () => {
    const { spool, clock, bodies, status } = await setup({ policies });
    let runs = 0;
    spool.onBounce('a', async (delivery) => {
      runs += 1;
      await delivery.body().catch(() => undefined);
    });
    bodies.faults.plan = (operation) => (operation === 'get' ? 'before' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE, delay: '1h' });
    await spool.operator({ by: 'ops' }).bounce([id]);
    await clock.advance('1m');
    expect(runs).toBe(7);
    expect(await status(id)).toMatchObject({ state: 'bounce', lane: 'notice', notices: 0 });
  });

  test('that is away for the first of two reads only costs nothing at all', async () => {
    const { spool, clock, bodies, status } = await setup({ policies });
    spool.handle('a', async (delivery) => {
      await bytesOf(delivery.stream()).catch(() => undefined);
      await bytesOf(delivery.stream());
    });
    bodies.faults.plan = (operation, n) => (operation === 'get' && n === 1 ? 'before' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE, dedupeKey: 'k' });
    await clock.settle();
    expect((await status(id)).ending).toBe('delivered');
  });

  test('whose stream breaks at its end makes the message wait', async () => {
    const { spool, clock, bodies, status } = await setup({ policies });
    spool.handle('a', async (delivery) => void (await bytesOf(delivery.stream())));
    bodies.faults.plan = (operation, n) => (operation === 'get' && n === 1 ? 'after' : 'ok');
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE, dedupeKey: 'k' });
    await clock.settle();
    expect(await status(id)).toMatchObject({ state: 'deferred', attempts: 0 });
    await clock.advance('10s');
    expect((await status(id)).ending).toBe('delivered');
  });

  test('of the handler that is away is a failure of the handler', async () => {
    const { spool, clock, status } = await setup({ policies });
    spool.handle('a', async (delivery) => {
      await delivery.body();
      throw new RespoolError('store.unavailable', 'my own store is away');
    });
    const { id } = await spool.enqueue({ topic: 'a', body: LARGE });
    await clock.settle();
    expect(await status(id)).toMatchObject({ attempts: 1, state: 'bounce' });
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
