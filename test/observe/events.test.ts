/** What is archived, removed and replayed is told (R36); what nobody hears is never built. */
import { PermanentError, type SpoolEvent } from 'respool';
import { createTestSpool } from 'respool/testkit';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { createSpoolLetters, planReplay, runReplay } from 'respool/dead-letters';
import { Events } from '../../src/engine/events.ts';
import { drive } from '../dead-letters/replay/setup.ts';
import { failing, MINUTE, setup } from '../spool/setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

const refuse = (): never => {
  throw new PermanentError('x', 'y');
};

describe('a message that is archived', () => {
  const archive = { archive: '1d' } as const;
  const retention = { delivered: archive, bounced: archive, removed: '1d' } as const;

  test('is told with its ending, once it is on record', async () => {
    const { spool, clock, events, status } = await setup({ retention, isStarted: false });
    spool.handle('fine', () => undefined);
    spool.handle('never', refuse);
    spool.handle('told', refuse);
    spool.onBounce('told', () => undefined);
    await spool.start();
    const delivered = await spool.enqueue({ topic: 'fine' });
    const bounced = await spool.enqueue({ topic: 'never' });
    const announced = await spool.enqueue({ topic: 'told' });
    const expired = await spool.enqueue({ topic: 'fine', delay: '2m', expires: '1m' });
    const removed = await spool.enqueue({ topic: 'fine', delay: '1h' });
    await spool.operator({ by: 'ops' }).remove([removed.id]);
    const given = await spool.enqueue({ topic: 'fine', delay: '1h' });
    await spool.operator({ by: 'ops' }).bounce([given.id]);
    await clock.advance('3m');
    const told = events.filter((event) => event.kind === 'archived');
    const endings = new Map(told.map(({ id, ending }) => [id, ending]));
    expect(endings).toEqual(
      new Map([
        [delivered.id, 'delivered'],
        [bounced.id, 'bounced'],
        [announced.id, 'bounced'],
        [expired.id, 'expired'],
        [removed.id, 'removed'],
        [given.id, 'bounced'],
      ]),
    );
    expect(told).toHaveLength(endings.size);
    for (const { id, ending, at } of told) {
      expect(await status(id)).toMatchObject({ state: 'archived', ending, updatedAt: at });
    }
  });

  test('and is changed or removed later is not told as archived again', async () => {
    const { spool, clock, events, kinds } = await setup({ retention });
    spool.handle('fine', () => undefined);
    const { id } = await spool.enqueue({ topic: 'fine' });
    await clock.settle();
    await spool.operator({ by: 'ops' }).setPolicy([id], 'default');
    await spool.operator({ by: 'ops' }).setHeaders(id, { 'x-seen': 'yes' });
    expect(kinds(id).filter((kind) => kind === 'archived')).toHaveLength(1);
    await spool.operator({ by: 'ann' }).remove([id], { hard: true });
    expect(events.at(-1)).toEqual({
      at: clock.now(),
      kind: 'removed',
      id,
      topic: 'fine',
      by: 'ann',
    });
  });

  test('is not told where nothing is kept', async () => {
    const { spool, clock, kinds } = await setup();
    spool.handle('fine', () => undefined);
    const { id } = await spool.enqueue({ topic: 'fine' });
    await clock.settle();
    expect(kinds(id)).toEqual(['accepted', 'claimed', 'started', 'ended', 'delivered']);
  });

  test('as a copy of what is elsewhere is told, too', async () => {
    const { spool, events } = await setup({ isStarted: false });
    const copy = { id: 'far', topic: 'q', headers: {}, body: Buffer.from('x'), reason: 'purged' };
    await spool.operator({ by: 'ops' }).keep([copy]);
    expect(events).toMatchObject([{ kind: 'archived', topic: 'q', ending: 'removed' }]);
  });
});

test('a removal that is refused or finds nothing is not told', async () => {
  const { spool, clock, kinds } = await setup();
  spool.handle('slow', () => new Promise(() => undefined), { timeout: '1h' });
  const { id } = await spool.enqueue({ topic: 'slow' });
  await clock.settle();
  const results = await spool.operator({ by: 'ops' }).remove([id, 'nobody'], { hard: true });
  expect(results.map(({ result }) => result)).toEqual(['refused', 'unknown']);
  expect(kinds()).not.toContain('removed');
});

test('a replay is told whenever it comes to another state', async () => {
  const { spool, clock } = await createTestSpool();
  let isBroken = true;
  spool.handle('mail', () => {
    if (isBroken) refuse();
  });
  for (let at = 0; at < 8; at += 1) await spool.enqueue({ topic: 'mail' });
  await clock.advance('1m');
  const told: SpoolEvent[] = [];
  spool.on('replay', (event) => void told.push(event));
  const operator = spool.operator({ by: 'ann' });
  const letters = createSpoolLetters(operator, { kinds: ['dead'] });
  const source = { kind: 'spool', kinds: ['dead'] } as const;
  const options = { canary: 2, canaryWait: '1m' } as const;
  const { id } = await planReplay(operator, letters, source, options, { clock });
  const counts = { sent: 0, failed: 0, again: 0 };
  const about = { kind: 'replay', replay: id, by: 'ann' };
  expect(told).toEqual([{ at: expect.any(Number), ...about, state: 'planned', ...counts }]);
  await drive(clock, runReplay(operator, letters, id, { clock }));
  expect(told.slice(1)).toMatchObject([
    { ...about, state: 'running' },
    { ...about, state: 'stopped', sent: 2, again: 2, because: expect.stringMatching(/2 of 2/) },
  ]);
  isBroken = false;
  const second = await planReplay(operator, letters, source, options, { clock });
  await drive(clock, runReplay(operator, letters, second.id, { clock }));
  expect(told.slice(3)).toMatchObject([
    { replay: second.id, state: 'planned' },
    { replay: second.id, state: 'running' },
    { replay: second.id, state: 'done', sent: 8 },
  ]);
  await spool.stop();
});

describe('what nobody hears', () => {
  async function lives(heard: readonly SpoolEvent['kind'][]) {
    const emit = vi.spyOn(Events.prototype, 'emit');
    onTestFinished(() => emit.mockRestore());
    const { spool, clock } = await createTestSpool({
      retention: { delivered: { archive: '1d' } },
    });
    let ends = 0;
    for (const kind of heard) spool.on(kind, () => void (ends += 1));
    spool.handle('fine', () => undefined);
    spool.handle('fail', failing(1).handler);
    spool.handle('never', refuse);
    spool.onBounce('never', () => undefined);
    await spool.enqueue({ topic: 'fail', policy: 'unknown' });
    for (const topic of ['fine', 'fail', 'never']) {
      await spool.enqueue({ topic, dedupeKey: topic });
      await spool.enqueue({ topic, dedupeKey: topic });
    }
    await clock.advance(60 * MINUTE);
    expect(await spool.count()).toMatchObject({ archived: 3, bounce: 1 });
    const built = emit.mock.calls.map(([{ kind }]) => kind);
    await spool.stop();
    return { built, ends };
  }

  test('of the life of a message is not even built', async () => {
    const { built } = await lives([]);
    expect(built).toEqual(['engine-started']);
  });

  test('is not built for somebody who hears something else', async () => {
    const { built, ends } = await lives(['delivered']);
    expect(built).toEqual(['engine-started', 'delivered', 'delivered', 'delivered']);
    expect(ends).toBe(3);
  });
});

test('what somebody beside the spool tells is of a kind that exists', async () => {
  const { spool, events } = await setup();
  const told = { at: 1, kind: 'relay', target: 'a', state: 'closed' } as const;
  internalsOf(spool).emit(told);
  expect(events).toContainEqual(told);
  for (const wrong of [undefined, {}, { kind: 'relayed' }]) {
    expect(() => internalsOf(spool).emit(wrong as never)).toThrow(
      /^cannot use .* as "kind": allowed is/,
    );
  }
});
