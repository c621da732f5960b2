/** Replays over a real spool, in virtual time: what bounced is delivered, or bounces again. */
import { expect, test } from 'vitest';
import { PermanentError } from 'respool';
import { createTestSpool } from 'respool/testkit';
import {
  createSpoolLetters,
  planReplay,
  type Replay,
  type ReplayOptions,
  runReplay,
} from 'respool/dead-letters';
import { drive } from './setup.ts';

const SOURCE = { kind: 'spool', kinds: ['dead'] } as const;

async function setup(count: number) {
  const { spool, clock } = await createTestSpool();
  let isBroken = true;
  const delivered: string[] = [];
  spool.handle('mail.send', ({ id }) => {
    if (isBroken) throw new PermanentError('mail.refused', 'no such user');
    delivered.push(id);
  });
  for (let at = 0; at < count; at += 1) await spool.enqueue({ topic: 'mail.send', body: 'x' });
  await clock.advance('1m');
  const operator = spool.operator({ by: 'ann' });
  const letters = createSpoolLetters(operator, { kinds: ['dead'] });
  const replay = async (options: ReplayOptions): Promise<Replay> => {
    const { id } = await planReplay(operator, letters, SOURCE, options, { clock });
    return drive(clock, runReplay(operator, letters, id, { clock }));
  };
  const recover = () => {
    isBroken = false;
  };
  return { spool, clock, operator, delivered, replay, recover };
}

test('what bounced is delivered, canaries first, each once', async () => {
  const { spool, operator, delivered, replay, recover, clock } = await setup(40);
  expect((await spool.count()).bounce).toBe(40);
  recover();
  const beganMs = clock.monotonic();
  const done = await replay({ canary: 5, canaryWait: '1h' });
  expect(done).toMatchObject({ state: 'done', counts: { sent: 40, failed: 0, again: 0 } });
  expect(clock.monotonic() - beganMs).toBeLessThan(60_000);
  await clock.advance('1m');
  expect(new Set(delivered).size).toBe(40);
  expect(delivered).toHaveLength(40);
  const actions = (await operator.audit()).map(({ action }) => action);
  expect(actions).toEqual(expect.arrayContaining(['replay.plan', 'replay.run']));
  await spool.stop();
});

test('where it still fails the canaries come back, and the rest is not touched', async () => {
  const { spool, replay } = await setup(40);
  const stopped = await replay({ canary: 5, canaryWait: '1m' });
  expect(stopped).toMatchObject({ state: 'stopped', counts: { sent: 5, again: 5 } });
  expect(stopped.because).toMatch(/5 of 5 letters failed/);
  expect((await spool.count()).bounce).toBe(40);
  await spool.stop();
});

test('what bounces again and again is parked in the end', async () => {
  const { spool, clock, replay } = await setup(3);
  const options = { canary: 0, stopAbove: 100, replaysMax: 2 } as const;
  for (let round = 0; round < 2; round += 1) {
    expect(await replay(options)).toMatchObject({ state: 'done', counts: { sent: 3 } });
    await clock.advance('1m');
  }
  expect(await replay(options)).toMatchObject({ state: 'done', counts: { sent: 0, parked: 3 } });
  expect(await spool.count()).toMatchObject({ bounce: 0, hold: 3 });
  await spool.stop();
});
