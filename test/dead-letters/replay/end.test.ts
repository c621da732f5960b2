/** How a replay of a queue ends: what came back to it within a time, and what waits unconsumed. */
import { expect, test } from 'vitest';
import { RespoolError } from 'respool';
import { named, setup } from './setup.ts';

const QUICK = { canary: 0, rate: 1_000 } as const;

test('what came back to the queue within the wait is counted, and it is not plainly done', async () => {
  const { place, clock, plan, run, report } = await setup(20);
  const { id } = await plan({ ...QUICK, endWait: '10s' });
  // Between the last letter and the look, as by a consumer that works for a while.
  clock.after(5_000, () => place.failAgain(named(3)));
  const done = await run(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 20, again: 3 } });
  expect(done.because).toBe('3 of 20 letters that were sent failed again within 10s');
  const again = (await report(id)).filter(({ result }) => result === 'again');
  expect(again.map((line) => [line.id, line.code])).toEqual(
    named(3).map((one) => [one, 'suite.failed']),
  );
});

test('what comes back later is not waited for, and nothing is said where none came back', async () => {
  const { place, clock, plan, run } = await setup(20);
  const { id } = await plan({ ...QUICK, endWait: '10s' });
  clock.after(30_000, () => place.failAgain(named(3)));
  const done = await run(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 20, again: 0 } });
  expect(done.because).toBeUndefined();
  expect(done.counts.waiting).toBeUndefined();
});

test('looked at also when the guard never stops it; with a wait of 0 not at all', async () => {
  const { place, clock, plan, run } = await setup(20);
  const first = await plan({ ...QUICK, max: 10, stopAbove: 100 });
  clock.after(5_000, () => place.failAgain(named(1)));
  expect((await run(first.id)).counts).toMatchObject({ sent: 10, again: 1 });
  const { sinces } = place;
  const second = await plan({ ...QUICK, endWait: '0s' });
  const done = await run(second.id);
  expect(done).toMatchObject({ state: 'done', counts: { again: 0 } });
  expect([done.because, place.sinces]).toEqual([undefined, sinces]);
});

test('what waits where it was sent, or is in hands of consumers, was not attempted yet', async () => {
  const { place, plan, run } = await setup(30);
  Object.assign(place, { waiting: 4, unacked: 2 });
  const first = await run((await plan({ ...QUICK, max: 20 })).id);
  expect(first).toMatchObject({ state: 'done', counts: { sent: 20, waiting: 6 } });
  expect(first.because).toBeUndefined();
  // Others wait there as well: no more than were sent are counted.
  place.waiting = 500;
  expect((await run((await plan(QUICK)).id)).counts).toMatchObject({ sent: 10, waiting: 10 });
});

test('a destination without a consumer is said, and a long wait for it is cut short', async () => {
  const { place, clock, plan, run } = await setup(20);
  Object.assign(place, { waiting: 20, consumers: 0 });
  const { id } = await plan({ ...QUICK, endWait: '1h' });
  const before = clock.now();
  const done = await run(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 20, again: 0, waiting: 20 } });
  expect(done.because).toBe('queue "home" has no consumer, and 20 messages wait there');
  // In virtual time.
  expect(clock.now() - before).toBeLessThan(60_000);
});

test('a consumer that starts anew, or reads now and then, does not cut the wait short', async () => {
  const { place, clock, plan, run } = await setup(20);
  Object.assign(place, { waiting: 20, consumers: 0 });
  const { id } = await plan({ ...QUICK, endWait: '1h' });
  clock.after(20_000, () => Object.assign(place, { waiting: 0, consumers: 1 }));
  clock.after(50 * 60_000, () => place.failAgain(named(2)));
  expect(await run(id)).toMatchObject({ state: 'done', counts: { again: 2 } });
});

test('a destination without a consumer where not all of them are is watched to the end', async () => {
  const { place, clock, plan, run } = await setup(20);
  Object.assign(place, { waiting: 0, consumers: 0 });
  const { id } = await plan({ ...QUICK, endWait: '1m' });
  clock.after(50_000, () => place.failAgain(named(2)));
  expect((await run(id)).because).toBe(
    '2 of 20 letters that were sent failed again within 1m; ' +
      'queue "home" has no consumer, and is empty',
  );
});

test('what cannot be told is said: what waits, whether it came back, and what was not seen', async () => {
  const { place, clock, plan, run, process } = await setup(60);
  place.waiting = undefined;
  const first = await run((await plan({ ...QUICK, max: 20 })).id);
  expect(first.counts.waiting).toBeUndefined();
  expect(first.because).toBe('how many of them wait for a consumer is unknown');
  Object.assign(place, { waiting: 0, lookMax: 5 });
  const second = await plan({ ...QUICK, max: 20 });
  clock.after(5_000, () => place.failAgain(['letter-020']));
  expect((await run(second.id)).because).toBe(
    '16 letters of queue "dead" are beyond the limit of one look: what failed again may be ' +
      'among them',
  );
  const as = process();
  as.letters.since = () => Promise.reject(new Error('the channel is gone'));
  expect(await run((await plan(QUICK)).id, { as })).toMatchObject({
    state: 'stopped',
    because: 'cannot tell whether letters failed again: the channel is gone',
  });
});

test('another process that looks for a moment does not hide what failed again', async () => {
  const { place, clock, plan, run, process } = await setup(20);
  const { id } = await plan({ ...QUICK, endWait: '10s' });
  const as = process();
  const since = as.letters.since.bind(as.letters);
  as.letters.since = async (...order) => {
    if (clock.monotonic() < 14_000) throw new RespoolError('move.refused', 'another look');
    return since(...order);
  };
  clock.after(5_000, () => place.failAgain(named(20)));
  expect(await run(id, { as })).toMatchObject({ state: 'done', counts: { again: 20 } });
});

test('one that looks for long leaves it stopped, and a resume only looks again', async () => {
  const { place, plan, run, resume, process } = await setup(20);
  const { id } = await plan({ ...QUICK, endWait: '10s' });
  const as = process();
  as.letters.since = () => Promise.reject(new RespoolError('move.refused', 'another look'));
  expect(await run(id, { as })).toMatchObject({
    state: 'stopped',
    counts: { sent: 20, again: 0 },
    because: 'cannot tell whether letters failed again: another look',
  });
  place.failAgain(named(4));
  expect(await resume(id)).toMatchObject({ state: 'done', counts: { sent: 20, again: 4 } });
});

test('of letters with one id as many failed again as came back, however often it is looked', async () => {
  const { place, clock, plan, run } = await setup();
  place.put([{ id: 'x' }, { id: 'x' }, { id: 'x' }, { id: 'y' }]);
  const { id } = await plan({ canary: 0, rate: 0.5, stopAbove: 99 });
  // Seen while letters are sent, and at the end.
  clock.after(5_000, () => place.failAgain(['x']));
  clock.after(10_000, () => place.failAgain(['x']));
  const done = await run(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 4, again: 2 } });
  expect(place.sinces).toBe(2);
});

test('a resume asks for what earlier runs have sent, too', async () => {
  const { place, plan, run, resume, clock } = await setup(20);
  const { id } = await plan({ ...QUICK, endWait: '10m' });
  const stop = new AbortController();
  clock.after(5_000, () => stop.abort());
  const paused = await run(id, { signal: stop.signal });
  expect(paused).toMatchObject({ state: 'paused', counts: { sent: 20, again: 0 } });
  place.failAgain(named(4));
  const done = await resume(id);
  expect(done).toMatchObject({ state: 'done', counts: { sent: 20, again: 4 } });
  expect(done.because).toContain('4 of 20 letters that were sent failed again within 10m');
});
