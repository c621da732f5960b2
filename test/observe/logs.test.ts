/** A pino fits wherever a logger is taken; each fact is one line of it. */
import { pino } from 'pino';
import { fixed } from 'respool';
import { logging } from 'respool/middleware';
import { describe, expect, test } from 'vitest';
import { openSqliteOutbox } from '../outbox/core-setup.ts';
import { told } from '../outbox/relay-ground.ts';
import { TestSink } from '../outbox/relay-setup.ts';
import { consume, Hands, nextEvent, ownName } from '../rabbit/ground.ts';
import { setup } from '../spool/setup.ts';

/** A pino, and the lines it wrote. */
function makePino(level = 'debug') {
  const lines: Record<string, unknown>[] = [];
  const stream = {
    write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  };
  const logger = pino({ level }, stream);
  const said = (text: string) => lines.find(({ msg }) => msg === text);
  return { logger, lines, said };
}

const PASSWORD = 'canary7f3a91c04be2';
const fail = (): never => {
  throw new Error(`cannot reach amqp://robot:${PASSWORD}@mq`);
};

describe('a pino', () => {
  test('of a spool gets a line per event, with its level, and no password of a reason', async () => {
    const { logger, lines, said } = makePino();
    const policies = { default: fixed('1m', { attempts: 2 }) };
    const { spool, clock } = await setup({ logger, policies });
    let events = 0;
    spool.on('*', () => (events += 1));
    spool.handle('a', fail);
    const { id } = await spool.enqueue({ topic: 'a', body: PASSWORD, headers: { x: PASSWORD } });
    await clock.advance('2m');
    await spool.stop();
    expect(said('deferred')).toMatchObject({ level: 30, id, topic: 'a', attempt: 1 });
    expect(said('deferred')).toMatchObject({
      because: { text: 'cannot reach amqp://(secret)@mq' },
      failure: { reason: 'cannot reach amqp://(secret)@mq' },
    });
    expect(said('bounced')).toMatchObject({ level: 40, id, spent: true });
    expect(said('ended')).toMatchObject({ level: 20, outcome: 'failed', code: 'error' });
    expect(lines.filter(({ kind }) => kind !== 'engine-started')).toHaveLength(events);
    expect(JSON.stringify(lines)).not.toContain(PASSWORD);
  });

  test('that wants no debug lines gets none, and they are not made', async () => {
    const { logger, lines } = makePino('info');
    const { spool, clock } = await setup({ logger });
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    const kinds = lines.map(({ msg }) => msg);
    expect(kinds).toEqual(['engine-started', 'delivered']);
  });

  test('or another logger that fails, at once or later, harms nothing', async () => {
    const later = async (): Promise<never> => {
      throw new Error('the logger is broken later');
    };
    const broken = {
      debug: fail,
      info: later,
      warn: later,
      error: fail,
      isLevelEnabled: () => true,
    };
    const { spool, clock, kinds } = await setup({ logger: broken });
    spool.handle('a', () => undefined);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(kinds()).toContain('delivered');
  });

  test('of a middleware gets how attempts ended', async () => {
    const { logger, lines } = makePino();
    const { spool, clock } = await setup({ middleware: [logging({ logger })] });
    spool.handle('a', fail);
    await spool.enqueue({ topic: 'a' });
    await clock.settle();
    expect(lines.map(({ msg }) => msg)).toEqual(['attempt started', 'attempt ended: failed']);
    expect(lines[1]).toMatchObject({ reason: 'cannot reach amqp://(secret)@mq' });
  });

  test('of an outbox gets what its relay does', async () => {
    const { logger, said } = makePino();
    const { outbox } = await openSqliteOutbox({ logger });
    await using relay = outbox.relay({ to: new TestSink() });
    const delivered = told(relay, 'delivered');
    const { id } = outbox.transaction((tx) => outbox.emit(tx, 'order.new', {}));
    await relay.start();
    await delivered;
    expect(said('delivered')).toMatchObject({ level: 30, id, topic: 'order.new' });
  });

  test('of a consumer gets its topology, its attempts and its end', async () => {
    const { logger, said } = makePino();
    const queue = ownName('logs');
    const consumer = await consume({ queue, logger }, () => undefined);
    const hands = await Hands.open();
    const delivered = nextEvent(consumer, 'delivered');
    await hands.publish('', queue, { n: 1 }, { messageId: 'm-1' });
    await delivered;
    await consumer.stop();
    expect(said('topology')).toMatchObject({ level: 30, queue, act: 'applied' });
    expect(said('delivered')).toMatchObject({ level: 30, id: 'm-1', attempt: 1 });
    expect(said('engine-stopped')).toMatchObject({ level: 30 });
  });
});
