/** Dead letters over HTTP: replays, kept copies, records and the audit record, each in its role. */
import { hash } from 'node:crypto';
import { PermanentError, type Spool } from 'respool';
import { describe, expect, test } from 'vitest';
import { connectOperator } from 'respool/web';
import type { TokenRole } from './setup.ts';
import { all, bytesOf, codeOf, rejection } from '../spool/setup.ts';
import { json, refusal, setup } from './setup.ts';

const ROLES: readonly TokenRole[] = ['post', 'read', 'operate', 'admin'];
const TOKENS = {
  tokens: ROLES.map((role) => ({
    name: `the-${role}`,
    role,
    sha256: hash('sha256', `secret-${role}`, 'hex'),
  })),
};
const COPY = { id: 'Order/17', topic: 'rabbit.q', headers: { a: 'b' }, reason: 'removed' };

async function far(more: Parameters<typeof setup>[0] = {}) {
  const world = await setup({ spool: { unhandled: 'leave' }, ...more });
  return { ...world, operator: connectOperator({ url: world.url, by: 'ann' }) };
}

async function giveUp(spool: Spool, id: string, body: Uint8Array = Buffer.from('hi')) {
  await spool.enqueue({ id, topic: 'a', body });
  await spool.process(id, () => {
    throw new PermanentError('x', 'no');
  });
}

describe('a replay through a service', () => {
  test('sends messages once more, repaired, in the name of its caller', async () => {
    const { operator, spool } = await far();
    await giveUp(spool, 'm-1');
    const body = Uint8Array.from({ length: 256 }, (_, at) => at);
    const change = { body, contentType: 'text/csv', headers: { add: 'é', drop: null } };
    const order = { replay: 'r1', topic: 'b', replays: 0, change };
    expect(await operator.replay(['m-1', 'nobody', '../x'], order)).toEqual([
      { id: 'm-1', result: 'done' },
      { id: 'nobody', result: 'unknown' },
      { id: '../x', result: 'unknown' },
    ]);
    expect((await spool.get('m-1'))?.envelope).toMatchObject({
      topic: 'b',
      headers: { add: 'é', 'content-type': 'text/csv', 'respool-replay': 'r1' },
    });
    expect([...(await bytesOf(await operator.body('m-1')))]).toEqual([...body]);
    expect((await spool.operator({ by: 'ops' }).audit()).at(-1)).toMatchObject({
      by: 'ann',
      action: 'replay',
    });
    expect(await operator.replay(['m-1'], { replay: 'r2', replays: 0 })).toMatchObject([
      { result: 'refused', why: expect.stringContaining('sent again meanwhile') },
    ]);
  });

  test('refuses what the spool refuses, and bodies that no request can hold', async () => {
    const { operator, spool } = await far();
    await giveUp(spool, 'm-1');
    expect(await codeOf(operator.replay(['m-1'], { replay: 'r1', topic: 'no good' }))).toBe(
      'message.invalid',
    );
    const body = new Uint8Array(12_000_001);
    expect(
      await rejection(operator.replay(['m-1'], { replay: 'r1', change: { body } })),
    ).toMatchObject({
      code: 'limit.exceeded',
      message: expect.stringContaining('do it at the store itself'),
    });
    // More than the spool takes: that message is refused, with the limit.
    const large = { replay: 'r1', change: { body: new Uint8Array(1_000_001) } };
    expect(await operator.replay(['m-1'], large)).toMatchObject([
      { result: 'refused', why: expect.stringContaining('limits.bodyBytes') },
    ]);
  });
});

describe('copies through a service', () => {
  test('lie archived when it resolves, however many requests they need', async () => {
    const { operator, spool } = await far();
    const large = new Uint8Array(900_000).fill(7);
    const copies = Array.from({ length: 610 }, (_, at) => ({
      ...COPY,
      body: at < 6 ? large : Buffer.from(String(at)),
    }));
    await operator.keep(copies);
    const found = await all(spool.list({ state: 'archived' }));
    expect(found).toHaveLength(610);
    expect(found[0]?.envelope.headers).toEqual({ a: 'b', 'respool-original-of': 'Order/17' });
    expect(found[0]?.status.because).toMatchObject({ code: 'letter.kept', by: 'ann' });
    expect(await bytesOf(await operator.body(found[0]?.envelope.id ?? ''))).toHaveLength(900_000);
    await operator.keep([]);
  });

  test('say how many were kept before one was refused', async () => {
    const { operator } = await far();
    const copies = Array.from({ length: 501 }, () => ({ ...COPY, body: Buffer.from('x') }));
    copies[500] = { ...COPY, topic: 'no good', body: Buffer.from('x') };
    expect(await rejection(operator.keep(copies))).toMatchObject({
      code: 'message.invalid',
      message: expect.stringContaining('500 of 501 copies were kept before'),
    });
  });
});

describe('records through a service', () => {
  test('are the same as beside the store', async () => {
    const { operator } = await far();
    const { records } = operator;
    expect(await records.append('dlq.replay.1', { a: [1, null] })).toBe(1);
    expect(await records.append('dlq.replay.1', 'two')).toBe(2);
    expect(await records.read('dlq.replay.1', 0, 1)).toEqual([
      { sequence: 1, record: { a: [1, null] } },
    ]);
    await records.trim('dlq.replay.1', 1);
    expect(await records.read('dlq.replay.1', 0, 10)).toEqual([{ sequence: 2, record: 'two' }]);
    expect(await records.put('dlq.notes', 'a/b c&d', 'x', 0)).toBe('done');
    expect(await records.put('dlq.notes', 'a/b c&d', 'y', 0)).toBe('stale');
    expect(await records.put('dlq.notes', 'é', null)).toBe('done');
    expect(await records.get('dlq.notes', 'a/b c&d')).toEqual({
      key: 'a/b c&d',
      value: 'x',
      revision: 1,
    });
    expect(await records.get('dlq.notes', 'nobody')).toBeUndefined();
    expect((await records.list('dlq.notes')).map(({ key }) => key)).toEqual(['a/b c&d', 'é']);
    await records.remove('dlq.notes', 'é');
    expect(await records.list('dlq.notes')).toHaveLength(1);
  });

  test('come in pages of bounded size, and whole all the same', async () => {
    const { operator, ask } = await far();
    const { records } = operator;
    const long = 'x'.repeat(900_000);
    for (let at = 0; at < 7; at += 1) {
      await records.append('dlq.long', long);
      await records.put('dlq.long', `k${at}`, long);
    }
    const page = await json<{ records: unknown[]; next: number }>(ask('/v1/records/dlq.long'));
    expect([page.records.length, page.next]).toEqual([4, 4]);
    const values = await json<{ values: unknown[]; next: string }>(
      ask('/v1/records/dlq.long/values'),
    );
    expect([values.values.length, values.next]).toEqual([4, 'k3']);
    expect(await records.read('dlq.long', 0, 1_000)).toHaveLength(7);
    expect(await records.read('dlq.long', 0, 6)).toHaveLength(6);
    expect((await records.list('dlq.long')).map(({ key }) => key)).toEqual(
      Array.from({ length: 7 }, (_, at) => `k${at}`),
    );
  });

  test('of other kinds are out of reach', async () => {
    const { operator, ask, post } = await far();
    expect(await codeOf(operator.records.append('audit', {}))).toBe('config.invalid');
    expect(await codeOf(operator.records.list('pause'))).toBe('config.invalid');
    expect(await refusal(ask('/v1/records/audit'))).toEqual([400, 'config.invalid']);
    expect(await refusal(ask('/v1/records/dlq.'))).toEqual([400, 'config.invalid']);
    expect(await refusal(post('/v1/records/pause/values', { key: '#', value: 1 }))).toEqual([
      400,
      'config.invalid',
    ]);
    expect(await refusal(post('/v1/records/dlq.a', {}))).toEqual([400, 'config.invalid']);
  });
});

test('a line of the audit record has the name of the caller', async () => {
  const { operator, spool } = await far();
  await operator.recordAction('sweep', { queue: 'orders.dlq', moved: 3 });
  expect(await spool.operator({ by: 'ops' }).audit()).toMatchObject([
    { by: 'ann', action: 'sweep', ids: [], details: { queue: 'orders.dlq', moved: 3 } },
  ]);
});

test('whoever may read looks at records, and nobody but an operator changes anything', async () => {
  const { ask, post } = await setup({ settings: TOKENS });
  type Send = (as: RequestInit) => Promise<Response>;
  const reads: readonly Send[] = [
    (as) => ask('/v1/records/dlq.a', as),
    (as) => ask('/v1/records/dlq.a/values', as),
    (as) => ask('/v1/records/dlq.a/values?key=k', as),
  ];
  const writes: readonly Send[] = [
    (as) => post('/v1/replay', { ids: ['x'], replay: 'r' }, as),
    (as) => post('/v1/copies', { copies: [{ ...COPY, bodyBase64: '' }] }, as),
    (as) => post('/v1/audit', { action: 'sweep', details: {} }, as),
    (as) => post('/v1/records/dlq.a', { record: 1 }, as),
    (as) => ask('/v1/records/dlq.a?upTo=1', { method: 'DELETE', ...as }),
    (as) => post('/v1/records/dlq.a/values', { key: 'k', value: 1 }, as),
    (as) => ask('/v1/records/dlq.a/values?key=k', { method: 'DELETE', ...as }),
  ];
  for (const role of ROLES) {
    const as = { headers: { authorization: `Bearer secret-${role}` } };
    const statuses = async (sends: readonly Send[]): Promise<Set<number>> =>
      new Set(await Promise.all(sends.map(async (send) => (await send(as)).status)));
    expect([role, [...(await statuses(reads))]]).toEqual([role, [role === 'post' ? 403 : 200]]);
    const mayWrite = role === 'operate' || role === 'admin';
    expect([role, [...(await statuses(writes))]]).toEqual([role, [mayWrite ? 200 : 403]]);
  }
});
