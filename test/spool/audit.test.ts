/** Every action is on record before it acts. */
import { describe, expect, test } from 'vitest';
import { rejection, setup } from './setup.ts';

describe('the audit record', () => {
  test('and the reason on a message show control characters instead of having them', async () => {
    const { spool } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool.hold([id], 'why\u001B[2J\nok \u202Egnp \uD800 😀', 'ann\u0007');
    await spool.pause({ topic: 'b', by: 'bob\r\n' });
    await spool.appendAudit({
      by: 'eve\u009B',
      action: 'retry',
      ids: [],
      details: { filter: { text: ['x\u0000'] }, count: 2 },
    });
    const [hold, pause, retry] = await spool.audit();
    const shown = String.raw`why\u001b[2J\u000aok \u202egnp \ud800 😀`;
    expect(hold).toMatchObject({ by: String.raw`ann\u0007`, details: { reason: shown } });
    expect(pause).toMatchObject({ by: String.raw`bob\u000d\u000a` });
    expect(retry).toMatchObject({
      by: String.raw`eve\u009b`,
      details: { filter: { text: [String.raw`x\u0000`] }, count: 2 },
    });
    const { status } = (await spool.get(id)) ?? {};
    // On the message a reason is one line.
    const line = shown.replace(String.raw`\u000a`, ' ');
    expect(status?.because).toMatchObject({ text: line, by: String.raw`ann\u0007` });
  });

  test('has every action, its operator, its ids and its details, oldest first', async () => {
    const { spool, clock } = await setup({ policies: { slow: { ...POLICY } } });
    const { id } = await spool.enqueue({ topic: 'a' });
    const start = clock.now();
    await spool.hold([id], 'why', 'ann');
    await clock.advance('1m');
    await spool.release([id], 'bob');
    await spool.retryNow([id], 'bob');
    await spool.setPolicy(id, 'slow', 'bob');
    await spool.updateHeaders(id, { a: '1' }, { by: 'bob' });
    await spool.move(id, { from: 'incoming', to: 'hold', by: 'bob' });
    await spool.bounce([id], 'no', 'bob');
    await spool.pause({ topic: 'a.*', by: 'bob' });
    await spool.resume({ topic: 'a.*', by: 'bob' });
    await spool.process(id, () => undefined, 'bob');
    const { id: last } = await spool.enqueue({ topic: 'a' });
    await spool.remove([last], { hard: true, reason: 'gone' });
    const lines = await spool.audit();
    expect(lines[0]).toEqual({
      sequence: 1,
      at: start,
      by: 'ann',
      action: 'hold',
      ids: [id],
      details: { reason: 'why' },
    });
    expect(lines.map(({ action }) => action)).toEqual([
      'hold',
      'release',
      'retry',
      'setPolicy',
      'setHeaders',
      'hold',
      'bounce',
      'pause',
      'resume',
      'process',
      'retry',
      'remove',
    ]);
    expect(lines.at(-1)).toMatchObject({ by: 'program', details: { hard: true, reason: 'gone' } });
    expect(lines.slice(1, -1).every(({ by }) => by === 'bob')).toBe(true);
  });

  test('can be read on from a sequence, some lines at a time', async () => {
    const { spool } = await setup();
    for (const id of ['a', 'b', 'c', 'd']) await spool.hold([id]);
    const first = await spool.audit(0, 2);
    expect(first.map(({ ids }) => ids)).toEqual([['a'], ['b']]);
    const rest = await spool.audit(first.at(-1)?.sequence, 10);
    expect(rest.map(({ ids }) => ids)).toEqual([['c'], ['d']]);
  });

  test('is written before the action: it is there though the action failed', async () => {
    const { spool, store, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    store.faults.plan = (operation) =>
      operation === 'commit' || operation === 'records.put' ? 'before' : 'ok';
    const tries = [
      () => spool.hold([id]),
      () => spool.bounce([id]),
      () => spool.remove([id]),
      () => spool.retryNow([id]),
      () => spool.setPolicy(id, 'default'),
      () => spool.updateHeaders(id, { a: '1' }),
      () => spool.move(id, { from: 'incoming', to: 'archived' }),
      () => spool.pause(),
    ];
    for (const attempt of tries) expect(await rejection(attempt())).toBeDefined();
    expect((await spool.audit()).map(({ action }) => action)).toEqual([
      'hold',
      'bounce',
      'remove',
      'retry',
      'setPolicy',
      'setHeaders',
      'remove',
      'pause',
    ]);
    expect(await status(id)).toMatchObject({ state: 'incoming', revision: 1 });
  });

  test('stops the action when it cannot be written', async () => {
    const { spool, store, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    store.faults.plan = (operation) => (operation === 'records.append' ? 'before' : 'ok');
    expect((await rejection(spool.remove([id], { hard: true }))).code).toBe('store.unavailable');
    expect((await rejection(spool.pause())).code).toBe('store.unavailable');
    store.faults.plan = () => 'ok';
    expect((await status(id)).state).toBe('incoming');
    expect(await spool.audit()).toEqual([]);
  });

  test('is told as an event, without details', async () => {
    const { spool, events } = await setup();
    await spool.hold(['x'], 'why', 'ann');
    expect(events.filter((event) => event.kind === 'operator')).toEqual([
      { at: expect.any(Number) as number, kind: 'operator', action: 'hold', by: 'ann', ids: ['x'] },
    ]);
  });
});

const POLICY = {
  maxAttempts: 2,
  maxAgeMs: null,
  backoff: { kind: 'fixed', delayMs: 1 },
  jitter: 0,
} as const;
