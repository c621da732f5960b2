/** Rekeying: every body comes to the encryption of today, and no step of it can lose one. */
import { RespoolError } from 'respool';
import { memory } from 'respool/stores/memory';
import { seededDice } from 'respool/testkit';
import type { Transform } from 'respool/transforms';
import { describe, expect, test } from 'vitest';
import { flip, lock, readsOnly } from './sample-transforms.ts';
import {
  all,
  bytesOf,
  codeOf,
  DAY,
  HOUR,
  makeGate,
  setup,
  type World,
  type WorldOptions,
} from './setup.ts';

const OLD = [lock({ k1: 5 }, 'k1')];
const NEW = [lock({ k1: 5, k2: 6 }, 'k2')];
const small = (at: number): Buffer => Buffer.from(`small ${at}`);
const large = (at: number): Buffer => Buffer.alloc(40_000, `large ${at} `);

/** A spool with bodies of before, small and large, and the next one on the same data. */
async function changed(
  before: readonly Transform[],
  after: readonly Transform[],
  more: WorldOptions = {},
): Promise<World & { readonly bodiesOf: Map<string, Buffer> }> {
  const old = await setup({ transforms: before, isStarted: false });
  const bodiesOf = new Map<string, Buffer>();
  for (const [at, body] of [small(1), large(2), Buffer.alloc(0), large(4)].entries()) {
    const { id } = await old.spool.enqueue({ topic: `t${at}`, body, headers: { at: String(at) } });
    bodiesOf.set(id, body);
  }
  await old.spool.stop();
  const world = await setup({ with: old, transforms: after, isStarted: false, ...more });
  return { ...world, bodiesOf };
}

async function encodingsOf({ spool }: World): Promise<string[]> {
  const found = await all(spool.list());
  return [...new Set(found.map(({ envelope }) => envelope.body.encodings.join(' ')))];
}

async function expectReadable(
  { spool }: World,
  bodiesOf: ReadonlyMap<string, Buffer>,
): Promise<void> {
  for (const [id, body] of bodiesOf) {
    expect((await bytesOf(await spool.body(id))).equals(body)).toBe(true);
  }
}

describe('rekeying', () => {
  test.each<[string, readonly Transform[], readonly Transform[], string]>([
    ['from one key to another', OLD, NEW, 'lock;key=k2'],
    ['from no encryption to one', [], NEW, 'lock;key=k2'],
    ['from plainly transformed to encrypted', [flip(1)], [flip(1), ...NEW], 'flip-1 lock;key=k2'],
    ['back to no encryption', OLD, [readsOnly(lock({ k1: 5 }, 'k1'))], ''],
  ])('%s brings every body there, inline or not', async (_, before, after, encodings) => {
    const world = await changed(before, after);
    const headers = (await all(world.spool.list())).map(({ envelope }) => envelope.headers);
    const report = await world.spool.operator({ by: 'ops' }).rekey();
    expect(report).toEqual({ count: 4, done: 4, left: 0, unreadable: 0, troubles: [] });
    expect(await encodingsOf(world)).toEqual([encodings]);
    await expectReadable(world, world.bodiesOf);
    expect((await all(world.spool.list())).map(({ envelope }) => envelope.headers)).toEqual(
      headers,
    );
    // The bodies of before are gone, and only they.
    expect(await all(world.bodies.refs(Number.MAX_SAFE_INTEGER))).toHaveLength(2);
    expect((await world.spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
  });

  test('as a dry run only counts, and leaves nothing on record', async () => {
    const world = await changed(OLD, NEW);
    const report = await world.spool.operator({ by: 'ops' }).rekey({ dryRun: true });
    expect(report).toEqual({ count: 4, done: 0, left: 4, unreadable: 0, troubles: [] });
    expect(await encodingsOf(world)).toEqual(['lock;key=k1']);
    expect(await world.spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('again finds nothing to do', async () => {
    const world = await changed(OLD, NEW);
    await world.spool.operator({ by: 'ops' }).rekey();
    const revisions = (await all(world.spool.list())).map(({ status }) => status.revision);
    expect(await world.spool.operator({ by: 'ops' }).rekey()).toMatchObject({
      count: 0,
      done: 0,
      left: 0,
    });
    expect((await all(world.spool.list())).map(({ status }) => status.revision)).toEqual(revisions);
  });

  test('leaves everything but the body as it was, in every state', async () => {
    const world = await changed(OLD, NEW, { retention: { removed: '7d' } });
    const [one = '', two = '', three = ''] = world.bodiesOf.keys();
    await world.spool.operator({ by: 'ops' }).hold([one]);
    await world.spool.operator({ by: 'ops' }).bounce([two]);
    await world.spool.operator({ by: 'ops' }).remove([three]);
    const statuses = async () =>
      (await all(world.spool.list())).map(
        ({ status: { revision: _revision, updatedAt: _updatedAt, ...rest } }) => rest,
      );
    const before = await statuses();
    await world.spool.operator({ by: 'ops' }).rekey();
    expect(await statuses()).toEqual(before);
    expect(await encodingsOf(world)).toEqual(['lock;key=k2']);
  });

  test('is on record with its count before the first message is touched', async () => {
    const world = await changed(OLD, NEW);
    const order: string[] = [];
    world.store.faults.plan = (operation) => {
      if (operation === 'records.append' || operation === 'commit') order.push(operation);
      return 'ok';
    };
    await world.spool.operator({ by: 'ann' }).rekey({ filter: { topic: 't1' } });
    expect(order[0]).toBe('records.append');
    expect(await world.spool.operator({ by: 'ops' }).audit()).toMatchObject([
      {
        by: 'ann',
        action: 'rekey',
        details: { count: 1, to: 'lock;key=k2', filter: { topic: 't1' } },
      },
    ]);
    expect((await encodingsOf(world)).toSorted()).toEqual(['lock;key=k1', 'lock;key=k2']);
  });

  test('tells how far it is after every message', async () => {
    const world = await changed(OLD, NEW);
    const told: number[][] = [];
    await world.spool.operator({ by: 'ops' }).rekey({
      onProgress: ({ count, done, left }) => told.push([count, done, left]),
    });
    expect(told).toHaveLength(5);
    expect([told[0], told[1], told[4]]).toEqual([
      [4, 0, 4],
      [4, 1, 3],
      [4, 4, 0],
    ]);
  });

  test('stops when it is told to, and goes on where it was when it is run again', async () => {
    const world = await changed(OLD, NEW);
    const stop = new AbortController();
    const work = world.spool.operator({ by: 'ops' }).rekey({
      signal: stop.signal,
      onProgress: ({ done }) => {
        if (done === 0) stop.abort(new Error('enough'));
      },
    });
    await expect(work).rejects.toThrow('enough');
    await expectReadable(world, world.bodiesOf);
    await world.spool.operator({ by: 'ops' }).rekey();
    expect(await encodingsOf(world)).toEqual(['lock;key=k2']);
  });

  test('ends with the spool that stops, and nothing is lost', async () => {
    const world = await changed(OLD, NEW);
    let stopped: Promise<void> | undefined;
    const work = world.spool.operator({ by: 'ops' }).rekey({
      onProgress: () => {
        stopped ??= world.spool.stop();
      },
    });
    expect(await codeOf(work)).toBe('engine.stopping');
    await stopped;
    await expectReadable(world, world.bodiesOf);
  });

  test('does not know options that do not exist', async () => {
    const world = await changed([], []);
    expect(await codeOf(world.spool.operator({ by: 'ops' }).rekey({ key: 'k2' } as never))).toBe(
      'config.invalid',
    );
  });

  test('lists what cannot be read, and does not touch it', async () => {
    const world = await changed(OLD, [lock({ k2: 6 }, 'k2')]);
    const before = await all(world.spool.list());
    const report = await world.spool.operator({ by: 'ops' }).rekey();
    expect(report).toMatchObject({ count: 4, done: 0, left: 0, unreadable: 4 });
    expect(report.troubles.map(({ code }) => code)).toEqual(Array(4).fill('key.unavailable'));
    expect(await all(world.spool.list())).toEqual(before);
  });

  test('lists entries that cannot be read, and does not touch them', async () => {
    const world = await changed(OLD, NEW);
    const [one = ''] = world.bodiesOf.keys();
    world.data.damage(one);
    const report = await world.spool.operator({ by: 'ops' }).rekey();
    expect(report).toMatchObject({
      count: 4,
      done: 3,
      left: 0,
      unreadable: 1,
      troubles: [{ id: one, code: 'store.corrupt' }],
    });
    // Whether it would fit a filter, nobody knows.
    expect(
      await world.spool.operator({ by: 'ops' }).rekey({ filter: { topic: 't0' } }),
    ).toMatchObject({ unreadable: 0 });
  });

  test('only counts when it is asked to, and leaves no trace', async () => {
    const world = await changed(OLD, NEW);
    expect(await world.spool.operator({ by: 'ops' }).rekey({ dryRun: true })).toMatchObject({
      count: 4,
      done: 0,
      left: 4,
    });
    expect(await encodingsOf(world)).toEqual(['lock;key=k1']);
    expect(await world.spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('does not hide a damaged body behind a new digest', async () => {
    const world = await changed(OLD, NEW);
    const [, id = ''] = world.bodiesOf.keys();
    const ref = (await world.spool.get(id))?.envelope.body.ref ?? '';
    await world.bodies.remove([ref]);
    await world.bodies.put(
      ref,
      (async function* () {
        yield large(3);
      })(),
    );
    const report = await world.spool.operator({ by: 'ops' }).rekey();
    expect(report).toMatchObject({
      done: 3,
      unreadable: 1,
      troubles: [{ id, code: 'body.corrupt' }],
    });
    expect((await world.spool.get(id))?.envelope.body.ref).toBe(ref);
  });

  test('takes a body that is larger than what is accepted now', async () => {
    const world = await changed(OLD, NEW, { limits: { bodyBytes: 10 } });
    expect(await world.spool.operator({ by: 'ops' }).rekey()).toMatchObject({
      done: 4,
      unreadable: 0,
    });
  });

  test('seals entries of an older key anew, also where there is no body to change', async () => {
    const isOld = new WeakSet<object>();
    const sealedOld = new Set<string>();
    const extras: WorldOptions['extras'] = (store) => ({
      list: async (query) => {
        const page = await store.list(query);
        for (const entry of page.entries) if (sealedOld.has(entry.envelope.id)) isOld.add(entry);
        return page;
      },
      get: async (id) => {
        const entry = await store.get(id);
        if (entry !== undefined && sealedOld.has(id)) isOld.add(entry);
        return entry;
      },
      commit: async (changes, how) => {
        for (const { id, envelope } of changes) if (envelope !== undefined) sealedOld.delete(id);
        return store.commit(changes, how);
      },
    });
    const old = await setup({ isStarted: false });
    const { id } = await old.spool.enqueue({ topic: 'a', body: 'as it was' });
    sealedOld.add(id);
    const plain = memory({ shared: old.data });
    const entries = { ...plain, ...extras(plain), isSealOld: (entry: object) => isOld.has(entry) };
    const { spool } = await setup({ with: old, isStarted: false, entries });
    expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({ count: 1, done: 1 });
    expect(sealedOld.size).toBe(0);
    expect((await bytesOf(await spool.body(id))).toString()).toBe('as it was');
    expect(await spool.operator({ by: 'ops' }).rekey()).toMatchObject({ count: 0 });
  });
});

describe('rekeying while messages are delivered', () => {
  test('leaves what is active alone, and comes back to it', async () => {
    const world = await changed(OLD, NEW, { isStarted: true });
    const gate = makeGate();
    const [one = ''] = world.bodiesOf.keys();
    world.spool.handle('t0', async (delivery) => {
      await gate.handler(delivery);
      throw new Error('not yet');
    });
    await world.clock.settle();
    const work = world.spool.operator({ by: 'ops' }).rekey();
    await world.clock.advance('1s');
    expect((await world.spool.get(one))?.envelope.body.encodings).toEqual(['lock;key=k1']);
    gate.open();
    await world.clock.advance('2s');
    expect(await work).toMatchObject({ count: 4, done: 4, left: 0 });
    expect((await world.spool.get(one))?.envelope.body.encodings).toEqual(['lock;key=k2']);
  });

  test('says how many are left when they stay active', async () => {
    const world = await changed(OLD, NEW, { isStarted: true });
    const gate = makeGate();
    world.spool.handle('t0', gate.handler);
    await world.clock.settle();
    const work = world.spool.operator({ by: 'ops' }).rekey();
    await world.clock.advance('20s');
    expect(await work).toMatchObject({ count: 4, done: 3, left: 1 });
    gate.open();
    await world.clock.settle();
  });

  test('gives way to a claim that comes between its look and its write', async () => {
    const world = await changed(OLD, NEW, { isStarted: true });
    const [, two = ''] = world.bodiesOf.keys();
    const seen: boolean[] = [];
    let isClaimed = false;
    world.store.faults.plan = (operation, n) => {
      // Before its first commit somebody else takes the message.
      if (operation !== 'commit' || n !== 1 || isClaimed) return 'ok';
      isClaimed = true;
      world.spool.handle('t1', async (delivery) => {
        seen.push(Buffer.from(await delivery.body()).equals(large(2)));
      });
      return { delayMs: 10 };
    };
    const work = world.spool.operator({ by: 'ops' }).rekey({ filter: { ids: [two] } });
    await world.clock.advance('10s');
    expect(await work).toMatchObject({ done: 0, left: 0 });
    expect(seen).toEqual([true]);
    // Neither the body of before nor the one that was made for nothing is left.
    expect(await all(world.bodies.refs(Number.MAX_SAFE_INTEGER))).toHaveLength(1);
  });
});

describe('a crash in the middle of rekeying', () => {
  /** Every call that changes something, in both stores. */
  const WRITES = new Set(['put', 'remove', 'commit', 'flush', 'records.append']);

  async function crashing(at: number, when: 'before' | 'after'): Promise<'crashed' | 'done'> {
    const world = await changed(OLD, NEW);
    let writes = 0;
    let isDead = false;
    const plan = (operation: string): 'ok' | 'before' | 'after' => {
      if (isDead) return 'before';
      if (!WRITES.has(operation)) return 'ok';
      writes += 1;
      if (writes !== at) return 'ok';
      isDead = true;
      return when;
    };
    world.store.faults.plan = plan;
    world.bodies.faults.plan = plan;
    const failure = await world.spool
      .operator({ by: 'ops' })
      .rekey()
      .catch((error: unknown) => error);
    // What comes after the last write that anybody waits for: the remover of bodies.
    await world.clock.settle();
    const hasCrashed = isDead;
    const dice = seededDice(3);
    const next = await setup({ with: world, transforms: NEW, isStarted: false, dice });
    await expectReadable(next, world.bodiesOf);
    expect(await next.spool.operator({ by: 'ops' }).rekey()).toMatchObject({
      left: 0,
      unreadable: 0,
    });
    await expectReadable(next, world.bodiesOf);
    expect(await encodingsOf(next)).toEqual(['lock;key=k2']);
    // What was left over is found by the caretaker, and nothing else is.
    await world.clock.advance(DAY + HOUR);
    await next.spool.operator({ by: 'ops' }).cleanUp();
    await world.clock.advance(HOUR);
    await next.spool.operator({ by: 'ops' }).cleanUp();
    expect(await all(next.bodies.refs(Number.MAX_SAFE_INTEGER))).toHaveLength(2);
    await expectReadable(next, world.bodiesOf);
    if (hasCrashed && failure instanceof Error) expect(failure).toBeInstanceOf(RespoolError);
    return hasCrashed ? 'crashed' : 'done';
  }

  test.each(['before', 'after'] as const)('%s any of its writes loses no body', async (when) => {
    let at = 1;
    while ((await crashing(at, when)) === 'crashed') at += 1;
    // Four commits, two bodies put and removed, a line of audit, and the flush before the removal.
    expect(at).toBeGreaterThan(9);
  });
});
