/** Processes of one store record what they handle: the others neither hold nor report it. */
import { createSpool, type Spool } from 'respool';
import { SimClock } from 'respool/testkit';
import { describe, expect, test } from 'vitest';
import { atEnd, makeFolder } from '../stores/sqlite/setup.ts';
import { DAY, failing, HOUR, MINUTE, setup, type World, type WorldOptions } from './setup.ts';

const traits = { processes: 'many' } as const;

interface HandlersRecord {
  readonly patterns: readonly string[];
  readonly at: number;
}

/** A process that handles these topics, on the store of another if there is one. */
async function process(
  patterns: readonly string[],
  other?: World,
  options: WorldOptions = {},
): Promise<World> {
  const shared = other === undefined ? {} : { with: other };
  const world = await setup({ traits, ...shared, ...options, isStarted: false });
  for (const pattern of patterns) world.spool.handle(pattern, () => undefined);
  await world.spool.start();
  await world.clock.settle();
  return world;
}

async function recorded({ store }: World): Promise<readonly HandlersRecord[]> {
  return (await store.records.list('handlers')).map(({ value }) => value as HandlersRecord);
}

/** Writes a record as a process does whose handlers these are. */
async function record({ store }: World, patterns: readonly string[], at: number): Promise<void> {
  await store.records.put('handlers', `of ${patterns.join()}`, { patterns, at });
}

async function stateOf({ status }: World, id: string): Promise<string> {
  return (await status(id)).state;
}

function missing({ events }: World): string[] {
  return events.flatMap((event) => (event.kind === 'handler-missing' ? [event.topic] : []));
}

function pause({ spool }: { readonly spool: Spool }, pattern: string): Promise<unknown> {
  return spool.operator({ by: 'ops' }).pause(pattern);
}

function resume({ spool }: { readonly spool: Spool }, pattern: string): Promise<unknown> {
  return spool.operator({ by: 'ops' }).resume(pattern);
}

describe('a topic that another process handles', () => {
  test('is not held while that process is stopped for an hour, and is delivered afterwards', async () => {
    const mail = await process(['mail.*']);
    const web = await process(['web.*'], mail);
    await mail.spool.stop();
    const { id } = await web.spool.enqueue({ topic: 'mail.a' });
    await web.clock.advance('1h');
    expect(await stateOf(web, id)).toBe('incoming');
    const { handler, attempts } = failing(0);
    const back = await setup({ traits, with: web });
    back.spool.handle('mail.*', handler);
    await web.clock.advance('1s');
    expect(attempts).toEqual([1]);
    // A process reports what it has no handler for itself, at once.
    expect(missing(web)).toEqual(['mail.a']);
  });

  test('is not held while that process has a backlog', async () => {
    const mail = await setup({ traits, isStarted: false });
    mail.spool.handle('mail.*', () => new Promise(() => undefined), {
      concurrency: 1,
      timeout: '1d',
    });
    await mail.spool.start();
    const web = await process(['web.*'], mail);
    const results = await web.spool.enqueueMany([{ topic: 'mail.a' }, { topic: 'mail.b' }]);
    await web.clock.advance('30m');
    const states = await Promise.all(results.map(({ id }) => stateOf(web, id)));
    expect(states.toSorted()).toEqual(['active', 'incoming']);
  });

  test('is held when no process has recorded it', async () => {
    const mail = await process(['mail.*']);
    const web = await process(['web.*'], mail);
    const { id } = await web.spool.enqueue({ topic: 'sms' });
    await web.clock.advance('4m');
    expect(await stateOf(web, id)).toBe('incoming');
    await web.clock.advance('3m');
    expect(await web.status(id)).toMatchObject({
      state: 'hold',
      because: { code: 'handler.missing', by: 'caretaker' },
    });
    expect(missing(web)).toContain('sms');
  });

  test('counts for a day after its last record, which is removed then', async () => {
    const mail = await process(['mail.*']);
    await mail.spool.stop();
    const web = await process(['web.*'], mail);
    const { id } = await web.spool.enqueue({ topic: 'mail.a' });
    await web.clock.advance(DAY - MINUTE);
    expect(await stateOf(web, id)).toBe('incoming');
    expect(await recorded(web)).toHaveLength(2);
    await web.clock.advance(5 * MINUTE);
    expect(await stateOf(web, id)).toBe('hold');
    expect((await recorded(web)).map(({ patterns }) => patterns)).toEqual([['web.*']]);
  });
});

describe('a topic that is paused', () => {
  // The process that handles it is of an older version, and records nothing.
  test('is not held before five minutes after its resume, though nobody recorded it', async () => {
    const web = await process(['web.*']);
    await pause(web, 'mail.#');
    const { id } = await web.spool.enqueue({ topic: 'mail.a' });
    await web.clock.advance('1h');
    expect(await stateOf(web, id)).toBe('incoming');
    await resume(web, 'mail.#');
    await web.clock.advance('4m59s');
    expect(await stateOf(web, id)).toBe('incoming');
    await web.clock.advance('2m');
    expect(await stateOf(web, id)).toBe('hold');
  });

  test('is known as such from another process that pauses and resumes it, or everything', async () => {
    const web = await process(['web.*']);
    const ops = await setup({ traits, with: web, isStarted: false });
    for (const pattern of ['mail.a', '#']) {
      const { id } = await web.spool.enqueue({ topic: 'mail.a' });
      await web.clock.advance('4m');
      await pause(ops, pattern);
      await web.clock.advance('20m');
      await resume(ops, pattern);
      await web.clock.advance('4m59s');
      expect(await stateOf(web, id)).toBe('incoming');
      await web.clock.advance('3m');
      expect(await stateOf(web, id)).toBe('hold');
    }
  });
});

describe('the record of a process', () => {
  test('is one for all its restarts and replicas', async () => {
    const first = await process(['mail.*', 'web']);
    await first.spool.stop();
    for (let restart = 0; restart < 10; restart += 1) {
      const again = await process(['web', 'mail.*', 'web'], first);
      await again.clock.advance(11 * MINUTE);
      await again.spool.stop();
    }
    const last = await process(['web', 'mail.*'], first);
    expect(await recorded(last)).toMatchObject([{ patterns: ['mail.*', 'web'] }]);
  });

  test('is written again after an hour, not in each round', async () => {
    const world = await process(['mail.*']);
    await world.clock.advance(HOUR - MINUTE);
    expect(world.count('records.put')).toBe(1);
    await world.clock.advance(2 * MINUTE);
    expect(world.count('records.put')).toBe(2);
    await world.clock.advance(DAY);
    expect(world.count('records.put')).toBe(26);
    expect(await recorded(world)).toHaveLength(1);
  });

  test('has the handlers that come later, however many at once, in one write', async () => {
    const world = await process(['a']);
    world.calls.length = 0;
    for (let at = 0; at < 50; at += 1) world.spool.handle(`late.${at}`, () => undefined);
    await world.clock.advance('1s');
    expect(
      (await recorded(world)).map(({ patterns }) => patterns.length).toSorted((a, b) => a - b),
    ).toEqual([1, 51]);
    expect(world.count('records.put')).toBe(1);
  });

  test('follows handlers that come and go all the time once in a minute', async () => {
    const world = await process(['a']);
    world.calls.length = 0;
    for (let second = 0; second < 600; second += 1) {
      const undo = world.spool.handle(`chat.${second}`, () => undefined);
      await world.clock.advance('1s');
      undo();
    }
    // The round of the caretaker, too.
    expect(world.count('records.put')).toBeLessThanOrEqual(21);
  });

  test('goes without a handler that was taken away, from its next one on', async () => {
    const world = await process(['a']);
    const undo = world.spool.handle('b', () => undefined);
    await world.clock.advance('2s');
    undo();
    await world.clock.advance('26h');
    expect((await recorded(world)).map(({ patterns }) => patterns)).toEqual([['a']]);
  });

  test('does not exist for a process without handlers, or not started, or alone on its store', async () => {
    const idle = await setup({ traits, isStarted: false });
    idle.spool.handle('a', () => undefined);
    await idle.spool.operator({ by: 'ops' }).cleanUp();
    expect(await recorded(idle)).toEqual([]);
    const producer = await process([]);
    producer.spool.onBounce('#', () => undefined);
    await producer.clock.advance('2h');
    expect(await recorded(producer)).toEqual([]);
    const alone = await process(['a'], undefined, { traits: { processes: 'one' } });
    await alone.clock.advance('2h');
    expect(await recorded(alone)).toEqual([]);
  });

  test('is there also for a process that leaves topics without a handler alone', async () => {
    const world = await process(['a'], undefined, { unhandled: 'leave' });
    expect(await recorded(world)).toHaveLength(1);
  });

  test('has a thousand handlers; of more than 64 KiB it says "#"', async () => {
    const patterns = (count: number): string[] =>
      Array.from({ length: count }, (_, at) => `${'x'.repeat(50)}.${at}`);
    const [thousand] = await recorded(await process(patterns(1_000)));
    expect(thousand?.patterns).toHaveLength(1_000);
    const [more] = await recorded(await process(patterns(2_000)));
    expect(more?.patterns).toEqual(['#']);
  });

  test('that cannot be written is trouble, no error of start(), and is written later', async () => {
    const world = await setup({ traits, isStarted: false });
    world.spool.handle('a', () => undefined);
    world.store.faults.plan = (operation) => (operation === 'records.put' ? 'before' : 'ok');
    await world.spool.start();
    await world.clock.settle();
    expect(world.events).toContainEqual(
      expect.objectContaining({
        kind: 'trouble',
        doing: 'recording the handlers of this process',
      }),
    );
    world.store.faults.plan = () => 'ok';
    await world.clock.advance('1m');
    expect(await recorded(world)).toHaveLength(1);
  });

  test('is one of a thousand at the most: the oldest go', async () => {
    const world = await process([]);
    const now = world.clock.now();
    for (let at = 0; at < 1_010; at += 1) await record(world, [`t${at}`], now - at);
    world.spool.handle('a', () => undefined);
    await world.clock.advance('1s');
    const left = new Set((await recorded(world)).flatMap(({ patterns }) => patterns));
    expect(left.size).toBe(1_001);
    expect(left.has('t999')).toBe(true);
    expect(left.has('t1000')).toBe(false);
  });

  test('that is damaged, or of a clock that was a day ahead, does not count', async () => {
    const web = await process(['web.*']);
    await web.store.records.put('handlers', 'odd', 'mail.*');
    await record(web, ['mail.*'], web.clock.now() + 2 * DAY);
    const { id } = await web.spool.enqueue({ topic: 'mail.a' });
    await web.clock.advance('7m');
    expect(await stateOf(web, id)).toBe('hold');
    expect(await recorded(web)).toHaveLength(1);
  });

  test('that cannot be read holds nothing', async () => {
    const web = await process(['web.*']);
    const { id } = await web.spool.enqueue({ topic: 'mail.a' });
    web.store.faults.plan = (operation) => (operation === 'records.list' ? 'before' : 'ok');
    await web.clock.advance('20m');
    expect(await stateOf(web, id)).toBe('incoming');
  });

  test('is read by the caretaker only while a topic that it does not handle is overdue', async () => {
    const web = await process(['web.*']);
    web.calls.length = 0;
    await web.spool.enqueue({ topic: 'mail.a', delay: '30m' });
    await web.clock.advance('20m');
    const looks = web.calls.filter(
      ({ operation, args }) => operation === 'records.list' && args[0] === 'handlers',
    );
    expect(looks).toEqual([]);
    await web.clock.advance('20m');
    expect(web.calls.some(({ args }) => args[0] === 'handlers')).toBe(true);
  });
});

test('on SQLite a process holds what no other one handles, and leaves the rest', async () => {
  const clock = new SimClock();
  const path = await makeFolder();
  const open = (): Spool => createSpool({ path, clock });
  const mail = open();
  mail.handle('mail.*', () => undefined);
  await mail.start();
  await mail.stop();
  const web = open();
  atEnd(() => web.stop());
  web.handle('web.*', () => undefined);
  const told: string[] = [];
  web.on('handler-missing', ({ topic }) => told.push(topic));
  await web.start();
  const [waits, held] = await web.enqueueMany([{ topic: 'mail.a' }, { topic: 'sms' }]);
  await clock.advance('1h');
  await web.operator({ by: 'ops' }).cleanUp();
  expect(await web.get(waits?.id ?? '')).toMatchObject({ status: { state: 'incoming' } });
  expect(await web.get(held?.id ?? '')).toMatchObject({ status: { state: 'hold' } });
  // Each process reports what it has no handler for itself.
  expect(new Set(told)).toEqual(new Set(['mail.a', 'sms']));
});
