/** check: is the store consistent? Each kind of finding, found and repaired (R27, R28, R54, R67). */
import type { EntryStore } from 'respool';
import { memory } from 'respool/stores/memory';
import { beforeEach, describe, expect, test } from 'vitest';
import { bytesOf, DAY, MINUTE, rejection, setup, type World } from './setup.ts';

const LARGE = Buffer.alloc(50_000, 1);

describe('check', () => {
  let world: World;
  /** A store of its own on the same data, to do what no spool would. */
  let hand: EntryStore;
  beforeEach(async () => {
    world = await setup({ isStarted: false, caretaker: { orphanGrace: '1h' } });
    hand = memory({ shared: world.data });
    await hand.open();
  });

  async function put(body: unknown = LARGE): Promise<string> {
    return (await world.spool.enqueue({ topic: 'a', body })).id;
  }

  async function removeBody(id: string): Promise<void> {
    const ref = (await world.spool.get(id))?.envelope.body.ref ?? '';
    await world.bodies.remove([ref]);
  }

  test('finds nothing where all is well, and counts', async () => {
    await put();
    await put('small');
    await put('');
    expect(await world.spool.operator({ by: 'ops' }).check()).toEqual({
      entries: 3,
      bodies: 1,
      findings: [],
    });
  });

  test('finds a missing body, and holds its message when asked', async () => {
    const id = await put();
    await removeBody(id);
    const { findings } = await world.spool.operator({ by: 'ops' }).check();
    expect(findings).toMatchObject([{ kind: 'body.missing', id }]);
    expect(findings[0]?.repaired).toBeUndefined();
    expect((await world.status(id)).state).toBe('incoming');
    const repaired = await world.spool.operator({ by: 'ops' }).check({ repair: true });
    expect(repaired.findings).toMatchObject([
      { kind: 'body.missing', id, repaired: 'it was held' },
    ]);
    expect(await world.status(id)).toMatchObject({
      state: 'hold',
      because: { code: 'body.missing', by: 'check' },
    });
    expect(await world.spool.operator({ by: 'ops' }).audit()).toMatchObject([
      { action: 'check', ids: [id], details: { kind: 'body.missing', repaired: 'it was held' } },
    ]);
    // Tomorrow it is still known, and nothing is left to do.
    expect((await world.spool.operator({ by: 'ops' }).check()).findings).toMatchObject([
      { id, repaired: 'it is held' },
    ]);
  });

  test('finds a damaged body, stored or inline, and holds its message', async () => {
    const stored = await put();
    const inline = await put('hello');
    const ref = (await world.spool.get(stored))?.envelope.body.ref ?? '';
    await world.bodies.remove([ref]);
    await world.bodies.put(ref, one(Buffer.alloc(50_000, 2)));
    await damageInline(hand, inline);
    const { findings } = await world.spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings.map(({ kind, id }) => [kind, id])).toEqual([
      ['body.corrupt', stored],
      ['body.corrupt', inline],
    ]);
    expect((await world.status(inline)).because?.code).toBe('body.corrupt');
  });

  test('finds a body without entry, and removes it once its grace is over', async () => {
    world.store.faults.plan = (operation) => (operation === 'insert' ? 'before' : 'ok');
    await rejection(world.spool.enqueue({ topic: 'a', body: LARGE }));
    world.store.faults.plan = () => 'ok';
    const young = await world.spool.operator({ by: 'ops' }).check({ repair: true });
    expect(young.findings).toMatchObject([{ kind: 'body.orphan' }]);
    expect(young.findings[0]?.repaired).toBeUndefined();
    await world.clock.advance('2h');
    const old = await world.spool.operator({ by: 'ops' }).check({ repair: true });
    expect(old.findings).toMatchObject([{ kind: 'body.orphan', repaired: 'it was removed' }]);
    expect((await world.spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });

  test('finds what cannot be read as an entry, and leaves it and its body alone', async () => {
    const id = await put();
    const fine = await put();
    world.data.damage(id);
    await world.clock.advance('2h');
    const { findings } = await world.spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings).toMatchObject([{ kind: 'entry.corrupt', id }]);
    expect((await bytesOf(await world.spool.body(fine))).equals(LARGE)).toBe(true);
    let bodies = 0;
    for await (const _ of world.bodies.refs(Number.MAX_SAFE_INTEGER)) bodies += 1;
    expect(bodies).toBe(2);
  });

  test('finds a lease that never ends, and ends it', async () => {
    const id = await put();
    const { clock, spool, status } = world;
    await hand.claim({
      lane: 'delivery',
      states: ['incoming'],
      max: 1,
      now: clock.now(),
      leaseMs: 365 * DAY,
      holder: 'somebody/1',
    });
    const { findings } = await spool.operator({ by: 'ops' }).check();
    expect(findings).toMatchObject([{ kind: 'lease', id }]);
    await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(await status(id)).toMatchObject({ state: 'active', dueAt: clock.now() });
    expect((await spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });

  test('finds a holder where nobody can hold, and takes it away', async () => {
    const id = await put();
    const { spool, status } = world;
    const entry = await hand.get(id);
    if (entry === undefined) throw new Error('gone');
    const to = { ...entry.status, revision: 2, holder: 'somebody/1' };
    await hand.commit([{ id, revision: 1, to }]);
    expect((await spool.operator({ by: 'ops' }).check()).findings).toMatchObject([
      { kind: 'lease', id },
    ]);
    const { findings } = await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings[0]?.repaired).toBe('its holder was removed');
    expect(await status(id)).toMatchObject({ state: 'incoming', revision: 3 });
    expect((await spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });

  test('leaves alone what somebody works on', async () => {
    const id = await put();
    const { clock, spool, status } = world;
    await hand.claim({
      lane: 'delivery',
      states: ['incoming'],
      max: 1,
      now: clock.now(),
      leaseMs: MINUTE,
      holder: 'somebody/1',
    });
    await removeBody(id);
    const { findings } = await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings).toMatchObject([{ kind: 'body.missing', id }]);
    expect((await status(id)).state).toBe('active');
  });

  test('does not miss a body that was let go after the delivery', async () => {
    const { spool, clock } = world;
    spool.handle('a', () => undefined);
    await spool.start();
    await spool.enqueue({ topic: 'a', dedupeKey: 'k', body: LARGE });
    await clock.settle();
    expect(await spool.operator({ by: 'ops' }).check()).toEqual({
      entries: 1,
      bodies: 0,
      findings: [],
    });
  });

  test('does not miss a body that is let go between the list and the look', async () => {
    const hooks: { listed?: () => Promise<void> } = {};
    const extras = (store: EntryStore): Partial<EntryStore> => ({
      async list(options) {
        const page = await store.list(options);
        await hooks.listed?.();
        return page;
      },
    });
    const { spool, clock } = await setup({ extras });
    const operator = spool.operator({ by: 'ops' });
    spool.handle('a', () => undefined);
    await operator.pause('a');
    await spool.enqueue({ topic: 'a', id: 'own', body: LARGE });
    hooks.listed = async () => {
      await operator.resume('a');
      await clock.settle();
    };
    const report = await operator.check();
    expect((await spool.get('own'))?.status.ending).toBe('delivered');
    expect(report).toEqual({ entries: 1, bodies: 0, findings: [] });
  });
});

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Gives an entry other inline bytes than its digest says. */
async function damageInline(store: EntryStore, id: string): Promise<void> {
  const entry = await store.get(id);
  if (entry === undefined) throw new Error('gone');
  const { envelope, status } = entry;
  const to = { ...status, revision: status.revision + 1 };
  const inlineBody = Buffer.from('jello');
  await store.commit([{ id, revision: status.revision, to, envelope, inlineBody }]);
}
