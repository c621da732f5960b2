/** Letters of a spool: what they say of a message, what is asked of the store, what goes together. */
import { held, PermanentError } from 'respool';
import { describe, expect, test } from 'vitest';
import { createSpoolLetters } from 'respool/dead-letters';
import type {
  DeadLetters,
  LetterVerdict,
  LetterQuery,
  SettleResult,
} from '../../src/ports/dead-letters.ts';
import { groupOf } from '../../src/core/letter-query.ts';
import { all, codeOf, setup as world, type World, type WorldOptions } from '../spool/setup.ts';

async function setup(options: WorldOptions = {}) {
  const one = await world({ isStarted: false, ...options });
  const operator = one.spool.operator({ by: 'ann' });
  return { ...one, operator, letters: createSpoolLetters(operator) };
}

interface Given {
  readonly id: string;
  readonly topic?: string;
  readonly destination?: string;
  readonly code?: string;
  readonly reason?: string;
}

/** Puts a message down that bounces at once. */
async function bounce({ spool }: Pick<World, 'spool'>, given: Given): Promise<void> {
  const { code = 'smtp.550', reason = 'no such user', topic = 'a', ...rest } = given;
  await spool.enqueue({ ...rest, topic, body: 'hi', headers: { 'Content-Type': 'a/b' } });
  await again({ spool }, given.id, code, reason);
}

async function again(
  { spool }: Pick<World, 'spool'>,
  id: string,
  code = 'x',
  reason = 'no',
): Promise<void> {
  await spool.process(id, () => {
    throw new PermanentError(code, reason);
  });
}

const lettersIn = async (letters: DeadLetters, query: LetterQuery = {}) =>
  (await all(letters.look({ query }))).map(({ letter }) => letter);
const idsIn = async (letters: DeadLetters, query?: LetterQuery) =>
  (await lettersIn(letters, query)).map(({ id }) => id);

const send = (replay: string, more: object = {}): LetterVerdict => ({
  kind: 'send',
  replay,
  by: 'ann',
  ...more,
});

/** Gives everything the same fate, all at once. */
async function settleAtOnce(letters: DeadLetters, fate: LetterVerdict): Promise<SettleResult[]> {
  const taken = await all(letters.take({ isWanted: () => true, inHand: 1_000 }));
  return Promise.all(taken.map((one) => letters.settle(one, fate)));
}

describe('a letter of a spool', () => {
  test('of a bounce tells what failed, where it was going and how often it died', async () => {
    const { spool, letters, clock } = await setup();
    const enqueuedAt = clock.now();
    await bounce({ spool }, { id: 'm-1', topic: 'mail.send', destination: 'example.org' });
    await spool.operator({ by: 'ops' }).replay(['m-1'], { replay: 'r1' });
    await clock.advance(5);
    await again({ spool }, 'm-1', 'smtp.551', 'user moved');
    const [letter] = await lettersIn(letters);
    const what = { code: 'smtp.551', reason: 'user moved' };
    expect(letter).toEqual({
      id: 'm-1',
      key: 'm-1.1',
      kind: 'dead',
      place: 'bounce',
      topic: 'mail.send',
      origin: 'example.org',
      home: { kind: 'topic', topic: 'mail.send' },
      ...what,
      group: groupOf({ ...what, at: 'mail.send', origin: 'example.org' }),
      deaths: 2,
      attempts: 1,
      replays: 1,
      replayedBy: 'r1',
      enqueuedAt,
      diedAt: enqueuedAt + 5,
      size: 2,
      contentType: 'a/b',
      headers: { 'Content-Type': 'a/b', 'respool-replay': 'r1' },
    });
  });

  test('that is held tells why it is held, and an operator’s bounce that it was one', async () => {
    const { spool, letters } = await setup();
    await spool.enqueue({ id: 'm-1', topic: 'a' });
    await spool.process('m-1', () => held('a person must look', 'odd'));
    await spool.enqueue({ id: 'm-2', topic: 'a' });
    await spool.operator({ by: 'ops' }).bounce(['m-2'], { reason: 'never mind' });
    await bounce({ spool }, { id: 'm-3' });
    await spool.operator({ by: 'ops' }).hold(['m-3'], { reason: 'parked' });
    expect(
      (await lettersIn(letters)).map(({ kind, code, reason, deaths }) => [
        kind,
        code,
        reason,
        deaths,
      ]),
    ).toEqual([
      ['parked', 'odd', 'a person must look', 0],
      ['dead', 'operator.bounce', 'never mind', 1],
      ['parked', 'operator.hold', 'parked', 1],
    ]);
  });

  test('of the archive is one only where that was asked for; a kept copy has no home', async () => {
    const { spool, operator, letters } = await setup({
      retention: { delivered: { archive: '1d' } },
    });
    await spool.enqueue({ id: 'm-1', topic: 'a' });
    await spool.process('m-1', () => undefined);
    await bounce({ spool }, { id: 'm-2' });
    await spool.operator({ by: 'ops' }).remove(['m-2'], { reason: 'spam' });
    const headers = { 'respool-amqp': '{}' };
    const copy = { id: 'x', topic: 'rabbit.q', headers, body: Buffer.of(1), reason: 'removed' };
    await operator.keep([copy]);
    expect(await lettersIn(letters)).toEqual([]);
    const archive = createSpoolLetters(operator, { kinds: ['archived'] });
    const found = await lettersIn(archive);
    expect(
      found
        .map(({ code, reason, home }) => [code, reason, home?.kind])
        .toSorted((a, b) => String(a).localeCompare(String(b))),
    ).toEqual([
      ['letter.kept', 'removed', undefined],
      ['operator.remove', 'spam', 'topic'],
      ['unknown', '', 'topic'],
    ]);
    expect(await archive.count()).toBe(3);
    expect(await idsIn(archive, { kinds: ['dead'] })).toEqual([]);
    expect(await idsIn(archive, { code: 'unknown' })).toEqual(['m-1']);
  });

  test('keeps its key while nothing happens, and has another after each replay', async () => {
    const { spool, letters } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    const keyNow = async () => (await lettersIn(letters))[0]?.key;
    const key = await keyNow();
    await spool.operator({ by: 'ops' }).setHeaders('m-1', { note: 'x' });
    expect(await keyNow()).toBe(key);
    await spool.operator({ by: 'ops' }).retry(['m-1']);
    await again({ spool }, 'm-1');
    expect(await keyNow()).not.toBe(key);
  });

  test('can be of kinds that there are, and of no other', () => {
    const make = () => createSpoolLetters({} as never, { kinds: ['lost' as 'dead'] });
    expect(make).toThrow('allowed is dead | parked | archived');
  });
});

describe('looking', () => {
  test('finds by everything that a query can ask', async () => {
    const { spool, letters, clock } = await setup();
    const start = clock.now();
    await bounce({ spool }, { id: 'm-1', destination: 'example.org', reason: 'oh' });
    await clock.advance(10);
    await bounce({ spool }, { id: 'm-2', topic: 'b.c', code: 'http.500', reason: 'Broken' });
    await spool.operator({ by: 'ops' }).replay(['m-2'], { replay: 'r' });
    await again({ spool }, 'm-2', 'http.500', 'Broken');
    const [first, second] = await lettersIn(letters);
    const table: readonly (readonly [LetterQuery, readonly string[]])[] = [
      [{ ids: ['m-2', 'm-1', 'No Id'] }, ['m-1', 'm-2']],
      [{ ids: [] }, []],
      [{ topic: 'b.*' }, ['m-2']],
      [{ origin: 'example.org' }, ['m-1']],
      [{ origin: '' }, ['m-2']],
      [{ code: 'http.500' }, ['m-2']],
      [{ group: first?.group ?? '' }, ['m-1']],
      [{ text: 'BROKEN' }, ['m-2']],
      // No store looks for text in destinations.
      [{ text: 'example' }, ['m-1']],
      [{ header: { name: 'respool-replay' } }, ['m-2']],
      [{ before: start + 10 }, ['m-1']],
      [{ after: start }, ['m-2']],
      [{ deathsAbove: 1 }, ['m-2']],
      [{ kinds: ['dead'] }, ['m-1', 'm-2']],
      [{ kinds: ['archived'] }, []],
    ];
    for (const [query, ids] of table) {
      expect([query, await idsIn(letters, query)]).toEqual([query, ids]);
    }
    expect(second?.diedAt).toBe(start + 10);
  });

  test('goes over many pages, and not over what comes later', async () => {
    const { spool, letters } = await setup();
    await spool.enqueueMany(
      Array.from({ length: 1_100 }, (_, at) => ({ id: `m-${1_000 + at}`, topic: 'a' })),
    );
    const ids = (await all(spool.list())).map(({ envelope }) => envelope.id);
    await spool.operator({ by: 'ops' }).bounce(ids);
    const seen: string[] = [];
    for await (const { letter } of letters.look()) {
      if (seen.length === 0) await bounce({ spool }, { id: 'n-1' });
      seen.push(letter.id);
    }
    expect(seen).toEqual(ids);
    expect(await idsIn(letters, { ids: [...ids, 'n-1'] })).toHaveLength(1_101);
    expect(await letters.count()).toBe(1_101);
  });

  test('goes on where a store answers with an empty page that has a next', async () => {
    const { spool, operator } = await setup();
    for (const id of ['m-1', 'm-2']) await bounce({ spool }, { id });
    // As a sealed one does when it looked at very many.
    const slow = createSpoolLetters({
      ...operator,
      page: async (options = {}) => {
        const { after, ...asked } = options;
        if (after === undefined) return { entries: [], corrupt: [], next: 'start' };
        return operator.page(after === 'start' ? asked : options);
      },
    });
    expect(await idsIn(slow, { code: 'smtp.550' })).toEqual(['m-1', 'm-2']);
  });

  test('ends with its signal', async () => {
    const { spool, letters } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    const walk = letters.look({ signal: AbortSignal.abort(new Error('enough')) });
    await expect(all(walk)).rejects.toThrow('enough');
  });
});

describe('settling', () => {
  test('sends what comes together in one call', async () => {
    const { spool, letters, count } = await setup();
    for (let at = 0; at < 20; at += 1) await bounce({ spool }, { id: `m-${10 + at}` });
    const before = count('commit');
    const settled = await settleAtOnce(letters, send('r1'));
    expect(settled).toEqual(Array.from({ length: 20 }, () => ({ kind: 'done' })));
    expect(count('commit') - before).toBe(1);
    const lines = (await spool.operator({ by: 'ops' }).audit(0, 1_000)).filter(
      ({ action }) => action === 'replay',
    );
    expect(lines.flatMap(({ ids }) => ids)).toHaveLength(20);
    expect(lines.every(({ by }) => by === 'ann')).toBe(true);
  });

  test('gives each letter its own repair, also when they come together', async () => {
    const { spool, letters, operator } = await setup();
    for (const id of ['m-1', 'm-2', 'm-3']) await bounce({ spool }, { id });
    const settling: Promise<SettleResult>[] = [];
    for await (const taken of letters.take({ isWanted: () => true })) {
      const body = Buffer.from(`mended ${taken.letter.id}`);
      settling.push(letters.settle(taken, send('r1', { change: { body } })));
    }
    expect(await Promise.all(settling)).toEqual([DONE, DONE, DONE]);
    const texts = ['m-1', 'm-2', 'm-3'].map(async (id) =>
      Buffer.concat(await all(await operator.body(id))).toString(),
    );
    expect(await Promise.all(texts)).toEqual(['mended m-1', 'mended m-2', 'mended m-3']);
  });

  test('to a queue fails, and says what to do', async () => {
    const { spool, letters } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    const to = { kind: 'queue', exchange: '', key: 'q' };
    expect(await settleAtOnce(letters, send('r1', { to }))).toEqual([
      { kind: 'failed', code: 'route.invalid', reason: expect.stringContaining('give a topic') },
    ]);
    expect(await idsIn(letters)).toEqual(['m-1']);
  });

  test('to a topic that cannot be one fails, and the letter stays', async () => {
    const { spool, letters } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    const to = { kind: 'topic', topic: 'no good' };
    expect(await settleAtOnce(letters, send('r1', { to }))).toMatchObject([
      { kind: 'failed', code: 'message.invalid', reason: expect.stringContaining('no good') },
    ]);
    expect(await idsIn(letters)).toEqual(['m-1']);
  });

  test.each<[string, LetterVerdict]>([
    ['sent', send('r2')],
    ['parked', { kind: 'park', code: 'x', reason: 'y', by: 'ann' }],
    ['removed', { kind: 'remove', hard: true, reason: 'y', by: 'ann' }],
  ])('what was sent by another and died again meanwhile is not %s', async (_, fate) => {
    const { spool, letters, status } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    for await (const taken of letters.take({ isWanted: () => true })) {
      await spool.operator({ by: 'ops' }).replay(['m-1'], { replay: 'r1' });
      await again({ spool }, 'm-1');
      expect(await letters.settle(taken, fate)).toEqual({ kind: 'gone' });
    }
    expect(await status('m-1')).toMatchObject({ state: 'bounce', replays: 1 });
  });

  test('an answer that was lost is looked into: what was sent is done', async () => {
    const { spool, letters, store } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    store.faults.plan = (operation) => (operation === 'commit' ? 'after' : 'ok');
    expect(await settleAtOnce(letters, send('r1'))).toEqual([DONE]);
  });

  test('what nobody can tell is unsure', async () => {
    const { spool, letters, store } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    for await (const taken of letters.take({ isWanted: () => true })) {
      store.faults.plan = (operation) =>
        operation === 'commit' || operation === 'list' ? 'before' : 'ok';
      expect(await letters.settle(taken, send('r1'))).toMatchObject({
        kind: 'unsure',
        reason: expect.stringContaining('a planned fault'),
      });
      expect(
        await letters.settle(taken, { kind: 'remove', hard: true, reason: '', by: 'ann' }),
      ).toMatchObject({ kind: 'failed', code: 'store.unavailable' });
      store.faults.plan = () => 'ok';
    }
    expect(await idsIn(letters)).toEqual(['m-1']);
  });

  test('parking what is parked, and removing what was removed softly, is done', async () => {
    const { spool, operator, letters, status } = await setup();
    await bounce({ spool }, { id: 'm-1' });
    const park: LetterVerdict = { kind: 'park', code: 'replay.limit', reason: 'enough', by: 'ann' };
    expect(await settleAtOnce(letters, park)).toEqual([DONE]);
    expect(await settleAtOnce(letters, park)).toEqual([DONE]);
    expect((await status('m-1')).because).toMatchObject({ text: 'replay.limit: enough' });
    const archive = createSpoolLetters(operator, { kinds: ['archived', 'parked'] });
    const remove: LetterVerdict = { kind: 'remove', hard: false, reason: 'old', by: 'ann' };
    expect(await settleAtOnce(archive, remove)).toEqual([DONE]);
    expect(await settleAtOnce(archive, remove)).toEqual([DONE]);
    expect(await status('m-1')).toMatchObject({ state: 'archived', ending: 'removed' });
  });
});

const DONE: SettleResult = { kind: 'done' };

describe('taking', () => {
  test('waits while as many are in hand as may be', async () => {
    const { spool, letters } = await setup();
    for (const id of ['m-1', 'm-2', 'm-3']) await bounce({ spool }, { id });
    const passing = letters.take({ isWanted: () => true, inHand: 2 })[Symbol.asyncIterator]();
    const first = await passing.next();
    await passing.next();
    let isThird = false;
    const third = passing.next().then((step) => {
      isThird = true;
      return step;
    });
    // A look that takes as long as the third would.
    await idsIn(letters);
    expect(isThird).toBe(false);
    await letters.settle(first.value, { kind: 'leave' });
    expect((await third).value).toMatchObject({ letter: { id: 'm-3' } });
  });

  test('takes 1 to 1,000 in hand', async () => {
    const { letters } = await setup();
    for (const inHand of [0, 1_001]) {
      expect(await codeOf(all(letters.take({ isWanted: () => true, inHand })))).toBe(
        'config.invalid',
      );
    }
  });
});

test('since tells apart what waits, failed once, bounced, is held, delivered or gone', async () => {
  const { spool, letters } = await setup({ retention: { delivered: { archive: '1d' } } });
  const ids = [
    'waits',
    'deferred',
    'bounced',
    'held',
    'delivered',
    'removed',
    'forgotten',
    'other',
  ];
  for (const id of ids) await bounce({ spool }, { id });
  await spool.operator({ by: 'ops' }).replay(ids.slice(0, -1), { replay: 'r1' });
  await spool.operator({ by: 'ops' }).replay(['other'], { replay: 'r2' });
  await spool.process('deferred', () => {
    throw new Error('not yet');
  });
  await again({ spool }, 'bounced');
  await again({ spool }, 'other');
  await spool.operator({ by: 'ops' }).hold(['held']);
  await spool.process('delivered', () => undefined);
  await spool.operator({ by: 'ops' }).remove(['removed']);
  await spool.operator({ by: 'ops' }).remove(['forgotten'], { hard: true });
  expect(await letters.since('r1', ids)).toEqual({
    failed: [
      { id: 'deferred', code: 'error', reason: 'not yet' },
      { id: 'bounced', code: 'x', reason: 'no' },
      { id: 'held', code: 'operator.hold', reason: 'held by an operator' },
    ],
    delivered: ['delivered'],
    // Of the last one it is another replay that will hear.
    gone: ['removed', 'forgotten', 'other'],
  });
});
