/**
 * What a resumed replay of a queue makes of letters that look like those it has sent: originals
 * whose acks were lost with a connection, and letters that consumers gave up again without our mark.
 */
import { expect, test } from 'vitest';
import { RespoolError } from 'respool';
import { cancelReplay, type ReplayOptions } from 'respool/dead-letters';
import { everywhere, named, setup, type Setup } from './setup.ts';

const SLOW = { canary: 0, rate: 10, window: 1 } as const;
const COUNT = 20;

interface Begun extends Setup {
  readonly id: string;
}

/** A replay that was paused with about half of its letters sent. */
async function paused(options: ReplayOptions = {}): Promise<Begun> {
  const world = await setup(COUNT);
  const { id } = await world.plan({ ...SLOW, ...options });
  const stop = new AbortController();
  world.clock.after(1_000, () => stop.abort());
  const { state, counts } = await world.run(id, { signal: stop.signal });
  expect([state, counts.sent > 3, counts.sent < COUNT]).toEqual(['paused', true, true]);
  return { ...world, id };
}

/** The same, and the connection was lost with the last three acks; the broker has not noticed. */
async function broken(options: ReplayOptions = {}): Promise<Begun & { readonly lost: string[] }> {
  const world = await setup(COUNT);
  const { id } = await world.plan({ ...SLOW, ...options });
  const stop = new AbortController();
  world.clock.after(1_000, () => stop.abort());
  world.place.lostAcks = 3;
  await world.run(id, { signal: stop.signal });
  const lost = world.place.unnoticed.map(({ letter }) => letter.id);
  expect(lost).toEqual(world.place.sent.slice(-3).map((one) => one.id));
  return { ...world, id, lost };
}

/** As a consumer that publishes what failed into the dead queue, without our headers. */
function giveUp({ place }: Setup, ids: readonly string[]): void {
  place.put(ids.map((id) => ({ id })));
}

/** Somebody looks through the place. */
async function lookAt({ place }: Setup): Promise<void> {
  for await (const _ of place.door().look()) expect(place.items).not.toEqual([]);
}

const lying = ({ place }: Setup) => place.items.map(({ letter }) => letter.id);
const sentTimes = ({ place }: Setup, id: string) =>
  place.sent.filter((one) => one.id === id).length;

test('where every ack is confirmed nothing is removed, whatever looks like what was sent', async () => {
  const world = await paused();
  const { place, clock, resume, id } = world;
  const early = named(3);
  giveUp(world, early);
  await lookAt(world);
  // Others while it waits at its end.
  const late = named(COUNT).slice(-3);
  clock.after(6_000, () => giveUp(world, late));
  expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: COUNT } });
  expect([place.removed, lying(world)]).toEqual([[], [...early, ...late]]);
});

test('what was sent and lost its ack goes, with a copy; what was given up since stays', async () => {
  const world = await broken();
  const { place, resume, id, kept, lost } = world;
  place.noticeLoss();
  const again = [...lost, ...named(2)];
  giveUp(world, again);
  const done = await resume(id);
  expect(done).toMatchObject({
    state: 'done',
    counts: { sent: COUNT, again: 0 },
    because:
      '3 letters that were sent were in queue "dead" again, since their acks were lost: they ' +
      'were removed, and copies are archived',
  });
  expect(place.removed.map(({ letter }) => letter.id)).toEqual(lost);
  expect(kept.map((copy) => [copy.id, copy.reason])).toEqual(
    lost.map((one) => [one, `sent by replay ${id}, and its ack was lost`]),
  );
  expect(lying(world)).toEqual(again);
  for (const one of named(COUNT)) expect(sentTimes(world, one)).toBe(1);
});

test('of letters alike that were looked at since, no more go than were sent, the oldest first', async () => {
  const world = await broken();
  const { place, resume, id, lost, kept } = world;
  place.noticeLoss();
  giveUp(world, lost);
  await lookAt(world);
  expect((await resume(id)).state).toBe('done');
  expect([place.removed.length, kept.length, lying(world)]).toEqual([3, 3, lost]);
});

test('without a copy in the archive none is removed, and the replay says so', async () => {
  const world = await broken();
  const { place, resume, id, process, lost } = world;
  place.noticeLoss();
  const as = process();
  const keep = () => Promise.reject(new Error('the store is full'));
  const stopped = await resume(id, { as: { ...as, operator: { ...as.operator, keep } } });
  expect(stopped).toMatchObject({
    state: 'stopped',
    counts: { sent: COUNT },
    because: expect.stringMatching(
      /^\d+ letters were sent without a confirmed ack: some may be in queue "dead" still: the store is full$/,
    ),
  });
  expect([place.removed, lying(world)]).toEqual([[], lost]);
  expect((await resume(id)).state).toBe('done');
  expect(lying(world)).toEqual([]);
});

test('what was removed and is back, since that ack was lost as well, goes with the next run', async () => {
  const world = await broken();
  const { place, resume, id, lost } = world;
  place.noticeLoss();
  place.lostAcks = 2;
  expect((await resume(id)).state).toBe('stopped');
  place.noticeLoss();
  expect(lying(world)).toEqual(lost.slice(1));
  expect((await resume(id)).state).toBe('done');
  expect(lying(world)).toEqual([]);
});

test('a run that is interrupted says so first, and then what it removed', async () => {
  const { place, resume, id } = await broken();
  place.noticeLoss();
  const { state, because } = await resume(id, { signal: AbortSignal.abort() });
  expect([state, because]).toEqual([
    'paused',
    expect.stringMatching(
      /^it was interrupted; 3 letters that were sent were in queue "dead" again/,
    ),
  ]);
});

test('acks that are lost while the next letter is awaited are not taken for confirmed', async () => {
  const world = await setup(COUNT);
  const { place, clock, process, run, resume } = world;
  const { id } = await world.plan({ canary: 0, rate: 5, window: 5 });
  const as = process();
  const take = as.letters.take.bind(as.letters);
  as.letters.take = async function* stalls(options) {
    let given = 0;
    const over = new Promise((resolve) => options.signal?.addEventListener('abort', resolve));
    for await (const taken of take(options)) {
      given += 1;
      yield taken;
      // One more than a batch: the run sends it alone, and awaits the next one meanwhile.
      if (given === 4) await over;
    }
  };
  const stop = new AbortController();
  clock.after(300, () => stop.abort());
  place.lostAcks = 1;
  expect((await run(id, { as, signal: stop.signal })).state).toBe('paused');
  place.noticeLoss();
  expect(everywhere(place).length).toBe(COUNT + 1);
  expect((await resume(id)).state).toBe('done');
  expect(lying(world)).toEqual([]);
});

test('an original goes also when its copy has failed again', async () => {
  const world = await broken();
  const { place, resume, id, lost } = world;
  place.noticeLoss();
  place.failAgain(lost);
  expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: COUNT, again: 3 } });
  expect(place.items.map(({ letter }) => letter.key)).toEqual(lost.map((one) => `${one}#1`));
});

test('a cancel during the wait at the end leaves nothing that the next replay sends again', async () => {
  const world = await broken({ endWait: '1h' });
  const { place, clock, resume, id, process, plan, lost } = world;
  place.noticeLoss();
  clock.after(30_000, () => void cancelReplay(process().operator, id, { clock }));
  expect(await resume(id)).toMatchObject({ state: 'cancelled', counts: { sent: COUNT } });
  expect([lying(world), (await plan(SLOW)).plan.count]).toEqual([[], 0]);
  for (const one of lost) expect(sentTimes(world, one)).toBe(1);
});

test('one that nobody runs says when it is cancelled that letters it sent may still be there', async () => {
  const { place, process, clock, id } = await broken();
  place.noticeLoss();
  const { state, because } = await cancelReplay(process().operator, id, { clock });
  expect([state, because]).toEqual([
    'cancelled',
    expect.stringMatching(/^by tester; \d+ letters were sent without a confirmed ack: some may/),
  ]);
});

test.each(['0s', '10s'])(
  'what a broker returns after a wait of %s stops the replay, and goes with the next run',
  async (endWait) => {
    const world = await broken({ endWait });
    const { place, resume, id } = world;
    expect(await resume(id)).toMatchObject({
      state: 'stopped',
      counts: { sent: COUNT },
      because: expect.stringMatching(
        /^\d+ letters were sent without a confirmed ack: some may be among those that others hold/,
      ),
    });
    place.noticeLoss();
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: COUNT, gone: 0 } });
    expect([lying(world), everywhere(place).length]).toEqual([[], COUNT + 3]);
  },
);

test('what a broker returns while a replay runs goes at its end, also when it is cancelled', async () => {
  const world = await broken({ endWait: '1h' });
  const { place, clock, resume, id, process } = world;
  clock.after(5_000, () => place.noticeLoss());
  clock.after(30_000, () => void cancelReplay(process().operator, id, { clock }));
  expect(await resume(id)).toMatchObject({ state: 'cancelled' });
  expect(lying(world)).toEqual([]);
});

test('another process that looks for a moment neither keeps letters here nor stops it', async () => {
  const world = await broken();
  const { place, clock, resume, id, process } = world;
  place.noticeLoss();
  const as = process();
  const take = as.letters.take.bind(as.letters);
  const since = as.letters.since.bind(as.letters);
  const freeMs = clock.monotonic() + 3_000;
  const check = (untilMs: number) => {
    if (clock.monotonic() < untilMs) throw new RespoolError('move.refused', 'another look');
  };
  as.letters.take = async function* busy(options) {
    check(freeMs);
    yield* take(options);
  };
  let endMs: number | undefined;
  as.letters.since = async (...order) => {
    // Each question for the first three seconds after the first.
    check((endMs ??= clock.monotonic() + 3_000));
    return since(...order);
  };
  clock.after(8_000, () => place.failAgain(named(2)));
  expect(await resume(id, { as })).toMatchObject({ state: 'done', counts: { again: 2 } });
  expect(lying(world)).toEqual(named(2));
});
