/** Operator moves on messages that have ended, through a spool on real stores. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type BodyStore,
  createSpool,
  type EntryStore,
  PermanentError,
  type Spool,
  type Status,
} from 'respool';
import { createMemoryData, memory, memoryBodies } from 'respool/stores/memory';
import { sqlite } from 'respool/stores/sqlite';
import { SimClock } from 'respool/testkit';
import { afterEach, describe, expect, test } from 'vitest';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

async function entriesOf(store: 'memory' | 'sqlite'): Promise<EntryStore> {
  if (store === 'memory') return memory();
  const path = await mkdtemp(join(tmpdir(), 'respool-endings-'));
  ends.push(() => rm(path, { recursive: true, force: true }));
  return sqlite({ path });
}

interface Place {
  readonly spool: Spool;
  readonly bodies: BodyStore;
  readonly clock: SimClock;
  readonly status: (id: string) => Promise<Status>;
  /** Topics of bounces that were announced. */
  readonly notices: string[];
}

/** A spool whose messages of `fine` are delivered, of `bad` bounced. */
async function place(store: 'memory' | 'sqlite', isKept: boolean): Promise<Place> {
  const clock = new SimClock();
  const bodies = memoryBodies({ shared: createMemoryData(), clock });
  const spool = createSpool({
    entries: await entriesOf(store),
    bodies,
    clock,
    retention: {
      delivered: isKept ? { archive: '7d' } : 'remove',
      bounced: { archive: '7d' },
    },
  });
  ends.push(() => spool.stop());
  const notices: string[] = [];
  spool.handle('fine', () => undefined);
  spool.handle('bad', () => {
    throw new PermanentError('x', 'final');
  });
  spool.onBounce('#', ({ topic }) => void notices.push(topic));
  await spool.start();
  const status = async (id: string): Promise<Status> => {
    const entry = await spool.get(id);
    if (entry === undefined) throw new Error(`message "${id}" is gone`);
    return entry.status;
  };
  return { spool, bodies, clock, status, notices };
}

/** Puts a message down and waits until it has ended. */
async function ended({ spool, clock }: Place, id: string, topic = 'fine'): Promise<void> {
  const archived = new Promise<void>((resolve) => {
    const stop = spool.on('archived', (event) => {
      if (event.id !== id) return;
      stop();
      resolve();
    });
  });
  await spool.enqueue({ topic, id, body: 'x', orderKey: 'k' });
  await clock.settle();
  await archived;
}

describe.each(['memory', 'sqlite'] as const)('on %s', (store) => {
  test.each([true, false])('a delivered message stays so; its body is kept: %s', async (isKept) => {
    const here = await place(store, isKept);
    const { spool, clock, status, notices } = here;
    await ended(here, 'm-1');
    const control = spool.operator({ by: 'ann' });
    const refusals = [
      ...(await spool.operator({ by: 'ops' }).hold(['m-1'])),
      ...(await control.hold(['m-1'])),
      ...(await spool.operator({ by: 'ops' }).bounce(['m-1'])),
      ...(await spool.operator({ by: 'ops' }).release(['m-1'])),
      ...(await spool.operator({ by: 'ops' }).remove(['m-1'])),
    ];
    expect(refusals.map(({ result }) => result)).toEqual(Array(5).fill('refused'));
    expect(refusals[0]?.why).toMatch(/^cannot hold message "m-1": it was delivered/);
    expect(refusals[1]).toEqual(refusals[0]);
    const move = spool.operator({ by: 'ops' }).move('m-1', { from: 'archived', to: 'hold' });
    await expect(move).rejects.toMatchObject({ code: 'move.refused', message: refusals[0]?.why });
    const bulk = await control.prepare({ kind: 'hold' }, { ids: ['m-1'] });
    for await (const progress of bulk.run()) expect(progress).toMatchObject({ refused: 1 });
    expect(await status('m-1')).toMatchObject({ state: 'archived', ending: 'delivered' });
    // Its order key is free for the next one.
    await ended(here, 'm-2');
    await clock.settle();
    expect(notices).toEqual([]);
  });

  test('what an operator did to a message that was not delivered can be taken back', async () => {
    const here = await place(store, true);
    const { spool, status } = here;
    await ended(here, 'm-1', 'bad');
    expect(here.notices).toEqual(['bad']);
    await spool.operator({ by: 'ops' }).pause('#');
    expect(await spool.operator({ by: 'ops' }).hold(['m-1'])).toMatchObject([{ result: 'done' }]);
    expect(await spool.operator({ by: 'ops' }).release(['m-1'])).toMatchObject([
      { result: 'done' },
    ]);
    expect(await status('m-1')).toMatchObject({ state: 'bounce', ending: 'bounced' });
    expect(await spool.operator({ by: 'ops' }).remove(['m-1'])).toMatchObject([{ result: 'done' }]);
    expect(await spool.operator({ by: 'ops' }).hold(['m-1'])).toMatchObject([{ result: 'done' }]);
    expect(await spool.operator({ by: 'ops' }).release(['m-1'])).toMatchObject([
      { result: 'done' },
    ]);
    // A bounce among the bounces again, not a removed one.
    expect(await status('m-1')).toMatchObject({ state: 'bounce', ending: 'bounced' });
    expect(await spool.operator({ by: 'ops' }).retry(['m-1'])).toMatchObject([{ result: 'done' }]);
    expect(await status('m-1')).toMatchObject({ state: 'incoming', replays: 1 });
  });

  test('a check does not hold a delivered message whose body is gone', async () => {
    const here = await place(store, true);
    const { spool, bodies, status } = here;
    const archived = new Promise((resolve) => spool.on('archived', resolve));
    await spool.enqueue({ topic: 'fine', id: 'large', body: Buffer.alloc(200_000) });
    await here.clock.settle();
    await archived;
    await bodies.remove([(await spool.get('large'))?.envelope.body.ref ?? '']);
    const repaired = 'it was delivered before; its body is recorded as not kept';
    const { findings } = await spool.operator({ by: 'ops' }).check({ repair: true });
    expect(findings).toMatchObject([{ kind: 'body.missing', id: 'large', repaired }]);
    expect(await status('large')).toMatchObject({ state: 'archived', ending: 'delivered' });
    expect((await spool.operator({ by: 'ops' }).check()).findings).toEqual([]);
    const [answer] = await spool.operator({ by: 'ops' }).retry(['large']);
    expect(answer?.why).toContain('enqueue it again');
  });
});
