/** Replays from plan to end: what is planned, sent, parked, left, stopped and reported. */
import { describe, expect, test } from 'vitest';
import {
  cancelReplay,
  getReplay,
  listReplays,
  pauseReplay,
  planReplay,
  removeReplay,
  runReplay,
} from 'respool/dead-letters';
import { drive, everywhere, idOf, named, setup, SOURCE } from './setup.ts';

const NO_CANARY = { canary: 0 } as const;

describe('a plan', () => {
  test('tells how many letters there are, also of those that it does not look at', async () => {
    const { plan } = await setup(5);
    expect((await plan({ max: 2 })).plan).toMatchObject({ count: 2, seen: 5 });
    expect((await plan({ query: { ids: [idOf(0)] } })).plan).toMatchObject({ count: 1, seen: 5 });
  });

  test('tells count, bytes, groups, destinations and what cannot be sent, and touches nothing', async () => {
    const { place, plan, audit } = await setup(3);
    place.put([
      { id: 'late', topic: 'bill.pay', code: 'http.500', reason: 'oh' },
      { id: 'lost', isUnroutable: true },
      { id: 'often', replays: 3 },
    ]);
    const { plan: found, state, counts, id, options } = await plan({ window: 7 });
    expect(found).toMatchObject({
      count: 6,
      seen: 6,
      bytes: 18,
      oldestAt: 2_000,
      newestAt: 2_000,
    });
    expect(found.groups.map(({ code, count }) => [code, count])).toEqual([
      ['suite.failed', 5],
      ['http.500', 1],
    ]);
    expect(found.routes).toEqual([
      { to: 'suite.letter', count: 3 },
      { to: 'bill.pay', count: 1 },
    ]);
    expect(found.cannot.map(({ why, count, ids }) => [why, count, ids])).toEqual([
      ['unroutable', 1, ['lost']],
      ['replayed-too-often', 1, ['often']],
    ]);
    expect(state).toBe('planned');
    expect(counts.sent).toBe(0);
    expect(options).toEqual({ window: 7 });
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(audit).toEqual(['replay.plan']);
    expect(place.items).toHaveLength(6);
  });

  test('takes what fits the query, up to its maximum', async () => {
    const { place, plan } = await setup(5);
    place.put([{ id: 'other', code: 'http.500' }]);
    expect((await plan({ query: { code: 'http.500' } })).plan.count).toBe(1);
    expect((await plan({ max: 2 })).plan.count).toBe(2);
  });

  test('what others may hold is neither gone nor sent: it stops, and goes on later', async () => {
    const { place, plan, run } = await setup(3);
    const { id } = await plan(NO_CANARY);
    const [hidden] = place.items.splice(1, 1);
    place.isAlone = false;
    expect(await run(id)).toMatchObject({
      state: 'stopped',
      because: expect.stringMatching(/1 letters of the plan were not seen, and others hold/),
      counts: { sent: 2, gone: 0 },
    });
    if (hidden !== undefined) place.items.push(hidden);
    place.isAlone = true;
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 3, gone: 0 } });
  });

  test('is frozen: what comes later is not sent', async () => {
    const { place, plan, run } = await setup(2);
    const { id } = await plan(NO_CANARY);
    place.put([{ id: 'late' }]);
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 2 } });
    expect(place.items.map(({ letter }) => letter.id)).toEqual(['late']);
  });

  test.each([
    [{ canary: -1 }, /"canary"/],
    [{ window: 0 }, /"window"/],
    [{ window: 1_001 }, /"window"/],
    [{ rate: 0 }, /"rate"/],
    [{ rate: Number.NaN }, /"rate"/],
    [{ stopAbove: 101 }, /"stopAbove"/],
    [{ replaysMax: 0 }, /"replaysMax"/],
    [{ max: 0 }, /"max"/],
    [{ canaryWait: 'soon' }, /"canaryWait"/],
    [{ unsure: 'guess' as 'leave' }, /"unsure"/],
    [{ to: { kind: 'topic', topic: 'x' } as const }, /letters of a queue to a topic/],
    [JSON.parse('{"colour":"blue"}') as object, /no option "colour"/],
  ])('refuses %j', async (options, text) => {
    const { plan } = await setup(1);
    await expect(plan(options)).rejects.toThrow(text);
  });

  test('refuses to wait at the end of a replay of a spool, which knows at once', async () => {
    const { process } = await setup(1);
    const { operator, letters } = process();
    const source = { kind: 'spool', kinds: ['dead'] } as const;
    const planning = planReplay(operator, letters, source, { endWait: '1m' });
    await expect(planning).rejects.toThrow('cannot use "endWait" for letters of a spool');
  });

  test('a place that refuses to be looked at is neither planned nor run', async () => {
    const { plan, place, process } = await setup(1);
    const { id } = await plan();
    const { operator, letters } = process();
    const refused = { kind: 'refused', text: 'looking drops', remedy: 'set a policy' } as const;
    const door = { ...letters, caution: async () => refused };
    await expect(planReplay(operator, door, SOURCE, {})).rejects.toThrow(/drops; set a policy/);
    await expect(runReplay(operator, door, id)).rejects.toThrow(/drops; set a policy/);
    expect(place.looks).toBe(1);
  });
});

describe('a run', () => {
  test('sends all home, marks them, and is on record with one line per letter', async () => {
    const { place, plan, run, report, audit } = await setup(250);
    const { id } = await plan(NO_CANARY);
    const replay = await run(id);
    expect(replay).toMatchObject({ state: 'done', counts: { sent: 250, failed: 0, gone: 0 } });
    expect(replay.runner).toBeUndefined();
    expect(place.items).toEqual([]);
    expect(place.sent.every((one) => one.replay === id && one.replays === 1)).toBe(true);
    const lines = await report(id);
    expect(lines.map((line) => line.id)).toEqual(place.sent.map((one) => one.id).sort());
    expect(lines[0]).toMatchObject({ result: 'sent', to: 'suite.letter' });
    expect(audit).toEqual(['replay.plan', 'replay.run']);
  });

  test('sends to a destination that is given, also what has no home', async () => {
    const { place, plan, run } = await setup(1);
    place.put([{ id: 'lost', isUnroutable: true }]);
    const to = { kind: 'queue', exchange: 'x', key: 'y' } as const;
    const { id } = await plan({ ...NO_CANARY, to });
    await run(id);
    expect(place.sent.map((one) => one.to)).toEqual(['x/y', 'x/y']);
  });

  test('leaves what has no home, and parks what was replayed too often', async () => {
    const { place, plan, run, report } = await setup(1);
    place.put([
      { id: 'lost', isUnroutable: true },
      { id: 'often', replays: 2 },
    ]);
    const { id } = await plan({ ...NO_CANARY, replaysMax: 2 });
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 1, left: 1, parked: 1 } });
    expect(place.parked.map(({ letter }) => letter.id)).toEqual(['often']);
    expect((await report(id)).map(({ id: name, result, code }) => [name, result, code])).toEqual([
      [idOf(0), 'sent', undefined],
      ['lost', 'left', 'replay.unroutable'],
      ['often', 'parked', 'replay.limit'],
    ]);
  });

  test('counts what is not there any more as gone', async () => {
    const { place, plan, run } = await setup(120);
    const { id } = await plan(NO_CANARY);
    place.items.splice(50, 20);
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 100, gone: 20 } });
  });

  test('looks once more for what is said to be gone', async () => {
    const { place, plan, run } = await setup(60);
    const { id } = await plan(NO_CANARY);
    const seen = new Set<string>();
    place.refuse = (letter) => {
      // One comes back when it is looked for again, the other never does.
      const isSaid = letter.id === idOf(30) ? !seen.has(letter.id) : letter.id === idOf(31);
      seen.add(letter.id);
      return isSaid ? { kind: 'gone' } : undefined;
    };
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 59, gone: 1 } });
  });

  test('goes on with another pass when one ends early', async () => {
    const { place, plan, run } = await setup(130);
    place.passMax = 33;
    const { id } = await plan({ ...NO_CANARY, window: 20 });
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 130, gone: 0 } });
    expect(place.sent).toHaveLength(130);
  });

  test('counts copies with the same key, and sends no more of them than were planned', async () => {
    const { place, plan, run } = await setup();
    place.put([{ id: 'twin' }, { id: 'twin' }]);
    const { id, plan: found } = await plan(NO_CANARY);
    expect(found.count).toBe(2);
    place.put([{ id: 'twin' }]);
    expect(await run(id)).toMatchObject({ counts: { sent: 2 } });
    expect(place.items).toHaveLength(1);
  });

  test('has no more on their way at once than its window', async () => {
    const { place, plan, run, clock } = await setup(60);
    let active = 0;
    let most = 0;
    place.hold = async () => {
      active += 1;
      most = Math.max(most, active);
      await new Promise<void>((resolve) => void clock.after(10, resolve));
      active -= 1;
    };
    const { id } = await plan({ ...NO_CANARY, window: 8 });
    await run(id);
    expect(most).toBe(8);
  });

  test('keeps its rate', async () => {
    const { place, plan, run, clock } = await setup(101);
    const { id } = await plan({ ...NO_CANARY, rate: 20 });
    const at: number[] = [];
    place.hold = async () => void at.push(clock.monotonic());
    await run(id);
    expect((at.at(-1) ?? 0) - (at[0] ?? 0)).toBeGreaterThanOrEqual(4_950);
    expect((at.at(-1) ?? 0) - (at[0] ?? 0)).toBeLessThanOrEqual(5_100);
  });

  test('tells its progress about every second, and at the end', async () => {
    const { plan, run } = await setup(50);
    const { id } = await plan({ ...NO_CANARY, rate: 10, endWait: '0s' });
    const seen: number[] = [];
    await run(id, { onProgress: ({ counts }) => void seen.push(counts.sent) });
    expect(seen.length).toBeGreaterThanOrEqual(4);
    expect(seen.length).toBeLessThanOrEqual(7);
    expect(seen.at(-1)).toBe(50);
  });

  test('cannot be had twice at once: the second is refused, and nothing is sent twice', async () => {
    const { place, plan, process, clock } = await setup(40);
    const { id } = await plan({ ...NO_CANARY, rate: 10 });
    const [one, other] = [process(), process()];
    const first = runReplay(one.operator, one.letters, id, { clock });
    const second = runReplay(other.operator, other.letters, id, { clock });
    const ends = await drive(clock, Promise.allSettled([first, second]));
    expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(everywhere(place)).toEqual(named(40));
    await expect(runReplay(one.operator, one.letters, id, { clock })).rejects.toThrow(/it is done/);
  });

  test('an id that nobody knows is said to be unknown', async () => {
    const { run } = await setup();
    await expect(run('nobody')).rejects.toThrow(/no replay "nobody"/);
  });
});

describe('canaries', () => {
  test('go first, are watched, and the rest follows when nothing is heard of them', async () => {
    const { place, plan, run, clock } = await setup(50);
    const { id } = await plan({ canary: 5, canaryWait: '20s' });
    const at: number[] = [];
    place.hold = async () => void at.push(clock.monotonic());
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 50 } });
    expect((at[4] ?? 0) < 1_000 && (at[5] ?? 0) >= 20_000).toBe(true);
  });

  test('that are all delivered let the rest go at once', async () => {
    const { place, plan, run, clock } = await setup(50);
    for (let at = 0; at < 50; at += 1) place.delivered.add(idOf(at));
    const { id } = await plan({ canary: 5, canaryWait: '10m', endWait: '0s' });
    expect(await run(id)).toMatchObject({ state: 'done' });
    expect(clock.monotonic()).toBeLessThan(2_000);
  });

  test('that fail again stop it, and the rest stays where it was', async () => {
    const { place, plan, run } = await setup(50);
    const { id } = await plan({ canary: 5 });
    place.again.add(idOf(1)).add(idOf(3));
    const replay = await run(id);
    expect(replay).toMatchObject({ state: 'stopped', counts: { sent: 5, again: 2 } });
    expect(replay.because).toMatch(/2 of 5 letters failed \(40 %/);
    expect(place.items).toHaveLength(45);
  });

  test('are sent anew after a stop, and not after a pause', async () => {
    const { place, plan, run, resume, clock } = await setup(60);
    const { id } = await plan({ canary: 10, canaryWait: '10s', endWait: '0s' });
    place.again.add(idOf(1)).add(idOf(3)).add(idOf(4));
    expect((await run(id)).state).toBe('stopped');
    place.again.clear();
    const stop = new AbortController();
    const untilMs = clock.monotonic() + 10_000;
    place.hold = async () => {
      if (place.sent.length >= 30) stop.abort();
    };
    expect((await resume(id, { signal: stop.signal })).state).toBe('paused');
    expect(clock.monotonic()).toBeGreaterThanOrEqual(untilMs);
    const pausedMs = clock.monotonic();
    expect((await resume(id)).state).toBe('done');
    expect(clock.monotonic() - pausedMs).toBeLessThan(1_000);
    expect(place.sent).toHaveLength(60);
  });
});

describe('the guard', () => {
  test('stops it when the destination breaks half way; a resume finishes, none twice', async () => {
    const { place, plan, run, resume } = await setup(300);
    const { id } = await plan({ ...NO_CANARY, window: 20 });
    place.refuse = () =>
      place.sent.length < 150
        ? undefined
        : { kind: 'failed', code: 'broker.unavailable', reason: 'gone' };
    const stopped = await run(id);
    expect(stopped.state).toBe('stopped');
    expect(stopped.because).toMatch(/in a row could not be sent; the last one: broker.unavail/);
    expect(stopped.counts.sent).toBe(150);
    expect(stopped.counts.failed).toBeGreaterThanOrEqual(10);
    expect(stopped.counts.failed).toBeLessThanOrEqual(30);
    place.refuse = undefined;
    const done = await resume(id);
    expect(done).toMatchObject({ state: 'done', counts: { sent: 300, failed: 0 } });
    expect(everywhere(place)).toEqual(named(300));
  });

  test('lets single failures below the limit be, and they can be tried again', async () => {
    const { place, plan, run, resume, report } = await setup(100);
    const { id } = await plan({ ...NO_CANARY, window: 4 });
    place.refuse = ({ id: name }) =>
      name.endsWith('9') ? { kind: 'failed', code: 'too.large', reason: 'big' } : undefined;
    expect(await run(id)).toMatchObject({ state: 'done', counts: { sent: 90, failed: 10 } });
    const failed = (await report(id)).filter(({ result }) => result === 'failed');
    expect(failed[0]).toMatchObject({ id: idOf(9), code: 'too.large', reason: 'big' });
    place.refuse = undefined;
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 100, failed: 0 } });
  });

  test('hears while it sends that too many fail again', async () => {
    const { place, plan, run } = await setup(400);
    const { id } = await plan({ ...NO_CANARY, rate: 10, stopAbove: 50 });
    for (let at = 0; at < 400; at += 1) place.again.add(idOf(at));
    const replay = await run(id);
    expect(replay.state).toBe('stopped');
    expect(replay.counts.sent).toBeLessThan(150);
    expect(place.sinces).toBeLessThan(5);
  });

  test('stops when nobody can tell whether letters fail again', async () => {
    const { plan, run, process } = await setup(400);
    const { id } = await plan({ ...NO_CANARY, rate: 10 });
    const as = process();
    const letters = { ...as.letters, since: () => Promise.reject(new Error('no idea')) };
    const replay = await run(id, { as: { ...as, letters } });
    expect(replay).toMatchObject({ state: 'stopped' });
    expect(replay.because).toMatch(/no idea/);
  });

  test('never stops at 100', async () => {
    const { place, plan, run } = await setup(40);
    const { id } = await plan({ ...NO_CANARY, stopAbove: 100 });
    place.refuse = () => ({ kind: 'failed', code: 'x', reason: 'y' });
    expect(await run(id)).toMatchObject({ state: 'done', counts: { failed: 40 } });
  });

  test('a place that breaks while it is read stops it, with the reason', async () => {
    const { plan, run, resume, process } = await setup(40);
    const { id } = await plan(NO_CANARY);
    const as = process();
    const letters = {
      ...as.letters,
      async *take(options: Parameters<typeof as.letters.take>[0]) {
        let given = 0;
        for await (const taken of as.letters.take(options)) {
          given += 1;
          if (given > 20) throw new Error('the channel was lost');
          yield taken;
        }
      },
    };
    const stopped = await run(id, { as: { ...as, letters } });
    expect(stopped.state).toBe('stopped');
    expect(stopped.because).toMatch(/queue "dead": the channel was lost/);
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 40 } });
  });
});

describe('from outside', () => {
  test('a replay is paused within about a second, resumed and finished', async () => {
    const { place, plan, run, resume, process, clock } = await setup(50);
    const { id } = await plan({ ...NO_CANARY, rate: 10 });
    const { operator } = process();
    clock.after(1_500, () => void pauseReplay(operator, id, { clock }));
    expect(await run(id)).toMatchObject({ state: 'paused' });
    expect(place.sent.length).toBeGreaterThan(10);
    expect(place.sent.length).toBeLessThan(30);
    expect(everywhere(place)).toHaveLength(50);
    expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 50, unsure: 0 } });
    expect(place.sent).toHaveLength(50);
  });

  test.each([0, 1, 5, 9, 10, 11, 25, 40])(
    'cancelled after %i are sent, each is where it was or where it should be',
    async (after) => {
      const { place, plan, run, resume, process, clock } = await setup(50);
      const { id } = await plan({ canary: 10, canaryWait: '5s', rate: 5 });
      const { operator } = process();
      let isAsked = false;
      place.hold = async () => {
        if (isAsked || place.sent.length < after) return;
        isAsked = true;
        await cancelReplay(operator, id, { clock });
      };
      const replay = await run(id);
      expect(replay.state).toBe('cancelled');
      expect(replay.counts.sent).toBe(place.sent.length);
      expect(everywhere(place)).toEqual(named(50));
      await expect(resume(id)).rejects.toThrow(/it is cancelled/);
    },
  );

  test('interrupted at any point it goes on where it was: none twice, none unsure', async () => {
    for (let after = 0; after <= 30; after += 1) {
      const { place, plan, run, resume, clock } = await setup(30);
      const { id } = await plan({ canary: 4, canaryWait: '1s', window: 6 });
      const stop = new AbortController();
      place.hold = async () => {
        if (place.sent.length >= after) stop.abort();
        // Answers come late: others are on their way when it is interrupted.
        await new Promise<void>((resolve) => void clock.after(5, resolve));
      };
      const paused = await run(id, { signal: stop.signal });
      expect(paused.counts.sent, `after ${after}`).toBe(place.sent.length);
      if (paused.state === 'paused') await resume(id);
      expect(place.items, `after ${after}`).toEqual([]);
      expect(everywhere(place), `after ${after}`).toEqual(named(30));
    }
  });

  test('a cancel or a pause reaches a replay that watches its canaries', async () => {
    const { plan, run, process, clock } = await setup(50);
    const { id } = await plan({ canary: 5, canaryWait: '1h' });
    const { operator } = process();
    clock.after(5_000, () => void pauseReplay(operator, id, { clock }));
    expect(await run(id)).toMatchObject({ state: 'paused', counts: { sent: 5 } });
    expect(clock.monotonic()).toBeLessThan(10_000);
  });

  test('one that nobody runs is paused and cancelled at once', async () => {
    const { plan, process, clock, audit } = await setup(5);
    const { id } = await plan();
    const { operator } = process();
    expect((await pauseReplay(operator, id, { clock })).state).toBe('paused');
    expect((await cancelReplay(operator, id, { clock })).state).toBe('cancelled');
    await expect(pauseReplay(operator, id, { clock })).rejects.toThrow(/cannot pause .* cancelled/);
    expect(audit).toEqual(['replay.plan', 'replay.pause', 'replay.cancel']);
  });

  test('a signal pauses it', async () => {
    const { plan, run } = await setup(5);
    const { id } = await plan();
    const replay = await run(id, { signal: AbortSignal.abort() });
    expect(replay).toMatchObject({ state: 'paused', because: 'it was interrupted' });
  });

  test('replays are listed, the latest first, and forgotten with their logs', async () => {
    const { plan, process, clock, records } = await setup(5);
    const { id } = await plan();
    await clock.advance(10);
    const { id: later } = await plan();
    const { operator } = process();
    expect((await listReplays(operator)).map((one) => one.id)).toEqual([later, id]);
    await removeReplay(operator, id, { clock });
    expect(await getReplay(operator, id)).toBeUndefined();
    expect(await records.read(`dlq.replay.${id}`, 0, 10)).toEqual([]);
    expect((await listReplays(operator)).map((one) => one.id)).toEqual([later]);
  });

  test('one that runs is not forgotten', async () => {
    const { plan, run, process, clock, place } = await setup(5);
    const { id } = await plan(NO_CANARY);
    const { operator } = process();
    let refusal: unknown;
    place.hold = async () => {
      await removeReplay(operator, id, { clock }).catch((error: unknown) => (refusal = error));
    };
    await run(id);
    expect(String(refusal)).toMatch(/cannot remove .* it is running; cancel it first/);
  });
});
