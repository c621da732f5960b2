/** Every action is on record before it acts. */
import { describe, expect, test } from 'vitest';
import { rejection, setup } from './setup.ts';
import { internalsOf } from '../../src/spool/internals.ts';

describe('the audit record', () => {
  test('and the reason on a message show control characters instead of having them', async () => {
    const { spool } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    await spool
      .operator({ by: 'ann\u0007' })
      .hold([id], { reason: 'why\u001B[2J\nok \u202Egnp \uD800 😀' });
    await spool.operator({ by: 'bob\r\n' }).pause('b');
    await internalsOf(spool).appendAudit({
      by: 'eve\u009B',
      action: 'retry',
      ids: [],
      details: { filter: { text: ['x\u0000'] }, count: 2 },
    });
    await spool.operator({ by: 'ops' }).recordAction('my\u001B[2J', { at: '\u202E' });
    await spool.operator({ by: 'ops' }).hold(['no\u001B[2J'], { reason: 'x' });
    const lines = await spool.operator({ by: 'ops' }).audit();
    const [hold, pause, retry, own, other] = lines;
    expect(own).toMatchObject({
      action: String.raw`my\u001b[2J`,
      details: { at: String.raw`\u202e` },
    });
    expect(other).toMatchObject({ action: 'hold', ids: [String.raw`no\u001b[2J`] });
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
    await spool.operator({ by: 'ann' }).hold([id], { reason: 'why' });
    await clock.advance('1m');
    await spool.operator({ by: 'bob' }).release([id]);
    await spool.operator({ by: 'bob' }).retry([id]);
    await spool.operator({ by: 'bob' }).setPolicy([id], 'slow');
    await spool.operator({ by: 'bob' }).setHeaders(id, { a: '1' });
    await spool.operator({ by: 'bob' }).move(id, { from: 'incoming', to: 'hold' });
    await spool.operator({ by: 'bob' }).bounce([id], { reason: 'no' });
    await spool.operator({ by: 'bob' }).pause('a.*');
    await spool.operator({ by: 'bob' }).resume('a.*');
    await spool.process(id, () => undefined, { by: 'bob' });
    await spool.operator({ by: 'bob' }).cleanUp();
    const { id: last } = await spool.enqueue({ topic: 'a' });
    await spool.operator({ by: 'ops' }).remove([last], { hard: true, reason: 'gone' });
    const lines = await spool.operator({ by: 'ops' }).audit();
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
      'cleanup',
      'remove',
    ]);
    expect(lines.at(-1)).toMatchObject({ by: 'ops', details: { hard: true, reason: 'gone' } });
    expect(lines.slice(1, -1).every(({ by }) => by === 'bob')).toBe(true);
  });

  test('can be read on from a sequence, some lines at a time', async () => {
    const { spool } = await setup();
    for (const id of ['a', 'b', 'c', 'd']) await spool.operator({ by: 'ops' }).hold([id]);
    const first = await spool.operator({ by: 'ops' }).audit(0, 2);
    expect(first.map(({ ids }) => ids)).toEqual([['a'], ['b']]);
    const rest = await spool.operator({ by: 'ops' }).audit(first.at(-1)?.sequence, 10);
    expect(rest.map(({ ids }) => ids)).toEqual([['c'], ['d']]);
  });

  test('is written before the action: it is there though the action failed', async () => {
    const { spool, store, status } = await setup();
    const { id } = await spool.enqueue({ topic: 'a' });
    store.faults.plan = (operation) =>
      operation === 'commit' || operation === 'records.put' ? 'before' : 'ok';
    const tries = [
      () => spool.operator({ by: 'ops' }).hold([id]),
      () => spool.operator({ by: 'ops' }).bounce([id]),
      () => spool.operator({ by: 'ops' }).remove([id]),
      () => spool.operator({ by: 'ops' }).retry([id]),
      () => spool.operator({ by: 'ops' }).setPolicy([id], 'default'),
      () => spool.operator({ by: 'ops' }).setHeaders(id, { a: '1' }),
      () => spool.operator({ by: 'ops' }).move(id, { from: 'incoming', to: 'archived' }),
      () => spool.operator({ by: 'ops' }).pause('#'),
    ];
    for (const attempt of tries) expect(await rejection(attempt())).toBeDefined();
    expect((await spool.operator({ by: 'ops' }).audit()).map(({ action }) => action)).toEqual([
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
    expect((await rejection(spool.operator({ by: 'ops' }).remove([id], { hard: true }))).code).toBe(
      'store.unavailable',
    );
    expect((await rejection(spool.operator({ by: 'ops' }).pause('#'))).code).toBe(
      'store.unavailable',
    );
    store.faults.plan = () => 'ok';
    expect((await status(id)).state).toBe('incoming');
    expect(await spool.operator({ by: 'ops' }).audit()).toEqual([]);
  });

  test('is told as an event, without details', async () => {
    const { spool, events } = await setup();
    await spool.operator({ by: 'ann' }).hold(['x'], { reason: 'why' });
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
