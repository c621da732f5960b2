/** A relay whose broker is killed and comes back: nothing is lost, nothing spins, no attempt is spent. */
import { connect } from 'amqplib';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { transaction } from 'respool/outbox';
import { limitBodies } from '../rabbit/faults/alarms.ts';
import { type PrivateServer, privateServer, skipReason } from '../services/index.ts';
import type { Clock } from 'respool';
import { countQueries, ground, idsOf, isClaim, told } from './relay-ground.ts';
import { systemClock } from '../time.ts';

const START_TIMEOUT_MS = 15 * 60_000;
const ROWS = 10_000;
const CONCURRENCY = 500;
const QUEUE = 'outbox.safe';
/** The first pause of a relay; no other timer has this length, nor that of the next pauses. */
const PAUSE_MS = 1_013;
/** What a broker takes unless told otherwise. */
const MESSAGE_SIZE_MAX: number = 128 * 2 ** 20;

const reason = skipReason('rabbitmq') ?? skipReason('postgres');

describe.skipIf(reason !== undefined)('a broker that is killed', () => {
  let server: PrivateServer;

  beforeAll(async () => {
    server = await privateServer('rabbitmq');
  }, START_TIMEOUT_MS);

  afterAll(() => server.stop());

  test('is left alone until it is back, with 10,000 rows that wait', async () => {
    const { clock, third } = withoutThirdPause();
    const place = await ground({ rabbitUrl: server.url, clock });
    const { emit, relay, broker, pool, schema } = place;
    const counted = countQueries(place);
    const setUp = await connect(server.url);
    const channel = await setUp.createChannel();
    // Not a quorum queue: RabbitMQ 3.10 forgets one that was declared right before it is killed.
    await channel.assertQueue(QUEUE, { durable: true });
    await channel.bindQueue(QUEUE, broker.exchange, 'q.#');
    setUp.on('error', () => undefined);
    const ids = await emit(ROWS);
    const one = relay({ concurrency: CONCURRENCY, pauseAfter: PAUSE_MS });
    const gone = told(one, 'trouble');
    await one.start();
    await broker.arrived(500);
    await server.kill('SIGKILL');
    await gone;
    const isIdle = { running: 0, settling: 0, waiting: 0 };
    await expect.poll(() => one.load).toMatchObject(isIdle);
    counted.texts.length = 0;
    const beganAt = performance.now();
    await third;
    const seconds = (performance.now() - beganAt) / 1_000;
    // Probes after 1 and 2 more seconds: some claims each, and one write.
    expect(counted.texts.filter(isClaim).length).toBeLessThanOrEqual(12);
    expect(counted.texts.length).toBeLessThanOrEqual(20 * Math.max(3, seconds));
    await expect.poll(() => one.load).toMatchObject(isIdle);
    const { rows } = await pool.query<{ attempts: number; active: number }>(
      `SELECT max(attempts)::int AS attempts FROM "${schema}".entries`,
    );
    expect(rows[0]?.attempts).toBe(0);

    const drained = told(one, 'delivered');
    await server.restart();
    // At once: its third pause has no end here.
    await drained;
    const found = await consumeAll(server.url, ids);
    await one.stop();
    const missing = ids.filter((id) => !found.has(id));
    expect(missing).toEqual([]);
    // What was on its way when it died may be there twice, and nothing else.
    const twice = [...found.values()].filter((count) => count > 1);
    expect(twice.length).toBeLessThanOrEqual(CONCURRENCY);
    expect(Math.max(...found.values())).toBeLessThanOrEqual(2);
    const { rows: left } = await pool.query(`SELECT id FROM "${schema}".entries`);
    expect(left).toEqual([]);
  });

  test('that stands still does not keep a relay from stopping', async () => {
    const { emit, relay, broker, states } = await ground({ rabbitUrl: server.url });
    await emit(50);
    const one = relay();
    await one.start();
    await broker.arrived(50);
    await server.freeze();
    try {
      await emit(50, { wakes: true });
      await expect.poll(() => one.load.running).toBe(50);
      // The server goes on after the stop: one that waited for it would not end.
      await one.stop({ within: '500ms' });
      expect(await states()).toEqual({ incoming: 50 });
    } finally {
      await server.thaw();
    }
  });

  test('that takes no large bodies bounces them at once, and the others get through', async () => {
    await limitBodies(server, 10_000);
    try {
      const { emit, outbox, pool, relay, broker } = await ground({ rabbitUrl: server.url });
      const large = Buffer.alloc(20_000);
      const { id } = await transaction(pool, (tx) => outbox.emit(tx, 'q.large', large));
      const others = await emit(50);
      const one = relay();
      const bounced = told(one, 'bounced');
      await one.start();
      await bounced;
      expect((await outbox.spool.get(id))?.status).toMatchObject({
        state: 'bounce',
        attempts: 1,
        lastFailure: { code: 'message.invalid', reason: expect.stringContaining('at most 10000') },
      });
      const arrived = await broker.arrived(others.length);
      expect(new Set(idsOf(arrived))).toEqual(new Set(others));
    } finally {
      await limitBodies(server, MESSAGE_SIZE_MAX);
    }
  });

  test('that is not there at all does not keep a relay from starting and stopping', async () => {
    const { emit, outbox } = await ground({ rabbitUrl: server.url });
    const to = { amqp: 'amqp://127.0.0.1:1', exchange: 'x' };
    const one = outbox.relay({ to });
    onTestFinished(() => one.stop());
    const [id = ''] = await emit(1);
    const gone = told(one, 'trouble');
    await one.start();
    const [event] = await gone;
    expect(event).toMatchObject({ doing: 'sending to exchange "x"' });
    await one.stop();
    expect((await outbox.spool.get(id))?.status).toMatchObject({ attempts: 0 });
  });
});

/** A clock by which a relay pauses twice, and then for ever; `third` says when that begins. */
function withoutThirdPause(): { readonly clock: Clock; readonly third: Promise<void> } {
  const { promise: third, resolve } = Promise.withResolvers<void>();
  const after: Clock['after'] = (ms, call) => {
    if (ms !== 4 * PAUSE_MS) return systemClock.after(ms, call);
    resolve();
    return () => undefined;
  };
  return { clock: { ...systemClock, after }, third };
}

/** Consumes until every id was there; how often each was. */
async function consumeAll(url: string, ids: readonly string[]): Promise<Map<string, number>> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  const found = new Map<string, number>();
  await new Promise<void>((resolve) => {
    void channel.consume(
      QUEUE,
      (message) => {
        const id = String(message?.properties.messageId);
        found.set(id, (found.get(id) ?? 0) + 1);
        if (found.size === ids.length) resolve();
      },
      { noAck: true },
    );
  });
  // What comes last may come twice.
  await expect.poll(async () => (await channel.checkQueue(QUEUE)).messageCount).toBe(0);
  await connection.close();
  return found;
}
