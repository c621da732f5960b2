/** What an envelope records of its body may be damaged: that message is held, all others go on. */
import { type BodyInfo, fixed, RespoolError } from 'respool';
import { memory } from 'respool/stores/memory';
import type { Transform } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { lock } from './sample-transforms.ts';
import { all, bytesOf, codeOf, DAY, setup, type World } from './setup.ts';

const OLD = [lock({ k1: 5 }, 'k1')];
const NEW = [lock({ k1: 5, k2: 6 }, 'k2')];
const SMALL = Buffer.from('small');
const LARGE = Buffer.alloc(40_000, 'large ');

/** Writes something else into the record of a body, past every check. */
async function spoil({ data }: World, id: string, change: object | null): Promise<void> {
  const store = memory({ shared: data });
  await store.open();
  const entry = await store.get(id);
  if (entry === undefined) throw new Error('gone');
  const { envelope, status, inlineBody } = entry;
  const to = { ...status, revision: status.revision + 1 };
  const body = (change === null ? null : { ...envelope.body, ...change }) as BodyInfo;
  await store.commit([
    {
      id,
      revision: status.revision,
      to,
      envelope: { ...envelope, body },
      ...(inlineBody === undefined ? {} : { inlineBody }),
    },
  ]);
}

/** A spool with a message `bad` whose record is damaged, between two others. */
async function damaged(
  change: object | null,
  body: Uint8Array,
  transforms: readonly Transform[] = OLD,
): Promise<World> {
  const world = await setup({ transforms, isStarted: false });
  for (const id of ['first', 'bad', 'last']) await world.spool.enqueue({ id, topic: 'a', body });
  await spoil(world, 'bad', change);
  await world.spool.stop();
  return world;
}

const records: Record<string, object> = {
  'no list of encodings': { encodings: null },
  'a text of encodings': { encodings: 'lock;key=k1' },
  'an encoding that is a number': { encodings: [7] },
  'an encoding that is an object': { encodings: [{}] },
  'a place that is none': { place: 'elsewhere' },
  'a size that is a text': { size: '5' },
  'no size': { size: null },
  'half a byte': { size: 0.5 },
  'less than no bytes': { size: -1 },
  'more bytes than can be counted': { size: 1e300 },
  'more bytes than there are': { size: 2 ** 40 },
  'no stored size': { storedSize: undefined },
  'a digest that is a number': { digest: 5 },
  'the place of another': { place: 'store', ref: '../../etc/passwd' },
  'a ref that is a number': { place: 'store', ref: 7 },
  'no ref': { place: 'store', ref: '' },
  'a ref that is too long': { place: 'store', ref: 'a'.repeat(129) },
};

describe.each([
  ['small', SMALL],
  ['large', LARGE],
])('of a %s body', (_size, body) => {
  describe.each(Object.entries(records))('%s', (_, change) => {
    test.each([{}, { maxBytes: Number.POSITIVE_INFINITY }])(
      'holds the message without cost, and no other, read with %o',
      async (limits) => {
        const before = await damaged(change, body);
        const policies = { default: fixed('1m', { attempts: 1 }) };
        const { spool, clock, status } = await setup({ with: before, transforms: OLD, policies });
        const got: string[] = [];
        spool.handle('a', async (delivery) => {
          await delivery.body(limits);
          got.push(delivery.id);
        });
        await clock.advance('1m');
        expect(got.sort()).toEqual(['first', 'last']);
        const because = { code: 'body.corrupt' };
        expect(await status('bad')).toMatchObject({ state: 'hold', attempts: 0, because });
      },
    );

    test('is told by check and by rekeying, which go on', async () => {
      const before = await damaged(change, body);
      const { spool } = await setup({ with: before, transforms: NEW, isStarted: false });
      expect(await spool.operator({ by: 'ops' }).check()).toMatchObject({
        entries: 3,
        findings: [{ kind: 'body.corrupt', id: 'bad' }],
      });
      expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({
        done: 2,
        left: 0,
        unreadable: 1,
        troubles: [{ id: 'bad', code: 'body.corrupt' }],
      });
    });
  });
});

test('a stored size that differs is found where bodies are stored as they are', async () => {
  for (const body of [SMALL, LARGE]) {
    const { spool } = await damaged({ storedSize: 3 }, body, []);
    await spool.start();
    const read = async (): Promise<Buffer> => bytesOf(await spool.body('bad'));
    expect(await codeOf(read())).toBe('body.corrupt');
    await spool.stop();
  }
});

test('a body that a damaged record names no more is nobody’s orphan', async () => {
  const world = await damaged({ ref: '../x' }, LARGE);
  const { spool, bodies, clock } = await setup({ with: world, transforms: OLD });
  await clock.advance(3 * DAY);
  expect((await all(bodies.refs(Number.MAX_SAFE_INTEGER))).length).toBe(3);
  expect((await spool.operator({ by: 'ops' }).check({ repair: true })).findings).toMatchObject([
    { kind: 'body.corrupt' },
  ]);
  expect((await all(bodies.refs(Number.MAX_SAFE_INTEGER))).length).toBe(3);
});

test('a body that is truly too large for memory is a failure of the handler', async () => {
  const { spool, clock, status } = await setup({ policies: { default: fixed('1m') } });
  spool.handle('a', async (delivery) => void (await delivery.body({ maxBytes: 10 })));
  const { id } = await spool.enqueue({ topic: 'a', body: LARGE });
  await clock.settle();
  expect(await status(id)).toMatchObject({
    attempts: 1,
    lastFailure: { code: 'limit.exceeded' },
  });
});

describe('what cannot be read for now', () => {
  const away: Transform = {
    ...(NEW[0] as Transform),
    reader: (encoding, context) => {
      if (context.id !== 'bad') return NEW[0]?.reader(encoding, context);
      throw new RespoolError('store.unavailable', 'the keys are away');
    },
  };

  test('is told by check, which goes on and repairs nothing', async () => {
    const before = await damaged({}, SMALL);
    const { spool } = await setup({ with: before, transforms: [away], isStarted: false });
    const { entries, findings } = await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(entries).toBe(3);
    expect(findings).toMatchObject([{ kind: 'store.unavailable', id: 'bad' }]);
    expect(findings[0]).not.toHaveProperty('repaired');
  });

  test('is left by rekeying, which tells it when all others are done', async () => {
    const before = await setup({ transforms: OLD, isStarted: false });
    // More than one page of a list, and the one in question on the first.
    const ids = Array.from({ length: 600 }, (_, at) => (at === 0 ? 'bad' : `m${at}`));
    await before.spool.enqueueMany(ids.map((id) => ({ id, topic: 'a', body: SMALL })));
    await before.spool.stop();
    const { spool } = await setup({ with: before, transforms: [away], isStarted: false });
    let left = Number.NaN;
    const work = spool
      .operator({ by: 'ops' })
      .rekey({ onProgress: (progress) => (left = progress.left) });
    expect(await codeOf(work)).toBe('store.unavailable');
    expect(left).toBe(1);
    const found = await all(spool.list());
    const done = found.filter(({ envelope }) => envelope.body.encodings.includes('lock;key=k2'));
    expect(done.length).toBe(599);
  });
});

test('an error of any kind over one message is a trouble of a rekeying, not its end', async () => {
  const before = await damaged({}, LARGE);
  const writes: Transform = {
    ...(NEW[0] as Transform),
    writer: (context) => {
      if (context.id === 'bad') throw new TypeError('a slip');
      return (NEW[0] as Required<Transform>).writer(context);
    },
  };
  const { spool } = await setup({ with: before, transforms: [writes], isStarted: false });
  expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({
    done: 2,
    troubles: [{ id: 'bad', code: 'error', text: 'a slip' }],
  });
});
